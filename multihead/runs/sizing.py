"""Choose the preset that fits a text and a time budget, by timing presets on the text itself.

A model needs to see its text once, half a target token per parameter, and several times as many steps as its
warm-up, or the run ends before it has learned anything. A model that is too large for its text memorizes it. What does
not fit into memory is not considered (docs/model-size.md).
"""

import math
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from multihead.config.fit import dropout_for
from multihead.config.presets import preset
from multihead.config.resolve import Layer, Source, configure, resolve, value_of
from multihead.config.schema import RunConfig
from multihead.console import Log, duration
from multihead.data.shards import CorpusSummary, open_training_shards
from multihead.hardware.flops import counted_flops
from multihead.hardware.memory import available_memory_mb, keep_freed_memory, training_memory_mb
from multihead.text.tokenizer import SubwordTokenizer

CANDIDATES = ("tiny", "small", "base")  # smallest first
THOROUGH = "thorough"  # in place of the smallest candidate, for a small text and much time
TOKENS_PER_PARAMETER = 0.5  # fewest target tokens that a model must see; measured (docs/model-size.md)
MIN_WARM_UPS = 3  # shortest run, as a multiple of its warm-up
PARAMETERS_PER_TOKEN = 8.0  # of the text; a larger model would memorize it
MIN_EPOCHS_FOR_THOROUGH = 50  # epochs of the smallest candidate in the given time, from which THOROUGH is affordable
DEFAULT_HOURS = 24  # if the user sets no limit
MEASURED_TOKENS = 4096  # of a timed batch; on CPUs larger ones are hardly faster, and take long
WARM_UP_STEPS, MEASURED_STEPS = 2, 3
MAX_SPEEDUP = 2.5  # upper bound of how much better a larger model uses the machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """How fast a model trains on this machine."""

    tokens_per_second: float  # target tokens, without padding
    tokens_per_step: float  # of all batches of a step
    publishing_seconds: float = 0.0  # after the last step; measured if the time of a run is limited


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeBudget:
    """The text and the time that a run has."""

    target_tokens: int  # of an epoch
    seconds: float  # publishing included
    steps: int | None = None  # limit set by the user
    is_set: bool = True  # whether the user set the time
    memory_mb: float = math.inf  # that is available

    def tokens(self, speed: Speed) -> float:
        """Return how many target tokens a model of this speed sees."""
        by_time = max(0.0, self.seconds - speed.publishing_seconds) * speed.tokens_per_second
        return by_time if self.steps is None else min(by_time, self.steps * speed.tokens_per_step)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sized:
    """The preset that fits, and why."""

    preset: str
    reason: str


def choose_preset(budget: TimeBudget, shape_of: Callable[[str], RunConfig], speed_of: Callable[[str], Speed]) -> Sized:
    """Return the preset that fits text and time; presets that are clearly too large are not timed."""
    smallest = CANDIDATES[0]
    chosen, speed = smallest, speed_of(smallest)
    epochs = budget.tokens(speed) / budget.target_tokens
    for name in CANDIDATES[1:]:
        shape = shape_of(name)
        can_be = _fills(budget, shape) and memory_mb(shape) <= budget.memory_mb
        can_be = can_be and _is_enough(budget, shape, _upper_bound(speed, shape_of(chosen), shape))
        if not can_be or not _is_enough(budget, shape, speed_of(name)):
            break
        chosen, speed = name, speed_of(name)
    within = f"{budget.seconds / 3600:.0f} hours" if budget.seconds >= 7200 else f"{budget.seconds / 60:.0f} minutes"
    if chosen != smallest:
        return Sized(preset=chosen, reason=f"the largest model that sees enough text within {within}")
    if not is_small(budget, shape_of):
        return Sized(preset=smallest, reason=f"a larger model would not see enough text within {within}")
    if budget.is_set and epochs >= MIN_EPOCHS_FOR_THOROUGH:
        reason = f"there is time for {epochs:.0f} epochs of a tiny model, so a larger one pays off"
        return Sized(preset=THOROUGH, reason=reason)
    return Sized(preset=smallest, reason="a larger model would overfit or not finish in time")


def is_small(budget: TimeBudget, shape_of: Callable[[str], RunConfig]) -> bool:
    """Return whether a text is too small for all candidates but the smallest."""
    return not _fills(budget, shape_of(CANDIDATES[1]))


def _fills(budget: TimeBudget, shape: RunConfig) -> bool:
    return parameters(shape) <= PARAMETERS_PER_TOKEN * budget.target_tokens


