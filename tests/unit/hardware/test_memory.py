"""Memory does not grow over 200 batches. Each case has a process of its own, since a peak never falls."""

import random
import sys
from pathlib import Path

import pytest

from multihead.bench.training import random_corpus
from multihead.concurrency import run_in_subprocess
from multihead.config.resolve import configure
from multihead.config.schema import SearchConfig
from multihead.hardware.memory import keep_freed_memory, peak_memory_mb
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.trainer import Trainer
from multihead.translation.engines.torch_engine import TorchEngine
from tests.conftest import QUICK, segments_of
from tests.unit.translation.test_search import make

WARM_UP = 150  # batches until every thread has allocated what it keeps
ROOM_MB = 8  # what the allocator and the profilers of tests may still add

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows does not say how much memory was used")


def grown_peak(n_bytes: int) -> tuple[float, float]:
    """The peaks of a process that had this much memory for a while, and of a new process that it starts."""
    bytearray(b"x") * n_bytes
    return peak_memory_mb(), run_in_subprocess(peak_memory_mb)


@pytest.mark.skipif(sys.platform != "linux", reason="reads the peak from /proc")
def test_the_peak_of_a_process_is_its_own_and_not_that_of_its_parent() -> None:
    parent, child = run_in_subprocess(grown_peak, 2_000_000_000)
    assert child < 1000 < parent


def train_200_steps(folder: Path) -> tuple[float, float]:
    config = configure(QUICK, {"model.vocab_size": 4000, "data.batch_tokens": 500})
    keep_freed_memory()
    trainer = Trainer(config, random_corpus(folder, 4000, length=20), SubwordTokenizer.learn(["a b c"], 300))
    peaks = []
    for step in range(1, WARM_UP + 201):
        trainer.step()
        if step in (WARM_UP, WARM_UP + 200):
            peaks.append(peak_memory_mb())
    return peaks[0], peaks[1]


def translate_200_batches() -> tuple[float, float]:
    keep_freed_memory()
    engine, rng, peaks = TorchEngine([make()]), random.Random(1), []
    for batch in range(1, WARM_UP + 201):
        lengths = [rng.randint(1, 12) for _ in range(rng.randint(1, 20))]
        engine.search(
            segments_of([[rng.randrange(4, 31) for _ in range(length)] for length in lengths]),
            SearchConfig(max_extra=8),
        )
        if batch in (WARM_UP, WARM_UP + 200):
            peaks.append(peak_memory_mb())
    return peaks[0], peaks[1]


@pytest.mark.long
def test_training_needs_no_more_memory_after_200_batches(tmp_path: Path) -> None:
    early, late = run_in_subprocess(train_200_steps, tmp_path)
    assert late < early + ROOM_MB


@pytest.mark.long
def test_translating_needs_no_more_memory_after_200_batches() -> None:
    early, late = run_in_subprocess(translate_200_batches)
    assert late < early + ROOM_MB
