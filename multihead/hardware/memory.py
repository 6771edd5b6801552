"""TODO."""

import ctypes
import sys

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)


def keep_freed_memory() -> None:
    """Keep freed memory for the next step instead of giving it back to the system.

    By default every large tensor is mapped anew, and each of its pages faults in: a third of a training step. Where the
    C library is not glibc there is nothing to set.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(M_MMAP_MAX, 0)
        mallopt(M_TRIM_THRESHOLD, -1)


def peak_memory_mb() -> float:
    """The most memory that this process has had; 0 where the system does not say."""
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e6 if sys.platform == "darwin" else 1e3)