def _is_enough(budget: TimeBudget, shape: RunConfig, speed: Speed) -> bool:
    """Return whether a model sees all of its text, enough text for its size, and enough steps."""
    tokens = budget.tokens(speed)
    n_steps = tokens / speed.tokens_per_step
    enough = max(budget.target_tokens, TOKENS_PER_PARAMETER * parameters(shape))
    return tokens >= enough and n_steps >= MIN_WARM_UPS * shape.train.warmup


def _upper_bound(speed: Speed, measured: RunConfig, larger: RunConfig) -> Speed:
    """Return a speed that a larger model cannot exceed, given that of a smaller one."""
    share = counted_flops(measured.model, 1) / counted_flops(larger.model, 1)
    batch_tokens = [shape.data.batch_tokens * shape.train.accumulate for shape in (measured, larger)]
    return Speed(
        tokens_per_second=MAX_SPEEDUP * share * speed.tokens_per_second,
        tokens_per_step=speed.tokens_per_step * batch_tokens[1] / batch_tokens[0],
        publishing_seconds=speed.publishing_seconds,
    )


@cache
def parameters(shape: RunConfig) -> int:
    """Return the number of parameters of a model."""
    from multihead.model.weights import count_parameters_of  # needs torch, which `multihead prepare` does without

    return count_parameters_of(shape.model)


def memory_mb(shape: RunConfig) -> float:
    """Return about how much memory a run needs on this machine, where torchrun may start several processes."""
    return int(os.environ.get("LOCAL_WORLD_SIZE", "1")) * training_memory_mb(shape, parameters(shape))


def memory_limit_mb() -> float:
    """Return how much memory a run may need; no limit where that is not known, and with a GPU, which has its own."""
    from multihead.hardware.device import pick_device  # needs torch

    available = available_memory_mb()
    return math.inf if available is None or pick_device().type != "cpu" else available


# Measuring


def measured_speed(config: RunConfig, data: Path, n_processes: int = 1) -> Speed:
    """Time some training steps on a prepared corpus and, if the time of the run is limited, what publishing needs."""
    from multihead.runs.publishing_time import publishing_seconds
    from multihead.training.trainer import Trainer  # needs torch

    batch_tokens = config.data.batch_tokens
    timed = configure(
        {
            "data.batch_tokens": max(config.data.max_length + 1, min(_measured_tokens(), batch_tokens)),
            "train.r_drop_from": 0.0,  # times the longer steps of a run
            "train.accumulate": 1,
            "train.compile": False,
        },
        start=config,
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
        tokens_per_second=n_processes * n_tokens / (time.perf_counter() - began),
        tokens_per_step=n_tokens / MEASURED_STEPS * config.train.accumulate * batch_tokens / timed.data.batch_tokens,
        publishing_seconds=publishing_seconds(trainer, data) if config.train.minutes else 0.0,
    )


def _measured_tokens() -> int:
    """Return the size of a timed batch: on a GPU, where launching a small batch costs as much, that of the run."""
    from multihead.hardware.device import pick_device  # needs torch

    return MEASURED_TOKENS if pick_device().type == "cpu" else sys.maxsize


@dataclass(frozen=True, slots=True)
class Corpus:
    """A prepared corpus: the text of a run or, for `multihead plan`, a sample of it."""

    folder: Path
    summary: CorpusSummary
    scale: float = 1.0  # size of the text as a multiple of the sample
    vocab_size: int | None = None  # of the text, if the sample has a smaller vocabulary

    @property
    def train_pairs(self) -> int:
        return round(self.scale * self.summary.train_pairs)

    @property
    def target_tokens(self) -> int:
        """Target tokens of an epoch."""
        return round(self.scale * open_training_shards(self.folder).target_tokens())

    @property
    def layer(self) -> Layer:
        """The settings that the corpus was made with."""
        fixed = self.summary.known_settings()
        if self.vocab_size:
            fixed = {**fixed, "model.vocab_size": self.vocab_size}
        return Layer(Source.FIXED, fixed, f"corpus {self.folder}")


