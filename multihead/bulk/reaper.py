"""End the processes of a Ray cluster when its driver has ended, however that ended.

Ray ends most of them itself, but two of its agents stay for a minute after a driver that was killed. All processes
inherit a mark in their environment, and a process that waits for the end of the driver kills those that have it. The
agents change their title, which overwrites their environment, so it also remembers the descendants of the others.
"""

import contextlib
import os
import secrets
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

MARK = "MULTIHEAD_BULK_CLUSTER"
SECONDS, INTERVAL = 30.0, 0.2  # a process that starts while others are killed is found as well
WATCH_INTERVAL = 1.0  # between two looks at the processes of the cluster

Process = tuple[int, str]  # id and time of start: an id may be given to another process


@contextlib.contextmanager
def no_process_left() -> Iterator[None]:
    """Kill the processes that are started inside and outlive this block, or this process; on Linux only."""
    if sys.platform != "linux":
        yield
        return
    mark = secrets.token_hex(16)
    # It has a session of its own, so that Ctrl-C does not end it. It reads until this process closes the pipe, or ends.
    with subprocess.Popen(
        [sys.executable, "-I", __file__, mark], stdin=subprocess.PIPE, start_new_session=True, env={}
    ) as reaper:
        os.environ[MARK] = mark
        try:
            yield
        finally:
            del os.environ[MARK]
            assert reaper.stdin is not None
            reaper.stdin.close()
            reaper.wait()


def cluster_until_closed(stream: IO[bytes], mark: str) -> set[Process]:
    """Wait until the stream is closed, and return the processes of the cluster that were seen and may still run."""
    seen: set[Process] = set()
    while not select.select([stream], [], [], WATCH_INTERVAL)[0]:
        parents = _parents()
        seen = (seen & parents.keys()) | _family(mark, parents)
    return seen


def kill_cluster(mark: str, seen: set[Process]) -> None:
    """Kill the processes that were seen, and any others with this mark, until there are none."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        parents = _parents()
        if not (found := (seen & parents.keys()) | _family(mark, parents)):
            return
        for process, _ in found:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(INTERVAL)


def _parents() -> dict[Process, int]:
    """Return the parent of each running process; zombies are left out."""
    parents = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            if fields[0] != "Z":
                parents[int(stat.parent.name), fields[19]] = int(fields[1])
    return parents


def _family(mark: str, parents: dict[Process, int]) -> set[Process]:
    """Return the processes with this mark, and their descendants."""
    family: set[Process] = set()
    more = {process for process in parents if _has_mark(process[0], mark)}
    while more:
        family |= more
        ids = {process for process, _ in more}
        more = {process for process, parent in parents.items() if parent in ids} - family
    return family


def _has_mark(process: int, mark: str) -> bool:
    with contextlib.suppress(OSError):
        return f"{MARK}={mark}".encode() in Path(f"/proc/{process}/environ").read_bytes().split(b"\0")
    return False


if __name__ == "__main__":
    kill_cluster(sys.argv[1], cluster_until_closed(sys.stdin.buffer, sys.argv[1]))
