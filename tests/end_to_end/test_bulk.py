"""`multihead bulk` on a Ray cluster of this machine: what it writes is what `multihead translate` says."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow.parquet
import pytest

import multihead
from tests.conftest import copy_or_reverse
from tests.processes import is_running

pytestmark = [
    pytest.mark.slow,  # a cluster takes some seconds to start
    pytest.mark.skipif(sys.platform != "linux", reason="finds the processes of Ray in /proc"),
]


def start(model: Path, source: Path, output: Path, *more: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "multihead", "bulk", str(model), str(source), f"--output={output}", "--beam=1"]
    return subprocess.Popen([*command, "--workers=2", *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def run(model: Path, source: Path, output: Path) -> str:
    process = start(model, source, output)
    out, err = process.communicate(timeout=300)
    assert (process.returncode, out) == (0, ""), err
    return err


def sentences(n_rows: int) -> list[str]:
    return [source for source, _ in copy_or_reverse(n_rows, seed=5)]


def answers(output: Path) -> list[tuple[int, str]]:
    tables = [pyarrow.parquet.read_table(file).to_pydict() for file in sorted(output.glob("part-*.parquet"))]
    return [row for table in tables for row in zip(table["id"], table["translation"], strict=True)]


def serial(model: Path, lines: list[str]) -> list[tuple[int, str]]:
    return list(enumerate(one.text for one in multihead.load(model).translate(lines, beam=1)))


def test_text_becomes_parquet_in_order_and_finished_work_is_not_done_again(trained: Path, tmp_path: Path) -> None:
    lines = sentences(1200)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    run(trained, tmp_path / "text", tmp_path / "out")
    assert answers(tmp_path / "out") == serial(trained, lines)
    files = {file: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("part-*")}
    assert len(files) == 3
    assert "1,200 rows done" in run(trained, tmp_path / "text", tmp_path / "out")
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "out").glob("part-*")} == files
    (tmp_path / "out" / "part-000001.parquet").write_bytes(b"")
    assert "1 of 3 parts are damaged" in run(trained, tmp_path / "text", tmp_path / "out")
    assert answers(tmp_path / "out") == serial(trained, lines)


def descendants(process: int) -> list[int]:
    found = []
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in map(int, children.read_text(encoding="ascii").split()):
            found += [child, *descendants(child)]
    return found


def workers_of(driver: int) -> list[int]:
    """Processes of the cluster that translate."""
    found = []
    for process in descendants(driver):
        try:
            name = Path(f"/proc/{process}/cmdline").read_bytes().decode()
        except OSError:
            continue
        if name.startswith("ray::") and "Map" in name:
            found.append(process)
    return found


def still_running(processes: list[int], seconds: float) -> list[int]:
    """Those processes that have not ended after some seconds."""
    end = time.monotonic() + seconds
    while (left := [one for one in processes if is_running(one)]) and time.monotonic() < end:
        time.sleep(0.1)
    return left


def test_workers_and_drivers_that_are_killed_lose_and_double_nothing(trained: Path, tmp_path: Path) -> None:
    lines, rng = sentences(20_000), random.Random(3)
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    output = tmp_path / "out"
    kills = 0
    for _ in range(3):  # drivers
        driver = start(trained, tmp_path / "text", output)
        n_before = len(list(output.glob("part-*")))
        while driver.poll() is None and len(list(output.glob("part-*"))) < n_before + 8:
            time.sleep(rng.uniform(0.5, 2.0))
            for worker in workers_of(driver.pid)[:1]:
                os.kill(worker, signal.SIGKILL)
                kills += 1
                time.sleep(6)  # to start another one
        started = descendants(driver.pid)
        driver.kill()
        driver.communicate()
        assert not still_running(started, seconds=20)
    assert kills >= 3
    run(trained, tmp_path / "text", output)
    assert answers(output) == serial(trained, lines)