@dataclass(frozen=True, slots=True)
class Sizer:
    """Chooses the preset for a corpus, given the other settings of a run."""

    layers: Sequence[Layer]
    corpus: Corpus
    n_processes: int = 1
    _speeds: dict[RunConfig, Speed] = field(default_factory=dict)

    def choose(self, log: Log) -> tuple[str, list[Layer]]:
        """Return the name of the preset that fits, and layers with its settings and the dropout that fits it."""
        sized = choose_preset(self._budget(), self._with_preset, lambda name: self.speed(self._with_preset(name)))
        log(
            f"Using preset {sized.preset} for {self.corpus.train_pairs:,} sentence pairs "
            f"({self.corpus.target_tokens:,} target tokens): {sized.reason}. Override with --preset."
        )
        layers = [_preset_layer(sized.preset)]
        layers += self._default_limit(layers, log)
        # The base preset has the paper's dropout.
        return sized.preset, [*layers, *([] if sized.preset == "base" else self.fit_dropout(layers, log))]

    def _default_limit(self, fitted: Sequence[Layer], log: Log) -> list[Layer]:
        """Return a limit of time if the user set none, and the steps of the preset take longer than the default."""
        if any(value_of(self.layers, name) for name in ("train.minutes", "train.steps")):
            return []
        config = resolve([*self.layers, *fitted]).config
        needed = self.training_seconds(config)
        if needed <= 3600 * DEFAULT_HOURS:
            return []
        log(
            f"Stopping after {DEFAULT_HOURS} hours, since {config.train.steps:,} steps would take {duration(needed)}. "
            "Override with --minutes or --steps."
        )
        return [Layer(Source.FIT, {"train.minutes": 60.0 * DEFAULT_HOURS, "train.steps": 0}, "no limit was set")]

    def fit_dropout(self, fitted: Sequence[Layer], log: Log) -> list[Layer]:
        """Return the dropout that fits the text and the time, unless other layers set it."""
        layers = [*self.layers, *fitted]
        if value_of(layers, "model.dropout") is not None:
            return []
        epochs = self._expected_tokens(resolve(layers).config) / self.corpus.target_tokens
        dropout = dropout_for(epochs, is_small(self._budget(), self._with_preset))
        log(f"Using dropout {dropout:g} for about {epochs:.2g} epochs. Override with --set model.dropout=0.2.")
        return [Layer(Source.FIT, {"model.dropout": dropout}, f"about {epochs:.2g} epochs")]

    def training_seconds(self, config: RunConfig) -> float:
        """Return how long a run trains."""
        return self._expected_tokens(config) / self.speed(config).tokens_per_second

    def estimate(self, config: RunConfig) -> str:
        """Return a line that says how long a run will take."""
        speed, tokens = self.speed(config), self._expected_tokens(config)
        time_needed, steps = duration(self.training_seconds(config)), tokens / speed.tokens_per_step
        limit = "" if config.train.minutes else " Set a limit with --minutes."
        return (
            f"Estimated training time: {time_needed} for {steps:,.0f} steps ({tokens / self.corpus.target_tokens:.2g} "
            f"epochs) at {speed.tokens_per_second:,.0f} target tokens/s.{limit}"
        )

    def training_needed(self, config: RunConfig) -> float:
        """Return the seconds of the shortest run that learns something; fine-tuning starts with a trained model."""
        if config.train.base_model:
            return 0.0
        speed = self.speed(config)
        n_steps = MIN_WARM_UPS * config.train.warmup
        if config.train.steps:
            n_steps = min(n_steps, config.train.steps)
        return n_steps * speed.tokens_per_step / speed.tokens_per_second

    def speed(self, config: RunConfig) -> Speed:
        """Return how fast a configuration trains; it is measured once."""
        if config not in self._speeds:
            self._speeds[config] = measured_speed(config, self.corpus.folder, self.n_processes)
        return self._speeds[config]

    def _budget(self) -> TimeBudget:
        minutes, steps = value_of(self.layers, "train.minutes"), value_of(self.layers, "train.steps")
        train = resolve(self.layers).config.train
        return TimeBudget(
            target_tokens=self.corpus.target_tokens,
            seconds=60 * train.minutes if minutes else 3600 * DEFAULT_HOURS,
            steps=train.steps if steps else None,
            is_set=bool(minutes),
            memory_mb=memory_limit_mb(),
        )

    def _with_preset(self, name: str) -> RunConfig:
        return resolve([*self.layers, _preset_layer(name)]).config

    def _expected_tokens(self, config: RunConfig) -> float:
        """Target tokens that a run sees, limited by steps or by time."""
        speed, train = self.speed(config), config.train
        seconds = 60 * train.minutes if train.minutes else math.inf
        budget = TimeBudget(target_tokens=self.corpus.target_tokens, seconds=seconds, steps=train.steps or None)
        return budget.tokens(speed)


def _preset_layer(name: str) -> Layer:
    return Layer(Source.FIT, preset(name), f"preset {name}")
