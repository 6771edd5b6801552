"""Memory of this process: settings of the C library's allocator, and the peak."""

import sys

from multihead.system import c_library

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)


def keep_freed_memory() -> None:
    """Keep freed memory for the next step instead of giving it back to the system.

    By default glibc maps new pages for every large tensor, and the page faults take a third of a training step. With
    another C library this does nothing.
    """
    mallopt = getattr(c_library(), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)


def peak_memory_mb() -> float:
    """Return the peak memory of this process; 0 if the system does not report it."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e6 if sys.platform == "darwin" else 1e3)
