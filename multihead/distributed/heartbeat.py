"""Who has died or hangs: every rank gives signs of life, and listens to those of the next one.

A collective waits for a lost rank without end, or says that a connection was closed, not whose. So each rank has a
thread that counts up a number in torchrun's store, and reads that of its neighbour, the last rank that of the first:
whoever is lost has a living rank before it, and the store has little to do however many there are. What the neighbour
finds is told to all, and all of them leave; torchrun starts them again if it may, and the run goes on from its last
checkpoint.

It is the process that is watched, not its progress: a rank that waits for a disk without end is alive.
"""

import contextlib
import functools
import json
import os
import signal
import socket
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

from torch.distributed import PrefixStore, Store, TCPStore  # type: ignore[attr-defined]  # torch does not declare the export

from multihead.console import say

HEARTBEAT_SECONDS = 0.5  # seconds between two signs of life
TIMEOUT_SECONDS = 8.0  # seconds after which a rank that gives none is given up
ADVICE = "run the same command again to go on from the last checkpoint"


@dataclass(frozen=True, slots=True)
class ProcessLocation:
    """Where a rank runs."""

    host: str
    machine: str  # what processes have in common that can see each other by their numbers
    process: int

    @staticmethod
    def here() -> "ProcessLocation":
        return ProcessLocation(socket.gethostname(), _machine(), os.getpid())

    def is_gone(self) -> bool:
        """True if it is here, and there is no such process any more."""
        if self.machine != _machine():
            return False
        try:
            os.kill(self.process, 0)
        except ProcessLookupError:
            return True
        return False

    def end(self) -> None:
        """End a process that hangs, if it is here: torchrun would ask it to leave, and wait half a minute."""
        if self.machine == _machine():
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(self.process, signal.SIGKILL)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why the run cannot go on."""

    rank: int
    words: str
    place: ProcessLocation | None = None  # of a rank that gives no sign of life


class Heartbeat:
    """The signs of life of this rank, and those of the next one; over when `stop` is called."""

    def __init__(self, rank: int, world_size: int) -> None:
        self._rank, self._next = rank, (rank + 1) % world_size
        self._store = PrefixStore("heartbeat", connect(hosting=False))
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="heartbeat", daemon=True)
        self._store.set(f"place {rank}", json.dumps(asdict(ProcessLocation.here())))
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def report_failure(self, words: str) -> None:
        """This rank fails, for this reason: the others shall not wait for it."""
        self._over.set()
        with contextlib.suppress(RuntimeError):  # nobody can be told any more
            self._publish_failure(Failure(self._rank, f"rank {self._rank} failed: {words}"))

    def wait_for_failure(self) -> None:
        """Somebody was lost: wait until it is known who, which ends this process; come back if nobody was.

        torchrun asks everybody to leave as soon as it sees that one has died; but first it is said who.
        """
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        time.sleep(TIMEOUT_SECONDS + 4 * HEARTBEAT_SECONDS)

    def _listen(self) -> None:
        n_beats, heard, unheard = 0, b"", 0
        while not self._over.wait(HEARTBEAT_SECONDS):
            try:
                n_beats += 1
                self._store.set(f"alive {self._rank}", str(n_beats))
                if failure := self._published_failure():
                    self._abort(failure)
                now = self._read(f"alive {self._next}")
                # Beats are counted, not seconds: if this process did not run for a while, maybe its neighbour did not.
                unheard = unheard + 1 if now == heard else 0
                heard = now
                if lost := self._lost(unheard):
                    self._abort(self._publish_failure(lost))
            except RuntimeError as error:
                self._abort(Failure(self._rank, f"rank {self._rank} cannot reach torchrun's store: {error}"))

    def _lost(self, unheard: int) -> Failure | None:
        """What has become of the neighbour, if it has not been heard for so many beats."""
        if unheard < 2 or not (place := self._place_of(self._next)):
            return None
        who = f"rank {self._next} (process {place.process} on {place.host})"
        if place.is_gone():
            return Failure(self._next, f"{who} has died: {ADVICE}", place)
        if unheard * HEARTBEAT_SECONDS < TIMEOUT_SECONDS:
            return None
        return Failure(self._next, f"{who} has given no sign of life for {TIMEOUT_SECONDS:g} seconds: {ADVICE}", place)

    def _place_of(self, rank: int) -> ProcessLocation | None:
        found = self._read(f"place {rank}")
        return ProcessLocation(**json.loads(found)) if found else None  # it has not come this far

    def _read(self, key: str) -> bytes:
        return self._store.get(key) if self._store.check([key]) else b""

    def _publish_failure(self, failure: Failure) -> Failure:
        """Tell everybody, unless something was told before: what comes first is the cause of the rest."""
        if not self._store.check(["verdict"]):
            self._store.set("verdict", json.dumps(asdict(failure)))
        return failure

    def _published_failure(self) -> Failure | None:
        if not (told := self._read("verdict")):
            return None
        fields = json.loads(told)
        place = ProcessLocation(**fields["place"]) if fields["place"] else None
        return Failure(fields["rank"], fields["words"], place)

    def _abort(self, failure: Failure) -> None:
        """End this process at once: its main thread waits in a collective that nothing else can end.

        All that is on the disk is whole at any moment, so there is nothing to tidy up.
        """
        if self._over.is_set():
            return
        if self._rank == 0 or failure.rank == self._next:
            say(f"multihead: {failure.words}")
        if failure.place:
            failure.place.end()
        os._exit(1)


def connect(hosting: bool) -> Store:
    """A connection to the store of this run, which torchrun hosts, or else the first rank.

    Everybody needs several: one may be busy with waiting. Each time that torchrun starts the processes again they find
    the store empty, or they would take the addresses of those that have died for their own.
    """
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    is_host = hosting and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    return PrefixStore(f"multihead {attempt}", TCPStore(host, port, is_master=is_host, wait_for_workers=False))


@functools.cache
def _machine() -> str:
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    except OSError:  # not Linux
        return socket.gethostname()
