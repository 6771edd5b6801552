"""`multihead prepare` on ten million pairs: memory stays where it is, and every pair is there."""

import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from multihead.data.shards import Shards, read_summary

MOST_MB = 2000


def write_synthetic(folder: Path, n_pairs: int) -> tuple[Path, Path]:
    """Sentences of random words, frequent ones frequent, as long as those of news; a number makes each its own."""
    rng = np.random.default_rng(1)
    letters = list("abcdefghijklmnopqrstuvwxyz")
    words = np.array(["".join(rng.choice(letters, rng.integers(2, 10))) for _ in range(30_000)])
    files = folder / "large.en", folder / "large.de"
    for file in files:
        drawn = [words[np.minimum(rng.zipf(1.2, length), 29_999)] for length in rng.integers(5, 30, 20_000)]
        sentences = [" ".join(one) for one in drawn]
        with file.open("w", encoding="utf-8") as out:
            out.writelines(f"{at} {sentences[at % 20_000]}\n" for at in range(n_pairs))
    return files


@pytest.mark.slow
def test_ten_million_pairs_are_prepared_in_less_than_two_gigabytes(tmp_path: Path) -> None:
    n_pairs = 10_000_000
    source, target = write_synthetic(tmp_path, n_pairs)
    command = [sys.executable, "-m", "multihead", "prepare", f"--source={source}", f"--target={target}"]
    command += [f"--output={tmp_path / 'data'}", "--set=data.max_ratio=10", "--vocab-size=8000"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    peak = 0.0
    while process.poll() is None:
        peak = max(peak, sum(map(resident_mb, [process.pid, *children_of(process.pid)])))
        time.sleep(0.2)
    assert process.stderr
    assert process.returncode == 0, process.stderr.read()
    summary = read_summary(tmp_path / "data")
    print(f"{n_pairs:,} pairs, {peak:,.0f} MB at most, all processes together")
    assert peak < MOST_MB
    assert summary.cleaning["read"] == n_pairs
    assert len(Shards(tmp_path / "data", "train")) == summary.train_pairs
    assert summary.train_pairs + summary.valid_pairs == summary.cleaning["kept"] > 0.9 * n_pairs
    assert resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1e3 < MOST_MB


def children_of(process: int) -> list[int]:
    try:
        return [
            int(child)
            for children in Path(f"/proc/{process}/task").glob("*/children")
            for child in children.read_text(encoding="ascii").split()
        ]
    except OSError:
        return []


def resident_mb(process: int) -> float:
    """Memory of its own, without files that are mapped."""
    try:
        status = Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return 0.0
    return sum(int(line.split()[1]) for line in status.splitlines() if line.startswith("RssAnon")) / 1e3
