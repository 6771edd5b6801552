"""Processes end with the driver, however that ends."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from multihead.bulk.reaper import no_process_left

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="marks processes in /proc")

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
DRIVER = f"""
import subprocess, time
from multihead.bulk.reaper import no_process_left
with no_process_left():
    child = subprocess.Popen({SLEEPER!r}, start_new_session=True)
    print(child.pid, flush=True)
    time.sleep(60)
"""


def is_running(process: int) -> bool:
    """Return whether a process exists and is no zombie, which nobody may wait for here."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text(encoding="ascii")
    except OSError:
        return False


def test_a_process_that_outlives_the_block_is_killed() -> None:
    with no_process_left():
        child = subprocess.Popen(SLEEPER, start_new_session=True)
    assert child.wait(timeout=10) == -signal.SIGKILL
    assert "MULTIHEAD_BULK_CLUSTER" not in os.environ


def test_a_killed_driver_leaves_no_process() -> None:
    with subprocess.Popen([sys.executable, "-c", DRIVER], stdout=subprocess.PIPE, text=True) as driver:
        assert driver.stdout is not None
        child = int(driver.stdout.readline())
        assert is_running(child)
        driver.kill()
    end = time.monotonic() + 20
    while is_running(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_running(child)
