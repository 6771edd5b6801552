"""Commands with a limit on time and memory, what became of them, and the row of an area."""

import contextlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

MEMORY = 3 << 30  # bytes of address space; the libraries alone reserve 1 GB


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a command ended. A status of -9 after the time limit means that it hung."""

    status: int
    stdout: str
    stderr: str
    seconds: float
    peak: int  # bytes of resident memory

    @property
    def problem(self) -> str | None:
        """What a user must never see: a traceback, a signal, a status without a message; None for a clean ending."""
        if "Traceback" in self.stderr:
            return "traceback: " + self.stderr.rstrip().rpartition("\n")[2][:200]
        if self.status not in (0, 1, 2):
            return f"status {self.status} after {self.seconds:.1f} s: {self.stderr[-200:]}"
        if self.status and not self.stderr.strip():
            return f"status {self.status} without a message"
        return None


@dataclass(slots=True)
class Row:
    """The result of an area."""

    what: str
    cases: int = 0
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0  # of the slowest case
    peak: int = 0  # bytes, of the largest case; 0 where it was not measured

    def add(self, name: str, problem: str | None, seconds: float = 0.0, peak: int = 0) -> None:
        self.cases += 1
        self.seconds, self.peak = max(self.seconds, seconds), max(self.peak, peak)
        if problem:
            self.failures.append(f"{name}: {problem}")

    def add_outcome(self, name: str, outcome: Outcome, problem: str | None = None) -> None:
        """Add a command that must end cleanly, and whose result may have another `problem`."""
        self.add(name, outcome.problem or problem, outcome.seconds, outcome.peak)

    def cells(self) -> list[str]:
        memory = f"{self.peak / 1e6:,.0f} MB" if self.peak else ""
        return [self.what, f"{self.cases:,}", str(len(self.failures)), f"{self.seconds:.1f} s", memory]


def multihead(
    *arguments: object,
    stdin: str = "",
    timeout: float = 120.0,
    memory: int | None = MEMORY,
    file_size: int | None = None,
    cache: Path | None = None,
) -> Outcome:
    """Run a command; `memory` limits its address space and `file_size` its files, as a full disk would."""

    def limit() -> None:
        if memory:
            resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
        if file_size is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (file_size, file_size))

    environment = {**os.environ, "OMP_NUM_THREADS": "1", **({"XDG_CACHE_HOME": str(cache)} if cache else {})}
    began = time.monotonic()
    process = subprocess.Popen(
        [sys.executable, "-m", "multihead", *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        preexec_fn=limit,
        start_new_session=True,
    )
    watch = threading.Timer(timeout, _kill_group, [process.pid])
    watch.start()
    peak = _Peak(process.pid)
    stdout, stderr = process.communicate(stdin.encode("utf-8", "surrogatepass"))
    watch.cancel()
    seconds = time.monotonic() - began
    output, messages = (stream.decode("utf-8", "replace") for stream in (stdout, stderr))
    return Outcome(process.returncode, output, messages, seconds, peak.stop())


def _kill_group(pid: int) -> None:
    """Kill a process and those that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


class _Peak:
    """The largest resident memory of a process, read from /proc while it runs; 0 where there is no /proc."""

    def __init__(self, pid: int) -> None:
        self._path, self._peak = Path(f"/proc/{pid}/status"), 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended.wait(0.05):
            try:
                lines: Iterable[str] = self._path.read_text(encoding="ascii").splitlines()
            except OSError:
                return
            high = [line for line in lines if line.startswith("VmHWM")]
            self._peak = max(self._peak, 1024 * int(high[0].split()[1]) if high else 0)

    def stop(self) -> int:
        self._ended.set()
        self._thread.join()
        return self._peak
