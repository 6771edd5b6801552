"""The model that fits a text and the time there is for it."""

import itertools
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.config import presets
from multihead.config.resolve import configure
from multihead.config.schema import RunConfig
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.data.shards import read_summary
from multihead.hardware.flops import counted_flops
from multihead.runs import sizing
from multihead.runs.request import TrainingRequest
from multihead.runs.sizing import Speed, TimeBudget, choose_preset
from multihead.runs.train import train
from tests.conftest import QUICK, copy_or_reverse, write_pairs

TWO_CORES = {"tiny": 0.38, "small": 0.45, "base": 0.73, "thorough": 0.45}  # of 415 GFLOPS, as docs/benchmarks.md has it


@cache
def shape(name: str, vocab_size: int = 16_000) -> RunConfig:
    return configure(presets.preset(name), {"model.vocab_size": vocab_size})


def speed(name: str, times: float = 1.0) -> Speed:
    """How fast a preset trains on two cores, or on a machine that is so many times faster."""
    flops = 415e9 * TWO_CORES[name] * times
    return Speed(
        tokens_per_second=flops / counted_flops(shape(name).model, 1), tokens_per_step=shape(name).data.batch_tokens
    )


def chosen(n_tokens: int, minutes: float, times: float = 1.0, steps: int | None = None) -> str:
    budget = TimeBudget(target_tokens=n_tokens, seconds=60 * minutes, steps=steps)
    return choose_preset(budget, shape, lambda name: speed(name, times)).preset


def test_a_model_that_could_not_leave_its_warm_up_is_not_chosen() -> None:
    """700,000 pairs used to get the base model and 270 steps of it, of which the warm-up takes 4,000."""
    assert chosen(20_000_000, minutes=120) == "small"
    assert chosen(20_000_000, minutes=10) == "tiny"
    assert chosen(20_000_000, minutes=60 * 24 * 14) == "base"
    assert chosen(20_000_000, minutes=600, times=1000) == "base"


@pytest.mark.parametrize(
    ("n_tokens", "minutes", "best"),
    [(458_541, 1.5, "tiny"), (9_679_599, 4.5, "tiny"), (1_633_209, 13.5, "small")],
    ids=["Multi30k", "Europarl", "Tatoeba"],
)
def test_the_best_model_of_the_grid_is_chosen(n_tokens: int, minutes: float, best: str) -> None:
    """Measured with 8,000 pieces on one core, docs/model-size.md."""
    measured = {
        "tiny": Speed(tokens_per_second=8_860, tokens_per_step=970),
        "small": Speed(tokens_per_second=5_790, tokens_per_step=3_840),
        "base": Speed(tokens_per_second=900, tokens_per_step=20_000),
    }
    budget = TimeBudget(target_tokens=n_tokens, seconds=60 * minutes)
    assert choose_preset(budget, lambda name: shape(name, 8000), measured.__getitem__).preset == best


def test_more_time_or_a_faster_machine_never_gives_a_smaller_model() -> None:
    sizes = list(sizing.CANDIDATES)
    for n_tokens in (3_000_000, 20_000_000, 100_000_000):
        by_time = [sizes.index(chosen(n_tokens, minutes)) for minutes in (1, 10, 100, 600, 10_000, 100_000)]
        by_speed = [sizes.index(chosen(n_tokens, 100, times)) for times in (0.1, 1, 10, 100)]
        assert by_time == sorted(by_time)
        assert by_speed == sorted(by_speed)


BUDGETS = {
    "n_tokens": st.integers(10_000, 2 * 10**9),
    "minutes": st.floats(0.1, 20_000),
    "times": st.floats(0.01, 1000),
}


@given(**BUDGETS)
def test_a_model_that_cannot_see_its_text_once_is_not_chosen_if_a_smaller_one_can(
    n_tokens: int, minutes: float, times: float
) -> None:
    budget = TimeBudget(target_tokens=n_tokens, seconds=60 * minutes)
    epochs = {name: budget.tokens(speed(name, times)) / n_tokens for name in TWO_CORES}
    preset = chosen(n_tokens, minutes, times)
    smaller = [name for name in TWO_CORES if sizing.parameters(shape(name)) < sizing.parameters(shape(preset))]
    assert epochs[preset] >= 1 or all(epochs[name] < 1 for name in smaller)


