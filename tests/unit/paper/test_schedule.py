"""The learning rate of eq. (3)."""

import pytest

from multihead.config.presets import preset
from multihead.config.resolve import configure
from multihead.errors import UsageError
from multihead.paper import schedule
from multihead.training.schedule import learning_rate


def test_a_curve_is_equation_3() -> None:
    curve = schedule.curve_of_pair("512:4000")
    for step in (1, 4000, 100_000):
        assert curve.rate(step) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5))
    assert curve.to_dict([4000])["peak"] == curve.rate(4000) == curve.to_dict([4000])["rates"]["4000"]


def test_a_preset_has_its_own_decay() -> None:
    curve, run = schedule.curve_of_preset("tiny"), configure(preset("tiny"))
    assert curve.rate(10_000) == learning_rate(10_000, 128, run.train, progress=0.5)
    assert curve.rate(run.train.steps) == 0
    assert curve.rate(run.train.steps + 1) is None
    assert curve.rate(curve.peak_step) == max(curve.rate(step) or 0 for step in range(1, 400))


@pytest.mark.parametrize("wrong", ["512", "512:", "0:10", "a:b", "512:-1"])
def test_a_pair_that_is_none_is_refused(wrong: str) -> None:
    with pytest.raises(UsageError, match="--pair takes d_model:warmup"):
        schedule.curve_of_pair(wrong)
