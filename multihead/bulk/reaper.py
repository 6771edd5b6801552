"""End the processes of a Ray cluster when its driver has ended, however that ended.

Ray ends most of them itself, but some of its agents stay for many seconds after a driver that was killed. All of them
inherit a mark in their environment, and a process that waits for the end of the driver kills those that have it.
"""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

MARK = "MULTIHEAD_BULK_CLUSTER"
SECONDS, INTERVAL = 30.0, 0.2  # a process that starts while others are killed is found as well


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


def kill_marked(mark: str) -> None:
    """Kill the processes with this mark until there are none."""
    end = time.monotonic() + SECONDS
    while (found := _marked(mark)) and time.monotonic() < end:
        for process in found:
            with contextlib.suppress(OSError):
                os.kill(process, signal.SIGKILL)
        time.sleep(INTERVAL)


def _marked(mark: str) -> list[int]:
    """Return the processes that inherited the mark; one that has ended has no environment."""
    needle = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if needle in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


if __name__ == "__main__":
    sys.stdin.buffer.read()
    kill_marked(sys.argv[1])
