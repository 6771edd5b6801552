"""The process that shows whether a rank is alive."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from multihead.distributed.pulse import BEAT_SECONDS, Pulse, PulseMonitor, own_address

# A rank that holds Python's interpreter lock as soon as it is told to.
RANK = """
import ctypes, sys
from multihead.distributed.pulse import Pulse
print(*Pulse("127.0.0.1").address, flush=True)
sys.stdin.readline()
ctypes.PyDLL(None).sleep(600)
"""


@dataclass(frozen=True, slots=True)
class Rank:
    process: subprocess.Popen[str]
    monitor: PulseMonitor

    def tell(self) -> None:
        assert self.process.stdin
        self.process.stdin.write("\n")
        self.process.stdin.flush()


@pytest.fixture
def rank() -> Iterator[Rank]:
    with subprocess.Popen(
        [sys.executable, "-c", RANK], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout
        host, port = process.stdout.readline().split()
        monitor = PulseMonitor(host, int(port))
        yield Rank(process, monitor)
        monitor.close()
        process.kill()


def wait_until(is_true: Callable[[], bool]) -> None:
    end = time.monotonic() + 30
    while not is_true():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_a_rank_that_holds_the_interpreter_lock_has_a_pulse(rank: Rank) -> None:
    rank.tell()
    for _ in range(3):
        wait_until(rank.monitor.has_beaten)
    assert not rank.monitor.has_ended


def test_the_pulse_of_a_killed_rank_ends(rank: Rank) -> None:
    wait_until(rank.monitor.has_beaten)
    rank.process.kill()
    wait_until(lambda: not rank.monitor.has_beaten() and rank.monitor.has_ended)


@pytest.mark.skipif(sys.platform != "linux", reason="only there a process can see that another one is suspended")
def test_a_suspended_rank_has_no_pulse(rank: Rank) -> None:
    os.kill(rank.process.pid, signal.SIGSTOP)
    time.sleep(3 * BEAT_SECONDS)
    rank.monitor.has_beaten()
    time.sleep(3 * BEAT_SECONDS)
    assert not rank.monitor.has_beaten()
    assert not rank.monitor.has_ended
    os.kill(rank.process.pid, signal.SIGCONT)
    wait_until(rank.monitor.has_beaten)


def test_a_pulse_can_be_stopped() -> None:
    pulse = Pulse(own_address("localhost"))
    monitor = PulseMonitor(*pulse.address)
    wait_until(monitor.has_beaten)
    pulse.stop()
    wait_until(lambda: not monitor.has_beaten() and monitor.has_ended)
    monitor.close()
