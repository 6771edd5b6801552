"""Whether other programs use this machine, which slows down training and spoils measurements."""

import os
import time
from pathlib import Path

from multihead.concurrency import n_cores

SECONDS = 0.3  # of the measurement
MIN_BUSY_SHARE = 0.25  # of the cores, from which the machine counts as busy

_STAT = Path("/proc/stat")  # Linux


def busy_warning() -> str | None:
    """Return a sentence if other programs use much of this machine; takes SECONDS, in which this process sleeps."""
    cores, busy = n_cores(), busy_cores()
    if busy < MIN_BUSY_SHARE * cores:
        return None
    return (
        f"Other programs keep {busy:.1f} of {cores} cores busy: this will be slower than on an idle machine, "
        "and measured speeds will be too low."
    )


def busy_cores() -> float:
    """Return how many of the cores that this process may use are busy while it sleeps; elsewhere the system load."""
    if not _STAT.exists():
        return os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    before = _times()
    time.sleep(SECONDS)
    after = _times()
    shares = []
    for core, (idle, total) in after.items():
        if core in before and total > before[core][1]:
            shares.append(1 - (idle - before[core][0]) / (total - before[core][1]))
    return max(0.0, sum(shares))


def _times() -> dict[int, tuple[int, int]]:
    """Return idle and total time of each core that this process may use, in ticks."""
    allowed = os.sched_getaffinity(0)
    times = {}
    for line in _STAT.read_text(encoding="ascii").splitlines():
        name, *ticks = line.split()
        if name.startswith("cpu") and name != "cpu" and (core := int(name[3:])) in allowed:
            numbers = [int(tick) for tick in ticks[:8]]  # user, nice, system, idle, iowait, irq, softirq, steal
            times[core] = numbers[3] + numbers[4], sum(numbers)
    return times
