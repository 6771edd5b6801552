"""Detect a rank that died or hangs, name it on every machine, and end the others.

A collective waits for a lost rank without end, or fails with a closed connection that does not say whose. So a thread
of each rank counts up a number in torchrun's store and reads the number of the next rank (the last rank reads that of
rank 0): every lost rank has a living one that notices, and the load on the store grows with the number of ranks only.
That rank publishes the failure and all ranks exit. torchrun restarts them if it may, and the run continues from its
last checkpoint.

The thread is silent while its rank holds Python's interpreter lock. Then the pulse of the rank (pulse.py) shows whether
it is alive; where no connection to it is possible, only the numbers in the store count.

This detects processes that do not run, not runs that make no progress: a rank that waits for a disk is alive.
"""

import contextlib
import functools
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # torch does not declare the export

from multihead.distributed.pulse import Pulse, PulseMonitor, own_address
from multihead.system import process_exists

HEARTBEAT_SECONDS = 0.5  # between two beats
TIMEOUT_SECONDS = 60.0  # without a beat, after which a rank counts as lost, unless `train.rank_timeout` is set
ADVICE = "run the same command again to go on from the last checkpoint"


@dataclass(frozen=True, slots=True)
class ProcessLocation:
    """Where a rank runs."""

    host: str
    machine: str  # the same for processes that can see each other's pid
    pid: int
    pulse: tuple[str, int] | None = None  # host and port

    @staticmethod
    def here(pulse: Pulse | None = None) -> "ProcessLocation":
        return ProcessLocation(socket.gethostname(), _machine(), os.getpid(), pulse.address if pulse else None)

    def is_gone(self) -> bool:
        """Return whether the process is known to have ended; False if it runs on another machine."""
        return self.machine == _machine() and not process_exists(self.pid)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the run cannot continue."""

    rank: int
    message: str


class Heartbeat:
    """Sends the beats of this rank and checks those of the next one, in a thread, until `stop`."""

    def __init__(self, rank: int, world_size: int, timeout: float = TIMEOUT_SECONDS) -> None:
        self._rank, self._next, self._timeout = rank, (rank + 1) % world_size, timeout
        self._store = PrefixStore("heartbeat", connect(hosting=False))
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
        self._pulse = _start_pulse()
        self._monitor: PulseMonitor | None = None  # of the next rank
        self._store.set(f"location {rank}", json.dumps(asdict(ProcessLocation.here(self._pulse))))
        self._thread.start()

    def stop(self) -> None:
        self._stopped.set()
        self._thread.join()
        if self._monitor:
            self._monitor.close()
        if self._pulse:
            self._pulse.stop()

    def report_failure(self, message: str) -> None:
        """Publish that this rank fails, so that the others do not wait for it, and stop."""
        self._stopped.set()
        with contextlib.suppress(RuntimeError):  # the store is gone too
            self._publish_failure(Failure(self._rank, f"rank {self._rank} failed: {message}"))

    def wait_for_failure(self) -> None:
        """After a collective failed: wait until the lost rank is named, which ends this process.

        Returns if no rank was lost. torchrun sends SIGTERM to all ranks as soon as it notices that one died, which must
        not end this process before it has named it.
        """
        with _ignore_sigterm():
            time.sleep(self._timeout + 4 * HEARTBEAT_SECONDS)

    def _run(self) -> None:
        n_beats, last, n_missed, location = 0, b"", 0, None
        while not self._stopped.wait(HEARTBEAT_SECONDS):
            try:
                n_beats += 1
                self._store.set(f"beat {self._rank}", str(n_beats))
                if failure := self._published_failure():
                    self._abort(failure)
                if not location and (location := self._location(self._next)):
                    self._monitor = _connect_to_pulse(location)
                beat, has_pulse = self._read(f"beat {self._next}"), self._monitor and self._monitor.has_beaten()
                # Beats are counted, not seconds: if this process was suspended, the next one may have been too.
                n_missed = 0 if beat != last or has_pulse else n_missed + 1
                last = beat
                if lost := self._check_next(n_missed):
                    self._publish_failure(lost)
                    self._abort(lost)
            except RuntimeError as error:
                self._abort(Failure(self._rank, f"rank {self._rank} cannot reach torchrun's store: {error}"))

    def _check_next(self, n_missed: int) -> Failure | None:
        """Return a failure if the next rank has died, or has missed too many beats."""
        if n_missed < 2 or not (location := self._location(self._next)):
            return None
        name = f"rank {self._next} (process {location.pid} on {location.host})"
        if location.is_gone() or (self._monitor and self._monitor.has_ended):
            return Failure(self._next, f"{name} has died: {ADVICE}")
        if n_missed * HEARTBEAT_SECONDS < self._timeout:
            return None
        return Failure(self._next, f"{name} has given no sign of life for {self._timeout:g} seconds: {ADVICE}")

    def _location(self, rank: int) -> ProcessLocation | None:
        """Return where a rank runs; None while it is still starting."""
        found = self._read(f"location {rank}")
        return ProcessLocation(**json.loads(found)) if found else None

    def _read(self, key: str) -> bytes:
        return self._store.get(key) if self._store.check([key]) else b""

    def _publish_failure(self, failure: Failure) -> None:
        """Tell all ranks, unless a failure was published before: the first is the cause of the others."""
        if not self._store.check(["failure"]):
            self._store.set("failure", json.dumps(asdict(failure)))

    def _published_failure(self) -> Failure | None:
        published = self._read("failure")
        return Failure(**json.loads(published)) if published else None

    def _abort(self, failure: Failure) -> None:
        """Exit at once, with the failure on stderr.

        The main thread may be inside a collective that no signal or exception can interrupt. Files are replaced
        atomically, so nothing needs cleaning up.
        """
        if self._stopped.is_set():
            return
        if self._rank == 0 or failure.rank == self._next:
            print(f"multihead: {failure.message}", file=sys.stderr, flush=True)
        os._exit(1)


def _start_pulse() -> Pulse | None:
    """Return None where the system allows no process or no listener."""
    try:
        return Pulse(own_address(os.environ["MASTER_ADDR"]))
    except (OSError, ValueError):
        return None


def _connect_to_pulse(location: ProcessLocation) -> PulseMonitor | None:
    """Return None if there is no pulse, or a firewall hides it."""
    try:
        return PulseMonitor(*location.pulse) if location.pulse else None
    except OSError:
        return None


def connect(hosting: bool) -> Store:
    """Return a connection to the store of this run, which torchrun hosts, or else rank 0.

    Each user needs its own, since a connection may block. Keys carry the number of the restart: a restarted rank must
    not read the addresses of processes that have ended.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_host = hosting and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return PrefixStore(f"multihead {attempt}", TCPStore(host, port, is_master=is_host, wait_for_workers=False))


@contextlib.contextmanager
def _ignore_sigterm() -> Iterator[None]:
    """Ignore SIGTERM inside this context; only the main thread can set signal handlers."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@functools.cache
def _machine() -> str:
    """Return what identifies this boot of the kernel and this pid namespace."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return socket.gethostname()
