"""Processes end with the driver, however that ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from multihead.bulk.reaper import WATCH_INTERVAL, no_process_left
from tests.processes import is_running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="marks processes in /proc")

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
DRIVER = f"""
import subprocess, time
from multihead.bulk.reaper import WATCH_INTERVAL, no_process_left
from tests.processes import is_running
with no_process_left():
    child = subprocess.Popen({SLEEPER!r}, start_new_session=True)
    print(child.pid, flush=True)
    time.sleep(60)
"""


# An agent of Ray changes its title, which overwrites the environment that /proc shows: no mark is left.
PARENT_OF_UNMARKED = f"""
import subprocess, time
print(subprocess.Popen({SLEEPER!r}, env={{}}, start_new_session=True).pid, flush=True)
time.sleep(60)
"""


def test_a_process_that_outlives_the_block_is_killed() -> None:
    with no_process_left():
        child = subprocess.Popen(SLEEPER, start_new_session=True)
    assert child.wait(timeout=10) == -signal.SIGKILL
    assert "MULTIHEAD_BULK_CLUSTER" not in os.environ


def test_a_process_that_lost_its_mark_is_killed_although_its_parent_has_ended() -> None:
    with no_process_left():
        with subprocess.Popen([sys.executable, "-c", PARENT_OF_UNMARKED], stdout=subprocess.PIPE, text=True) as parent:
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            time.sleep(2.5 * WATCH_INTERVAL)
            parent.kill()
        assert is_running(child)
    assert not is_running(child)


def test_a_process_that_was_there_before_is_left_alone() -> None:
    with subprocess.Popen(SLEEPER) as before:
        with no_process_left():
            time.sleep(1.5 * WATCH_INTERVAL)
        assert is_running(before.pid)
        before.kill()


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
