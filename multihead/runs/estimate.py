"""`multihead plan`: how long a run will take, and how much memory and disk it needs, before it starts.

The function that `multihead train` uses decides what the run is, on the text itself or, if the text is large, on a
sample. Time on this machine is measured over some steps; time on GPUs is computed from the number of operations.
"""

import math
import shutil
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import islice
from pathlib import Path

from multihead.concurrency import run_in_subprocess
from multihead.config.fit import vocab_size_for
from multihead.config.resolve import configure
from multihead.config.schema import RunConfig
from multihead.console import Log, duration, say
from multihead.data.parallel_text import ParallelText, as_list
from multihead.data.prepare import prepare
from multihead.data.readers.corpus import count_pairs
from multihead.data.shards import open_training_shards, read_summary
from multihead.errors import UsageError, UserError
from multihead.hardware.flops import GPUS, counted_flops
from multihead.hardware.memory import BYTES_PER_WEIGHT, keep_freed_memory, peak_memory_mb
from multihead.runs.base_model import BaseModel
from multihead.runs.limits import MAX_DAYS, why_too_large
from multihead.runs.publishing_time import publishing_seconds
from multihead.runs.rehearsal import find_rehearsal
from multihead.runs.request import TrainingRequest
from multihead.runs.setup import has_run, resolve_run, resumed_config, vocabulary_of, why_unfit
from multihead.runs.sizing import Corpus, parameters
from multihead.text.lines import file_size, open_binary
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.trainer import Trainer

SAMPLE = 20_000  # pairs that are prepared and trained on; a smaller text is prepared completely
WARM_UP_STEPS, MEASURED_STEPS = 2, 5
DISK_BYTES_PER_WEIGHT = 12  # of a checkpoint: the weight and two moments


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSteps:
    """Time and memory of some training steps."""

    seconds_per_step: float
    tokens_per_step: float  # target tokens
    memory_mb: float
    publishing_seconds: float = 0.0  # measured if the time of the run is limited


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """The configuration with which `multihead train` would run, and its text."""

    config: RunConfig
    preset: str
    corpus: Corpus
    refusal: str | None = None  # why `multihead train` would not start it


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """What a run will need."""

    preset: str
    pairs: int  # of training, about
    parameters: int
    steps: int
    epochs: float
    seconds_a_step: float
    tokens_a_second: float
    hours: float
    memory_mb: float  # of a training process on this machine
    disk_mb: float
    state_mb: float  # weights, gradients and moments
    gpu_hours: dict[str, dict[str, float]]  # by name, then for 1 and for 8 of them
    warnings: list[str]

    def as_text(self) -> str:
        lines = [
            f"about {self.pairs:,} training pairs, preset {self.preset}, {self.parameters / 1e6:.1f}M parameters",
            f"{self.steps:,} steps, about {self.epochs:.2g} epochs",
            f"on this machine: {self.seconds_a_step:.2f} s per step, {self.tokens_a_second:,.0f} target tokens/s, "
            f"{duration(3600 * self.hours)} in total",
            f"memory: {self.memory_mb:,.0f} MB, of which weights, gradients and moments {self.state_mb:,.0f} MB",
            f"disk: {self.disk_mb:,.0f} MB for the corpus and the checkpoints",
            "\non GPUs (estimated from their peak and the utilization assumed in docs/paper.md, not measured):",
            *(
                f"  {name}: {duration(3600 * hours['1'])} with one, {duration(3600 * hours['8'])} with eight"
                for name, hours in self.gpu_hours.items()
            ),
        ]
        return "\n".join([*lines, *(f"\nwarning: {warning}" for warning in self.warnings)])

    def figures(self) -> dict[str, object]:
        return asdict(self)


def estimate_run(request: TrainingRequest, measured_steps: int = MEASURED_STEPS, log: Log = say) -> Estimate:
    """Return what the run that `multihead train` would make of a request will need."""
    with tempfile.TemporaryDirectory() as temporary:
        run = plan_run(request, Path(temporary) / "data", log)
        if refusal := why_too_large(run.config):
            raise UsageError(refusal)  # its steps cannot be measured
        # In a separate process, whose peak memory is that of a run.
        measured = run_in_subprocess(_measure, run.config, run.corpus.folder, measured_steps)
        return _estimate(run, measured, request.output)


def plan_run(request: TrainingRequest, temporary: Path, log: Log) -> PlannedRun:
    """Decide what `multihead train` would run; text is prepared in a temporary folder."""
    if has_run(request):
        data = request.output / "data"
        config = resumed_config(request)
        preset = request.preset or "of the existing run"
        return PlannedRun(config=config, preset=preset, corpus=Corpus(data, read_summary(data)))

    def open_corpus(draft: RunConfig, base: BaseModel | None) -> Corpus:
        if request.data:
            return Corpus(request.data, read_summary(request.data))
        return _prepare_sample(request, draft, base, temporary)

    run = resolve_run(request, open_corpus, log)
    return PlannedRun(config=run.resolved.config, preset=run.preset, corpus=run.corpus, refusal=why_unfit(run))


