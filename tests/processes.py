"""Processes that tests look for in /proc."""

from pathlib import Path


def is_running(process: int) -> bool:
    """Return whether a process exists and is not a zombie."""
    try:
        return "State:\tZ" not in Path(f"/proc/{process}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return False