@given(**BUDGETS, factor=st.floats(1, 100))
def test_more_time_never_gives_a_smaller_model(n_tokens: int, minutes: float, times: float, factor: float) -> None:
    sizes = ["tiny", "thorough", "small", "base"]  # by the text it is either thorough, or small and base
    assert sizes.index(chosen(n_tokens, minutes, times)) <= sizes.index(chosen(n_tokens, factor * minutes, times))


def test_a_model_that_does_not_fit_into_memory_is_neither_timed_nor_chosen() -> None:
    def timing(name: str) -> Speed:
        assert name != "base"
        return speed(name, 1000)

    available = sizing.memory_mb(shape("base")) - 1
    budget = TimeBudget(target_tokens=20_000_000, seconds=36_000, memory_mb=available)
    assert choose_preset(budget, shape, timing).preset == "small"


@pytest.mark.parametrize("minutes", [10, 100, 600])
def test_a_little_more_text_does_not_make_a_run_jump_to_a_model_that_it_cannot_train(minutes: float) -> None:
    """At 600,000 pairs the base model used to be taken, whatever the time."""
    for n_tokens in range(1_000_000, 40_000_000, 1_000_000):
        preset = chosen(n_tokens, minutes)
        tokens = TimeBudget(target_tokens=n_tokens, seconds=60 * minutes).tokens(speed(preset))
        assert preset == "tiny" or tokens / speed(preset).tokens_per_step >= 3 * shape(preset).train.warmup


def test_a_small_text_gets_the_thorough_preset_once_the_user_gives_it_time() -> None:
    assert [chosen(400_000, minutes) for minutes in (5, 60, 600)] == ["tiny", "thorough", "thorough"]
    untimed = TimeBudget(target_tokens=400_000, seconds=86_400, is_set=False)
    assert choose_preset(untimed, shape, speed).preset == "tiny"


def test_a_small_text_never_gets_a_model_that_would_memorize_it() -> None:
    assert {chosen(400_000, minutes, times=1000) for minutes in (10, 10_000)} <= {"tiny", "thorough"}


def test_steps_that_the_user_sets_are_a_limit_too() -> None:
    assert chosen(20_000_000, minutes=600, times=1000, steps=100) == "tiny"


def test_what_is_plainly_too_large_is_not_timed() -> None:
    timed: list[str] = []

    def timing(name: str) -> Speed:
        timed.append(name)
        return speed(name)

    choose_preset(TimeBudget(target_tokens=20_000_000, seconds=60), shape, timing)
    assert timed == ["tiny"]


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    source, target = write_pairs(tmp_path, copy_or_reverse(200, seed=1))
    prepare(from_files(source, target), tmp_path / "data", configure().data, 280)
    return tmp_path / "data"


def test_speed_is_that_of_real_steps_on_the_text(prepared: Path) -> None:
    quick = configure(QUICK, {"model.vocab_size": read_summary(prepared).vocab_size})
    one, two = (sizing.measured_speed(quick, prepared, n_processes) for n_processes in (1, 2))
    assert one.tokens_per_second > 0
    assert 0 < one.tokens_per_step <= 100
    assert two.tokens_per_step == one.tokens_per_step


@pytest.mark.long
def test_choice_and_estimated_time_are_printed_before_the_first_step(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source, target = write_pairs(tmp_path, copy_or_reverse(200, seed=1))
    settings = {"train.steps": 120, "train.log_every": 20, "train.validate_every": 1000, "model.vocab_size": 280}
    train(TrainingRequest(output=tmp_path / "run", source=source, target=target, settings=settings))
    shown = " ".join(capsys.readouterr().err.split())
    order = [shown.index(part) for part in ("Using preset tiny for 1", "Estimated training time: ", "step 20")]
    assert all(one < other for one, other in itertools.pairwise(order))
