"""`multihead bench train`: our tokens per second, beside a plain torch.nn.Transformer loop and the hardware's limit.

Both train on the same batches, each in a separate process. Where the hardware has bfloat16 we train in it, and are
measured in float32 too, since the plain loop is in float32.
"""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import numpy as np
import torch

from multihead.bench.plain_transformer import PlainTransformer
from multihead.bench.timing import timed
from multihead.concurrency import run_in_subprocess
from multihead.config.presets import preset
from multihead.config.resolve import configure
from multihead.config.schema import ModelConfig, RunConfig
from multihead.data.epochs import Cursor
from multihead.data.shards import ShardWriter, open_training_shards, read_summary
from multihead.hardware.device import matmul_flops, pick_device, precision_name
from multihead.hardware.flops import training_flops
from multihead.hardware.memory import keep_freed_memory, peak_memory_mb
from multihead.text.tokenizer import PAD_ID, SubwordTokenizer
from multihead.training.batch import Batch, stream_batches
from multihead.training.trainer import Trainer

WARM_UP = 4  # steps that are not timed
SENTENCE_TOKENS = 14  # mean length of random sentences, that of Multi30k
RANDOM_TOKENS = 400_000  # on each side of a random corpus


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """The speed of one program."""

    precision: str  # of large products
    tokens_per_second: float  # target tokens without padding, with EOS
    gflops: float  # of the matrix products of the model
    matmul_gflops: float  # of one large product in the same precision, measured in the same process
    peak_memory_mb: float

    @property
    def share_of_peak(self) -> float:
        return self.gflops / self.matmul_gflops


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What is trained, on what, and for how many timed steps."""

    config: RunConfig
    data: Path  # a prepared corpus, or what `random_corpus` wrote
    steps: int

    def in_float32(self) -> "Work":
        return replace(self, config=configure({"train.precision": "float32"}, start=self.config))

    def batches(self, n_batches: int, first: Cursor) -> list[Batch]:
        """Read batches from a cursor on, the same ones for every program."""
        config = self.config
        stream = stream_batches(open_training_shards(self.data), config.data.batch_tokens, config.train.seed, first)
        return [batch for batch, _ in islice(stream, n_batches)]


# Programs


def measure_ours(work: Work) -> Speed:
    """Measure `Trainer.step`."""
    keep_freed_memory()
    trainer = Trainer(work.config, work.data, _any_tokenizer())
    for _ in range(WARM_UP):
        trainer.step()
    batches = work.batches(work.steps, trainer.state.cursor)  # those that it trains on, read again to be counted
    return _measure(work, batches, lambda _: trainer.step(), trainer.precision)


def measure_plain(work: Work, our_allocator: bool = False) -> Speed:
    """Measure the loop of a careful PyTorch user: batches of similar length, fused Adam, no logits for padding."""
    if our_allocator:
        keep_freed_memory()
    device = pick_device()
    torch.manual_seed(1)
    model = PlainTransformer(work.config.model).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), eps=1e-9, fused=True)

    def step(batch: Batch) -> None:
        loss = model(batch.source, batch.target_in, batch.target_out)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()

    for batch in work.batches(WARM_UP, Cursor()):
        step(batch.to(device))
    batches = work.batches(work.steps, Cursor(batch=WARM_UP))
    return _measure(work, batches, lambda batch: step(batch.to(device)), torch.float32)


def _measure(work: Work, batches: list[Batch], step: Callable[[Batch], None], precision: torch.dtype) -> Speed:
    def run() -> None:
        for batch in batches:
            step(batch)

    _, seconds = timed(run)
    memory = peak_memory_mb()  # before the large products below
    return Speed(
        precision=precision_name(precision),
        tokens_per_second=sum(batch.n_tokens for batch in batches) / seconds,
        gflops=sum(batch_flops(work.config.model, batch) for batch in batches) / seconds / 1e9,
        matmul_gflops=matmul_flops(pick_device(), precision, seconds=2.0) / 1e9,
        peak_memory_mb=memory,
    )


def batch_flops(model: ModelConfig, batch: Batch) -> float:
    """Return the operations of one forward and backward pass over a batch, without padding."""
    source, target = ((ids != PAD_ID).sum(dim=1).double().numpy() for ids in (batch.source, batch.target_out))
    return training_flops(model, source, target)


# The report


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingReport:
    """The speed of each program on the same batches."""

    preset: str
    work: Work
    ours: Speed
    ours_float32: Speed  # the same as `ours` unless the hardware has bfloat16
    plain: Speed
    plain_our_allocator: Speed

    def to_dict(self) -> dict[str, object]:
        ours, float32, plain, tuned = self.ours, self.ours_float32, self.plain, self.plain_our_allocator
        return {
            "preset": self.preset,
            "vocab_size": self.work.config.model.vocab_size,
            "batch_tokens": self.work.config.data.batch_tokens,
            "steps": self.work.steps,
            "threads": torch.get_num_threads(),
            "tokens_per_second": round(ours.tokens_per_second, 1),
            "plain_torch_tokens_per_second": round(plain.tokens_per_second, 1),
            "ratio": round(ours.tokens_per_second / plain.tokens_per_second, 3),
            "plain_torch_our_allocator_tokens_per_second": round(tuned.tokens_per_second, 1),
            "ratio_our_allocator": round(ours.tokens_per_second / tuned.tokens_per_second, 3),
            "precision": ours.precision,
            "float32_tokens_per_second": round(float32.tokens_per_second, 1),
            "ratio_float32": round(float32.tokens_per_second / plain.tokens_per_second, 3),
            "ratio_float32_our_allocator": round(float32.tokens_per_second / tuned.tokens_per_second, 3),
            "matmul_gflops": round(ours.matmul_gflops, 1),
            "share_of_peak": round(ours.share_of_peak, 3),
            "plain_torch_share_of_peak": round(plain.share_of_peak, 3),
            "peak_memory_mb": round(ours.peak_memory_mb),
            "plain_torch_peak_memory_mb": round(plain.peak_memory_mb),
        }

    def as_text(self) -> str:
        ours = {speed.precision: speed for speed in (self.ours, self.ours_float32)}
        rows = [(f"ours, {precision}", speed) for precision, speed in ours.items()]
        rows += [("plain torch loop", self.plain), ("with our allocator", self.plain_our_allocator)]
        lines = [f"{'':20} {'tokens/s':>9} {'of peak':>8} {'memory':>9}"]
        for name, speed in rows:
            lines.append(
                f"{name:20} {speed.tokens_per_second:9,.0f} {speed.share_of_peak:8.2f} {speed.peak_memory_mb:6,.0f} MB"
            )
        for precision, speed in ours.items():
            plain, tuned = (
                speed.tokens_per_second / other.tokens_per_second for other in (self.plain, self.plain_our_allocator)
            )
            lines.append(f"in {precision} {plain:.2f} times the plain loop, {tuned:.2f} with our allocator")
        return "\n".join(lines)


def bench_training(
    preset_name: str, data: Path | None, steps: int, batch_tokens: int, vocab_size: int | None
) -> TrainingReport:
    """Measure a preset on a prepared corpus, or on random sentences as long as those of Multi30k."""
    with tempfile.TemporaryDirectory() as folder:
        vocab_size = vocab_size or (read_summary(data).vocab_size if data else 8000)
        settings = {"model.vocab_size": vocab_size, "data.batch_tokens": batch_tokens}
        config = configure(preset(preset_name), settings)
        work = Work(config=config, data=data or random_corpus(Path(folder), config.model.vocab_size), steps=steps)
        ours = run_in_subprocess(measure_ours, work)
        return TrainingReport(
            preset=preset_name,
            work=work,
            ours=ours,
            ours_float32=ours if ours.precision == "float32" else run_in_subprocess(measure_ours, work.in_float32()),
            plain=run_in_subprocess(measure_plain, work),
            plain_our_allocator=run_in_subprocess(measure_plain, work, our_allocator=True),
        )


def bench_growth(preset_name: str, steps: int) -> list[dict[str, object]]:
    """Measure how speed and memory change with the batch, the vocabulary and the length of sentences."""
    cases: list[dict[str, int]] = [{"batch_tokens": tokens} for tokens in (1024, 4096, 16384)]
    cases += [{"vocab_size": size} for size in (2000, 37_000)]
    cases += [{"length": length} for length in (60, 240)]
    return [_growth_row(preset_name, steps, case) for case in cases]


def _growth_row(preset_name: str, steps: int, case: dict[str, int]) -> dict[str, object]:
    values = {"batch_tokens": 4096, "vocab_size": 8000, "length": SENTENCE_TOKENS, **case}
    with tempfile.TemporaryDirectory() as folder:
        settings = {"model.vocab_size": values["vocab_size"], "data.batch_tokens": values["batch_tokens"]}
        config = configure(preset(preset_name), settings)
        work = Work(
            config=config, data=random_corpus(Path(folder), values["vocab_size"], values["length"]), steps=steps
        )
        ours, plain = run_in_subprocess(measure_ours, work), run_in_subprocess(measure_plain, work)
    return {
        **values,
        "tokens_per_second": round(ours.tokens_per_second, 1),
        "plain_torch_tokens_per_second": round(plain.tokens_per_second, 1),
        "ratio": round(ours.tokens_per_second / plain.tokens_per_second, 3),
        "share_of_peak": round(ours.share_of_peak, 3),
        "peak_memory_mb": round(ours.peak_memory_mb),
        "plain_torch_peak_memory_mb": round(plain.peak_memory_mb),
    }


def random_corpus(folder: Path, vocab_size: int, length: int = SENTENCE_TOKENS) -> Path:
    """Write random sentences of similar length on both sides, with word frequencies as in text; return the folder."""
    rng = np.random.default_rng(1)
    for split, n_tokens in (("train", max(RANDOM_TOKENS, 2000 * length)), ("valid", 10 * length)):
        n_sources = np.clip(rng.normal(length, length / 3, n_tokens // length), 2, 250).astype(int)
        with ShardWriter(folder, split, vocab_size) as writer:
            for n_source in n_sources:
                n_target = int(np.clip(rng.normal(n_source, 2), 1, 250))
                words = [np.minimum(rng.zipf(1.3, n) + 3, vocab_size - 1).tolist() for n in (n_source, n_target)]
                writer.add(*words)
    return folder


def _any_tokenizer() -> SubwordTokenizer:
    """Return a tokenizer for a trainer, which uses it for augmentation and checkpoints only."""
    return SubwordTokenizer.learn(["a b c"], 300)
