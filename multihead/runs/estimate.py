"""Before a long run: how long it takes, and what memory and disk it needs. Here from a few measured steps, on GPUs from
arithmetic."""

import math
import shutil
import tempfile
import time
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

import torch

from multihead.concurrency import run_in_subprocess
from multihead.config import presets
from multihead.config.fit import vocab_size_for
from multihead.config.resolve import configure
from multihead.config.schema import RunConfig, Settings
from multihead.console import duration
from multihead.data.parallel_text import Files, ParallelText, as_list, read_pairs
from multihead.data.prepare import prepare
from multihead.data.shards import open_training_shards
from multihead.errors import UserError
from multihead.hardware.flops import GPUS, counted_flops
from multihead.hardware.memory import keep_freed_memory, peak_memory_mb
from multihead.model.build import build_model
from multihead.model.weights import count_parameters
from multihead.runs import sizing
from multihead.text.lines import file_size, open_binary
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.schedule import training_seconds
from multihead.training.trainer import Trainer

SAMPLE = 20_000  # pairs that are looked at and trained on
WARM_UP = 2  # steps that are not measured
MAX_DAYS = 14  # days; a longer run is warned of
BYTES_A_WEIGHT = 16  # itself, its gradient and two moments, in float32


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """What some steps took."""

    seconds_a_step: float
    tokens_a_step: float  # of target
    memory_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a run will need."""

    preset: str
    pairs: int  # about
    parameters: int
    steps: int
    epochs: float
    seconds_a_step: float
    tokens_a_second: float
    hours: float
    memory_mb: float  # of a training process here
    disk_mb: float
    state_mb: float  # weights, gradients and moments
    gpu_hours: dict[str, dict[str, float]]  # by name, then for 1 and for 8 of them
    warnings: list[str]

    def as_text(self) -> str:
        lines = [
            f"about {self.pairs:,} pairs; preset {self.preset}, {self.parameters / 1e6:.1f} million parameters",
            f"{self.steps:,} steps, about {self.epochs:.2g} passes over the text",
            f"here: {self.seconds_a_step:.2f} s a step, {self.tokens_a_second:,.0f} target tokens a second, "
            f"{duration(3600 * self.hours)} in all",
            f"memory here: {self.memory_mb:,.0f} MB; weights, gradients and moments alone {self.state_mb:,.0f} MB",
            f"disk: {self.disk_mb:,.0f} MB for the corpus and the checkpoints",
            "\nGPUs, at the share of their peak that docs/paper.md gives reasons for (an estimate, not a measurement):",
            *(
                f"  {name}: {duration(3600 * hours['1'])} with one, {duration(3600 * hours['8'])} with eight"
                for name, hours in self.gpu_hours.items()
            ),
        ]
        return "\n".join([*lines, *(f"\nwarning: {warning}" for warning in self.warnings)])

    def to_dict(self) -> dict[str, object]:
        return asdict(self)


def estimate_run(
    files: tuple[Files, Files], preset: str | None, settings: Settings, folder: Path, steps: int = 5
) -> Estimate:
    """What a run on these sources and targets will need, if it writes to the disk of `folder`."""
    source, target = files
    n_pairs = sum(map(_about_how_many, as_list(source)))
    with tempfile.TemporaryDirectory() as temporary:
        data = Path(temporary) / "data"
        sample = read_pairs(as_list(source)[0], as_list(target)[0])
        summary = prepare(ParallelText(train=islice(sample, SAMPLE)), data, configure(settings).data)
        tokens = int(open_training_shards(data).lengths().sum())
        tokens_a_pair = tokens / summary.train_pairs
        target_tokens = open_training_shards(data).target_tokens() / summary.train_pairs * n_pairs
        fixed = {"model.vocab_size": vocab_size_for(n_pairs)}
        preset = preset or run_in_subprocess(_preset_for, round(target_tokens), {**fixed, **settings}, data)
        asked = configure(presets.preset(preset), fixed, settings)
        measured = run_in_subprocess(_measure, asked, data, steps)
    return _plan(asked, preset, (n_pairs, tokens_a_pair, target_tokens), measured, folder)


def _preset_for(target_tokens: int, settings: Settings, data: Path) -> str:
    """Return the preset that `multihead train` would choose; runs in a separate process."""
    train = configure(settings).train
    budget = sizing.TimeBudget(
        target_tokens=target_tokens,
        seconds=training_seconds(train) if train.minutes else 3600 * sizing.DEFAULT_HOURS,
        steps=train.steps if "train.steps" in settings else None,
        is_set=bool(train.minutes),
    )

    def shape(name: str) -> RunConfig:
        return configure(presets.preset(name), settings)

    return sizing.fitting_preset(budget, shape, lambda name: sizing.measured_speed(shape(name), data)).preset


def _measure(asked: RunConfig, data: Path, steps: int) -> MeasuredSteps:
    """In a process of its own, whose memory is that of a run; of steps that differ, the longer ones are measured."""
    longest = configure({"train.r_drop_from": 0.0}, start=asked)
    keep_freed_memory()
    trainer = Trainer(longest, data, SubwordTokenizer.load(data / "tokenizer.json"))
    for _ in range(WARM_UP):
        trainer.step()
    began, seen = time.perf_counter(), trainer.state.tokens_seen
    for _ in range(steps):
        trainer.step()
    return MeasuredSteps(
        seconds_a_step=(time.perf_counter() - began) / steps,
        tokens_a_step=(trainer.state.tokens_seen - seen) / steps,
        memory_mb=peak_memory_mb(),
    )


def _plan(
    asked: RunConfig, preset: str, text: tuple[int, float, float], measured: MeasuredSteps, folder: Path
) -> Estimate:
    n_pairs, tokens_a_pair, target_tokens = text
    with torch.device("meta"):  # the shape alone, no memory for weights
        parameters = count_parameters(build_model(asked.model))
    train = asked.train
    tokens = train.steps * measured.tokens_a_step
    flops = counted_flops(asked.model, tokens) * (2 if train.r_drop else 1)  # R-Drop reads each pair twice
    checkpoints = (
        (train.keep_checkpoints + 2) * 3 * 4 * parameters
    )  # weights and two moments; the best one, and one being written
    shards = n_pairs * (2 * tokens_a_pair + 16) + 160 * n_pairs  # ids and ends; while it is prepared, cleaned text
    made = Estimate(
        preset=preset,
        pairs=n_pairs,
        parameters=parameters,
        steps=train.steps,
        epochs=tokens / target_tokens,
        seconds_a_step=measured.seconds_a_step,
        tokens_a_second=measured.tokens_a_step / measured.seconds_a_step,
        hours=train.steps * measured.seconds_a_step / 3600,
        memory_mb=measured.memory_mb,
        disk_mb=(checkpoints + shards) / 1e6,
        state_mb=BYTES_A_WEIGHT * parameters / 1e6,
        gpu_hours={gpu.name: {str(n): gpu.hours(flops) / n for n in (1, 8)} for gpu in GPUS},
        warnings=[],
    )
    return replace(made, warnings=_warnings(made, folder))


def _warnings(made: Estimate, folder: Path) -> list[str]:
    """What would keep the run from ending."""
    found = []
    if made.hours > 24 * MAX_DAYS:
        found.append(
            f"this run takes {duration(3600 * made.hours)} here: take a smaller --preset, fewer --steps, "
            "a limit of --minutes, or GPUs"
        )
    while not folder.exists():
        folder = folder.parent
    free = shutil.disk_usage(folder).free / 1e6
    if made.disk_mb > free:
        found.append(f"{made.disk_mb:,.0f} MB of disk are needed and {free:,.0f} MB are free in {folder}")
    return found


def _about_how_many(file: Path) -> int:
    """Lines of a file, from the length of the first ones."""
    if str(file) == "-":
        raise UserError("a plan needs files: standard input does not say how much there is")
    size = file_size(file)
    with open_binary(file) as opened:
        lines = list(islice(opened, SAMPLE))
        if len(lines) < SAMPLE:
            return len(lines)
        raw = getattr(opened, "fileobj", None)  # of a gzip file: what was read of it is compressed
        n_bytes = raw.tell() if raw else sum(map(len, lines))
    return math.ceil(len(lines) * size / n_bytes)
