"""Measure training speed on an idle machine and next to a busy core, with and without pinned threads.

python -m benchmarks.busy_core            # about three minutes, on an otherwise idle machine
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from multihead.bench.training import random_corpus
from multihead.concurrency import run_in_subprocess
from multihead.config.presets import preset
from multihead.config.resolve import configure
from multihead.console import make_table
from multihead.hardware.memory import keep_freed_memory
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training import trainer as trainer_module
from multihead.training.trainer import Trainer

SECONDS = 8.0
ROUNDS = 3
VOCAB_SIZE = 8000


def speed(name: str, data: Path, is_pinned: bool) -> float:
    """Return the target tokens per second of a preset; runs in a separate process."""
    if not is_pinned:
        vars(trainer_module)["pinned_threads"] = lambda device: contextlib.nullcontext()
    config = configure(preset(name), {"model.vocab_size": VOCAB_SIZE})
    keep_freed_memory()
    training = Trainer(config, data, SubwordTokenizer.learn(["a b c"], 300))
    for _ in range(3):
        training.step()
    began, seen = time.perf_counter(), training.state.tokens_seen
    while time.perf_counter() - began < SECONDS:
        training.step()
    return (training.state.tokens_seen - seen) / (time.perf_counter() - began)


@contextlib.contextmanager
def a_busy_core(is_busy: bool) -> Iterator[None]:
    if not is_busy:
        yield
        return
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as other:
        try:
            yield
        finally:
            other.terminate()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        data = random_corpus(Path(folder), VOCAB_SIZE, length=20)
        found = []
        for name in ("tiny", "small"):
            for is_pinned in (False, True):
                row: dict[str, object] = {"preset": name, "threads": "pinned" if is_pinned else "free"}
                for is_busy in (False, True):
                    with a_busy_core(is_busy):
                        speeds = sorted(run_in_subprocess(speed, name, data, is_pinned) for _ in range(ROUNDS))
                    row["one core taken" if is_busy else "idle"] = round(speeds[ROUNDS // 2])
                found.append(row)
        print(make_table(found).as_text())


if __name__ == "__main__":
    main()
