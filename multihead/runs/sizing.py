"""Which model fits a text and the time there is for it: presets are timed on the text itself, and the largest that sees
enough of it is taken.

A model needs about two target tokens for each of its parameters, and several times as many steps as its warm-up has, or
it ends before it has learned anything. And a text can only fill a model of a certain size: a larger one memorizes it.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch

from multihead.config import presets
from multihead.config.fit import dropout_for
from multihead.config.resolve import configure
from multihead.config.schema import RunConfig, Settings
from multihead.console import Log
from multihead.data.shards import CorpusSummary, open_training_shards
from multihead.hardware.flops import counted_flops
from multihead.hardware.memory import keep_freed_memory
from multihead.model.build import build_model
from multihead.model.weights import count_parameters
from multihead.runs.request import TrainingRequest
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.schedule import training_seconds
from multihead.training.trainer import Trainer

CANDIDATES = ("tiny", "small", "base")  # from the smallest to the largest
THOROUGH = "thorough"  # instead of the smallest one, for a small text and much time
TOKENS_A_PARAMETER = 2.0  # target tokens that a model sees at least
WARM_UPS = 3  # a run has at least this many times the steps of its warm-up
PARAMETERS_A_TOKEN = 8.0  # of the text; a larger model would memorize it
MIN_EPOCHS_FOR_THOROUGH = 50  # of the smallest candidate over a text; with time for more, there is time for THOROUGH
DEFAULT_HOURS = 24  # if the user sets no limit
MEASURED_TOKENS = 4096  # of a batch that is timed: larger ones are hardly faster, and take long
WARM_UP_STEPS, MEASURED_STEPS = 2, 3
FASTER = 2.5  # a larger model makes better use of the machine, by no more than this


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast a model trains here."""

    tokens_a_second: float  # of target, padding left out
    tokens_a_step: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBudget:
    """What there is to train with."""

    target_tokens: int  # of the text, once
    seconds: float
    steps: int | None = None  # if the user limits them
    is_set: bool = True  # whether the user set the time

    def tokens(self, speed: Speed) -> float:
        """Target tokens that a model of this speed sees."""
        by_time = self.seconds * speed.tokens_a_second
        return by_time if self.steps is None else min(by_time, self.steps * speed.tokens_a_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The preset that fits."""

    preset: str
    reason: str


def fitting_preset(budget: TimeBudget, shape_of: Callable[[str], RunConfig], speed_of: Callable[[str], Speed]) -> Sized:
    """Return the preset that fits text and time. Presets that are clearly too large are not timed."""
    smallest = CANDIDATES[0]
    chosen, speed = smallest, speed_of(smallest)
    passes = budget.tokens(speed) / budget.target_tokens
    for name in CANDIDATES[1:]:
        shape = shape_of(name)
        can_be = _fills(budget, shape) and _is_enough(budget, shape, _at_best(speed, shape_of(chosen), shape))
        if not can_be or not _is_enough(budget, shape, speed_of(name)):
            break
        chosen, speed = name, speed_of(name)
    within = f"{budget.seconds / 3600:.0f} hours" if budget.seconds >= 7200 else f"{budget.seconds / 60:.0f} minutes"
    if chosen != smallest:
        return Sized(preset=chosen, reason=f"the largest model that sees enough text within {within}")
    if not is_small(budget, shape_of):
        return Sized(preset=smallest, reason=f"a larger model would not see enough text within {within}")
    if budget.is_set and passes >= MIN_EPOCHS_FOR_THOROUGH:
        reason = f"there is time for {passes:.0f} epochs of a tiny model, and a larger one makes more of them"
        return Sized(preset=THOROUGH, reason=reason)
    return Sized(preset=smallest, reason="a larger model would memorize so little text, or not finish in time")


def is_small(budget: TimeBudget, shape_of: Callable[[str], RunConfig]) -> bool:
    """Return whether a text is too small for all candidates but the smallest."""
    return not _fills(budget, shape_of(CANDIDATES[1]))


def _fills(budget: TimeBudget, shape: RunConfig) -> bool:
    return parameters(shape) <= PARAMETERS_A_TOKEN * budget.target_tokens


def _is_enough(budget: TimeBudget, shape: RunConfig, speed: Speed) -> bool:
    tokens = budget.tokens(speed)
    n_steps = tokens / (speed.tokens_a_step * shape.train.accumulate)
    return tokens >= TOKENS_A_PARAMETER * parameters(shape) and n_steps >= WARM_UPS * shape.train.warmup


def _at_best(speed: Speed, measured: RunConfig, larger: RunConfig) -> Speed:
    """The speed that a larger model cannot exceed, from that of a smaller one."""
    share = counted_flops(measured.model, 1) / counted_flops(larger.model, 1)
    tokens_a_step = speed.tokens_a_step * larger.data.batch_tokens / measured.data.batch_tokens
    return Speed(tokens_a_second=FASTER * share * speed.tokens_a_second, tokens_a_step=tokens_a_step)


def parameters(shape: RunConfig) -> int:
    with torch.device("meta"):  # the shape alone, without memory for weights
        return count_parameters(build_model(shape.model))


# Measuring


def measured_speed(shape: RunConfig, data: Path, n_processes: int = 1) -> Speed:
    """Time some steps of a model on a prepared text."""
    batch_tokens = shape.data.batch_tokens
    timed = configure(
        {
            "data.batch_tokens": max(shape.data.max_length + 1, min(MEASURED_TOKENS, batch_tokens)),
            "train.r_drop_from": 0.0,  # the longer steps of a run
            "train.accumulate": 1,
            "train.compile": False,
        },
        start=shape,
    )
    keep_freed_memory()
    trainer = Trainer(timed, data, SubwordTokenizer.load(data / "tokenizer.json"))
    for _ in range(WARM_UP_STEPS):
        trainer.step()
    began, seen = time.perf_counter(), trainer.state.tokens_seen
    for _ in range(MEASURED_STEPS):
        trainer.step()
    n_tokens = trainer.state.tokens_seen - seen
    return Speed(
        tokens_a_second=n_processes * n_tokens / (time.perf_counter() - began),
        tokens_a_step=n_tokens / MEASURED_STEPS * batch_tokens / timed.data.batch_tokens,
    )


class Sizer:
    """Chooses the model that fits text and time, by timing presets on the text."""

    def __init__(self, request: TrainingRequest, summary: CorpusSummary, data: Path, n_processes: int) -> None:
        self._request, self._summary, self._data, self._n_processes = request, summary, data, n_processes
        self._target_tokens = open_training_shards(data).target_tokens()
        self._speeds: dict[RunConfig, Speed] = {}

    def choose(self, log: Log) -> Settings:
        """Return the preset that fits, with the dropout that fits it."""
        asked = configure(self._request.settings)
        minutes, limited = asked.train.minutes, "train.steps" in self._request.settings
        budget = TimeBudget(
            target_tokens=self._target_tokens,
            seconds=training_seconds(asked.train) if minutes else 3600 * DEFAULT_HOURS,
            steps=asked.train.steps if limited else None,
            is_set=bool(minutes),
        )
        sized = fitting_preset(budget, self._shape, lambda name: self._speed(self._shape(name)))
        log(
            f"Using preset {sized.preset} for {self._summary.train_pairs:,} sentence pairs "
            f"({self._target_tokens:,} target tokens): {sized.reason}. Override with --preset."
        )
        preset = presets.preset(sized.preset)
        if "model.dropout" in preset or sized.preset == "base":  # the paper's has the paper's dropout
            return preset
        epochs = self._tokens(self._shape(sized.preset)) / self._target_tokens
        dropout = dropout_for(epochs, is_small(budget, self._shape))
        log(f"Using dropout {dropout:g} for about {epochs:.2g} epochs. Override with --set model.dropout=0.2.")
        return {**preset, "model.dropout": dropout}

    def estimate(self, final: RunConfig) -> str:
        """Say how long a run will take, before it begins."""
        speed, train = self._speed(final), final.train
        tokens = self._tokens(final)
        hours = tokens / speed.tokens_a_second / 3600
        duration = f"{hours:.1f} hours" if hours >= 2 else f"{60 * hours:.0f} minutes"
        limit = "" if train.minutes else " Set a limit with --minutes."
        return (
            f"Estimated training time: {duration} for {tokens / speed.tokens_a_step:,.0f} steps "
            f"({tokens / self._target_tokens:.2g} epochs) at {speed.tokens_a_second:,.0f} target tokens/s.{limit}"
        )

    def _shape(self, name: str) -> RunConfig:
        return configure(presets.preset(name), self._request.settings, self._summary.known_settings())

    def _speed(self, shape: RunConfig) -> Speed:
        if shape not in self._speeds:
            self._speeds[shape] = measured_speed(shape, self._data, self._n_processes)
        return self._speeds[shape]

    def _tokens(self, planned: RunConfig) -> float:
        """Target tokens that a run sees, by whichever limit is nearer."""
        speed, train = self._speed(planned), planned.train
        by_steps = train.steps * speed.tokens_a_step
        return min(by_steps, training_seconds(train) * speed.tokens_a_second) if train.minutes else by_steps
