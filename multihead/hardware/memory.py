"""Memory: what is available, the peak of this process, settings of the C library's allocator, what training needs."""

import math
import re
import sys
from pathlib import Path

from multihead.config.schema import RunConfig
from multihead.system import c_library

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of mallopt(3)

# What a step of training was measured to need in bfloat16, from `tiny` to `base` (docs/model-size.md).
PROCESS_MB = 430  # Python, torch and its kernels, the logits of a chunk
BYTES_PER_WEIGHT = 16  # the weight, its gradient and two moments, in float32
BYTES_PER_WIDTH = 57  # for each token and unit of d_model of an encoder layer, until the backward pass
DECODER_WIDTHS = 1.7  # a decoder layer has a second attention
BYTES_PER_INNER_UNIT = 4  # for each token and unit of d_ff

_PROC_MEMORY = Path("/proc/meminfo")  # Linux
_PROC_STATUS = Path("/proc/self/status")
_GROUPS = (  # of containers, in versions 2 and 1 of control groups: the limit, what is in use, statistics
    ("memory.max", "memory.current", "memory.stat"),
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
)
_GROUP_FOLDER = Path("/sys/fs/cgroup")


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
    if _PROC_STATUS.exists():  # getrusage would also count what the parent had when it started this process
        peak = re.search(
            r"^VmHWM:\s+(\d+) kB$", _PROC_STATUS.read_text(encoding="ascii", errors="replace"), re.MULTILINE
        )
        if peak:
            return int(peak[1]) * 1024 / 1e6
    try:
        import resource
    except ImportError:  # Windows
        return 0.0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most / (1e6 if sys.platform == "darwin" else 1e3)


def available_memory_mb() -> float | None:
    """Return how much memory a new process can have, within the limit of a container; None if that is not known."""
    if not _PROC_MEMORY.exists():
        return None
    text = _PROC_MEMORY.read_text(encoding="ascii")
    sizes = {name: int(size) for name, size in re.findall(r"^(\w+): +(\d+) kB$", text, re.MULTILINE)}
    if "MemAvailable" not in sizes:
        return None
    free = (sizes["MemAvailable"] + sizes.get("SwapFree", 0)) / 1e3
    return max(0.0, min(free, *map(_left_in_group, _GROUPS)))


def _left_in_group(files: tuple[str, str, str]) -> float:
    """Return how many megabytes the container of this process may still use."""
    limit, used, statistics = (_GROUP_FOLDER / name for name in files)
    if not limit.exists() or not (most := limit.read_text(encoding="ascii").strip()).isdecimal():
        return math.inf
    cache = re.search(r"^inactive_file (\d+)$", statistics.read_text(encoding="ascii"), re.MULTILINE)
    in_use = int(used.read_text(encoding="ascii")) - (int(cache[1]) if cache else 0)
    return (int(most) - in_use) / 1e6


def training_memory_mb(config: RunConfig, n_weights: int) -> float:
    """Return about how much memory a process needs that trains a model of this shape on CPUs."""
    model, data = config.model, config.data
    widths = model.d_model * (model.encoder_layers + DECODER_WIDTHS * model.decoder_layers)
    inner = model.d_ff * (model.encoder_layers + model.decoder_layers)
    per_token = BYTES_PER_WIDTH * widths + BYTES_PER_INNER_UNIT * inner
    passes = 2 if config.train.r_drop else 1
    return PROCESS_MB + (BYTES_PER_WEIGHT * n_weights + passes * data.batch_tokens * per_token) / 1e6
