"""A process that shows that a rank is alive, even while the rank holds Python's interpreter lock.

A rank that copies from very slow storage may hold that lock for minutes, and then none of its threads can send a
heartbeat. So the rank starts this file as a process of its own, which needs no torch and takes 10 MB. It sends every
client a byte twice a second. A pipe tells it when the rank ends, however that happens; then it ends too, and its
connections close.
"""

import contextlib
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

BEAT_SECONDS = 0.5
CONNECT_SECONDS = 2.0


class Pulse:
    """The process that beats for this rank until `stop`, or until the rank ends."""

    def __init__(self, host: str) -> None:
        # In a session of its own it does not receive the signals that end or stop the group of the rank.
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__, host],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        assert self._process.stdout
        self.address = host, int(self._process.stdout.readline())

    def stop(self) -> None:
        self._process.communicate()  # closes the pipe, and waits


class PulseMonitor:
    """Hears the pulse of another rank; raises OSError if it cannot be reached."""

    def __init__(self, host: str, port: int) -> None:
        self._connection = socket.create_connection((host, port), CONNECT_SECONDS)
        self._connection.setblocking(False)
        self.has_ended = False

    def has_beaten(self) -> bool:
        """Return whether there was a beat since the last call."""
        try:
            beats = self._connection.recv(4096)
        except BlockingIOError:
            return False
        except OSError:  # the connection was reset
            beats = b""
        self.has_ended = not beats
        return bool(beats)

    def close(self) -> None:
        self._connection.close()


def own_address(other: str) -> str:
    """Return the address of this machine in the network of another one; nothing is sent."""
    family, kind, _, _, address = socket.getaddrinfo(other, 1, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


# The process


def _serve(host: str, rank: int) -> None:
    listener = socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    print(listener.getsockname()[1], flush=True)
    threading.Thread(target=_accept, args=[listener, rank], daemon=True).start()
    sys.stdin.read()  # until the rank ends


def _accept(listener: socket.socket, rank: int) -> None:
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=_beat, args=[connection, rank], daemon=True).start()


def _beat(connection: socket.socket, rank: int) -> None:
    with contextlib.suppress(OSError):  # nobody listens any longer
        while True:
            if not _is_suspended(rank):
                connection.sendall(b".")
            time.sleep(BEAT_SECONDS)


def _is_suspended(process: int) -> bool:
    """Return whether a signal or a debugger has stopped a process, as far as the system tells: Linux."""
    try:
        status = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] in ("T", "t")


if __name__ == "__main__":
    _serve(sys.argv[1], os.getppid())
