"""The learning rate against eq. (3), and the share of a run that is done."""

import numpy as np
import pytest

from multihead.config.schema import TrainConfig
from multihead.training.schedule import learning_rate, progress


def test_the_rate_is_equation_3() -> None:
    for step in (1, 100, 3999, 4000, 4001, 100_000):
        expected = 512**-0.5 * min(step**-0.5, step * 4000**-1.5)
        assert learning_rate(step, 512, TrainConfig()) == pytest.approx(expected, rel=1e-12)


def test_the_rate_peaks_at_the_end_of_warm_up() -> None:
    rates = [learning_rate(step, 512, TrainConfig(warmup=50)) for step in range(1, 200)]
    assert int(np.argmax(rates)) + 1 == 50
    assert learning_rate(50, 512, TrainConfig(warmup=50, lr_scale=2)) == 2 * rates[49]


def test_a_linear_decay_ends_at_zero() -> None:
    """Up with the step, down with the progress of the run."""
    config = TrainConfig(warmup=50, lr_decay="linear")
    peak = learning_rate(50, 512, TrainConfig(warmup=50))
    assert learning_rate(25, 512, config, progress=0.1) == pytest.approx(peak / 2)
    assert learning_rate(200, 512, config, progress=0.25) == pytest.approx(0.75 * peak)
    assert learning_rate(999, 512, config, progress=1.0) == 0.0


def test_progress_is_that_of_the_nearer_limit() -> None:
    config = TrainConfig(steps=100, minutes=10)
    assert progress(config, 25, seconds=0.0) == 0.25
    assert progress(config, 25, seconds=300) == 0.5
    assert progress(config, 25, seconds=300, max_seconds=400) == 0.75  # the rest is for publishing
    assert progress(config, 25, seconds=300, max_seconds=-1) == 1.0
    assert progress(TrainConfig(steps=0, minutes=10), 10**6, seconds=150) == 0.25
    assert progress(config, 100, seconds=1e9) == 1.0
    assert progress(TrainConfig(steps=100), 25, seconds=1e9) == 0.25
