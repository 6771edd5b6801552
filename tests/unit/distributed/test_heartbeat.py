"""How a lost rank is noticed; tests/fault/test_ranks.py ends and stops real ones."""

import json
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import asdict, replace

import pytest
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]  # torch does not declare the export

from multihead.distributed.heartbeat import (
    HEARTBEAT_SECONDS,
    Failure,
    Heartbeat,
    ProcessLocation,
    connect,
)


@pytest.fixture
def heartbeat(monkeypatch: pytest.MonkeyPatch) -> Iterator[Heartbeat]:
    """Rank 0 of two; there is no rank 1."""
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    monkeypatch.setenv("MASTER_PORT", str(port))
    monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", "True")
    running = Heartbeat(0, 2, timeout=8.0)
    yield running
    running.stop()
    del store


def locate(rank: int, location: ProcessLocation) -> None:
    PrefixStore("heartbeat", connect(hosting=False)).set(f"location {rank}", json.dumps(asdict(location)))


def dead_process() -> ProcessLocation:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    return replace(ProcessLocation.here(), pid=process.pid)


def test_a_process_that_ended_is_gone_if_it_was_on_this_machine() -> None:
    assert not ProcessLocation.here().is_gone()
    assert dead_process().is_gone()
    assert not replace(dead_process(), machine="another").is_gone()


def test_a_rank_that_is_starting_is_not_lost(heartbeat: Heartbeat) -> None:
    assert heartbeat._check_next(1000) is None


def test_a_dead_rank_is_lost_after_two_beats(heartbeat: Heartbeat) -> None:
    location = dead_process()
    locate(1, location)
    assert heartbeat._check_next(1) is None
    failure = heartbeat._check_next(2)
    assert failure is not None
    assert failure.rank == 1
    assert f"rank 1 (process {location.pid} on {location.host}) has died" in failure.message


def test_a_silent_rank_is_lost_after_the_timeout(heartbeat: Heartbeat) -> None:
    locate(1, replace(ProcessLocation.here(), machine="another"))
    n_beats = int(8.0 / HEARTBEAT_SECONDS)
    assert heartbeat._check_next(n_beats - 1) is None
    failure = heartbeat._check_next(n_beats)
    assert failure is not None
    assert "has given no sign of life for 8 seconds" in failure.message


def test_the_first_failure_is_the_cause_of_the_others(heartbeat: Heartbeat) -> None:
    heartbeat.report_failure("disk full")
    heartbeat._publish_failure(Failure(1, "connection closed"))
    assert heartbeat._published_failure() == Failure(0, "rank 0 failed: disk full")


def test_sigterm_is_ignored_only_while_the_lost_rank_is_named(
    heartbeat: Heartbeat, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert threading.current_thread() is threading.main_thread()
    seen = []
    monkeypatch.setattr("time.sleep", lambda _: seen.append(signal.getsignal(signal.SIGTERM)))
    before = signal.getsignal(signal.SIGTERM)
    heartbeat.wait_for_failure()
    assert seen == [signal.SIG_IGN]
    assert signal.getsignal(signal.SIGTERM) == before