def _prepare_sample(request: TrainingRequest, draft: RunConfig, base: BaseModel | None, folder: Path) -> Corpus:
    """Prepare the text of a request or, if it has more than SAMPLE pairs, a share of each of its corpora."""
    counts = [_count_lines(file) for file in as_list(request.source)]
    counts += [count_pairs(file, draft.data.languages) for file in request.corpora]
    n_lines, vocabulary = sum(counts), vocabulary_of(request, base)
    rehearsal = find_rehearsal(request, base, draft.data)
    if n_lines <= SAMPLE:
        text = request.text(draft.data)
        return Corpus(folder, prepare(text, folder, draft.data, vocabulary, rehearsal=rehearsal))
    tokenizer = vocabulary if isinstance(vocabulary, SubwordTokenizer) else None
    sample = _sample(request.text(draft.data), [math.ceil(SAMPLE * count / n_lines) for count in counts])
    summary = prepare(sample, folder, draft.data, tokenizer, rehearsal=rehearsal)
    scale = n_lines / SAMPLE
    if isinstance(vocabulary, SubwordTokenizer):
        return Corpus(folder, summary, scale)
    vocab_size = vocabulary or vocab_size_for(round(scale * summary.characters))
    return Corpus(folder, summary, scale, vocab_size)


def _sample(text: ParallelText, sizes: Sequence[int]) -> ParallelText:
    """Return the first pairs of each corpus."""
    (train, _), *more = text.corpora()
    return replace(
        text,
        train=islice(train, sizes[0]),
        extra_corpora=[(islice(pairs, size), weight) for (pairs, weight), size in zip(more, sizes[1:], strict=True)],
    )


def _count_lines(file: Path) -> int:
    """Return the number of lines of a file; that of a large one is estimated from its first lines."""
    if str(file) == "-":
        raise UserError("`plan` needs files; it cannot estimate the size of standard input")
    size = file_size(file)
    with open_binary(file) as opened:
        lines = list(islice(opened, SAMPLE + 1))
        if len(lines) <= SAMPLE:
            return len(lines)
        raw = getattr(opened, "fileobj", None)  # of a gzip file, which counts compressed bytes
        n_bytes = raw.tell() if raw else sum(map(len, lines))
    return max(SAMPLE + 1, math.ceil(len(lines) * size / n_bytes))


def _measure(config: RunConfig, data: Path, steps: int) -> MeasuredSteps:
    """Time some steps; where steps of a run differ, the longer ones."""
    longest = configure({"train.r_drop_from": 0.0}, start=config)
    keep_freed_memory()
    trainer = Trainer(longest, data, SubwordTokenizer.load(data / "tokenizer.json"))
    for _ in range(WARM_UP_STEPS):
        trainer.step()
    began, seen = time.perf_counter(), trainer.state.tokens_seen
    for _ in range(steps):
        trainer.step()
    seconds = time.perf_counter() - began
    return MeasuredSteps(
        seconds_per_step=seconds / steps,
        tokens_per_step=(trainer.state.tokens_seen - seen) / steps,
        memory_mb=peak_memory_mb(),
        publishing_seconds=publishing_seconds(trainer, data) if config.train.minutes else 0.0,
    )


def _estimate(run: PlannedRun, measured: MeasuredSteps, output: Path) -> Estimate:
    train, corpus, n_weights = run.config.train, run.corpus, parameters(run.config)
    steps = _expected_steps(run.config, measured)
    tokens = steps * measured.tokens_per_step
    flops = counted_flops(run.config.model, tokens) * (2 if train.r_drop else 1)  # R-Drop reads each pair twice
    estimate = Estimate(
        preset=run.preset,
        pairs=corpus.train_pairs,
        parameters=n_weights,
        steps=steps,
        epochs=tokens / corpus.target_tokens,
        seconds_a_step=measured.seconds_per_step,
        tokens_a_second=measured.tokens_per_step / measured.seconds_per_step,
        hours=steps * measured.seconds_per_step / 3600,
        memory_mb=measured.memory_mb,
        disk_mb=_disk_bytes(run, n_weights) / 1e6,
        state_mb=BYTES_PER_WEIGHT * n_weights / 1e6,
        gpu_hours={gpu.name: {str(n): gpu.hours(flops) / n for n in (1, 8)} for gpu in GPUS},
        warnings=[],
    )
    refusal = [f"`multihead train` would refuse this: {run.refusal}"] if run.refusal else []
    return replace(estimate, warnings=[*refusal, *_warnings(estimate, output)])


def _expected_steps(config: RunConfig, measured: MeasuredSteps) -> int:
    """Return the number of steps that a run makes, limited by steps or by time."""
    train = config.train
    if not train.minutes:
        return train.steps
    by_time = int((60 * train.minutes - measured.publishing_seconds) / measured.seconds_per_step)
    return max(1, min(train.steps or by_time, by_time))


def _disk_bytes(run: PlannedRun, n_weights: int) -> float:
    """Return the disk space of the checkpoints and the corpus, including temporary files of its preparation."""
    n_checkpoints = run.config.train.keep_checkpoints + 2  # the best one, and one that is being written
    lengths = open_training_shards(run.corpus.folder).lengths()
    shards = 2 * int(lengths.sum()) + (16 + 160) * len(lengths)  # ids, offsets and cleaned text
    return n_checkpoints * DISK_BYTES_PER_WEIGHT * n_weights + run.corpus.scale * shards


def _warnings(estimate: Estimate, output: Path) -> list[str]:
    """Return reasons why a run could not finish."""
    warnings = []
    if estimate.hours > 24 * MAX_DAYS:
        warnings.append(
            f"this run takes {duration(3600 * estimate.hours)} on this machine: choose a smaller --preset, "
            "fewer --steps, a limit of --minutes, or GPUs"
        )
    while not output.exists():
        output = output.parent
    free = shutil.disk_usage(output).free / 1e6
    if estimate.disk_mb > free:
        warnings.append(f"{estimate.disk_mb:,.0f} MB of disk are needed, but {free:,.0f} MB are free in {output}")
    return warnings
