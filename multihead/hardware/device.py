"""What the machine has, what is chosen by it, and how it is measured."""

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator

import torch


def pick_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pick_precision(choice: str, device: torch.device) -> torch.dtype:
    """bfloat16 where the hardware multiplies it, at least twice as fast; where it does not, it is far slower."""
    is_wanted = has_bfloat16(device) if choice == "auto" else choice == "bfloat16"
    return torch.bfloat16 if is_wanted else torch.float32


def precision_name(precision: torch.dtype) -> str:
    """As settings call it: bfloat16."""
    return str(precision).removeprefix("torch.")


def has_bfloat16(device: torch.device) -> bool:
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # Older versions of torch do not say what a CPU can do.
    abilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(abilities.get(name) is True for name in ("avx512_bf16", "amx_bf16"))


def matmul_flops(
    device: torch.device, precision: torch.dtype = torch.float32, size: int = 2048, seconds: float = 0.5
) -> float:
    """Floating-point operations a second in a large product; in float32 the capacity that §6.1 counts cost by."""
    one, other = (torch.randn(size, size, device=device).to(precision) for _ in range(2))
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        _ = float((one @ other)[0, 0])  # reading a number waits for the product, on GPUs too
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best


@contextlib.contextmanager
def pinned_threads(device: torch.device) -> Iterator[None]:
    """Pin each of torch's threads to a separate core inside this context.

    The threads of a step wait for each other thousands of times. When another process needs a core, the scheduler keeps
    moving them around it, and a step takes about three times as long; pinned, only the thread on that core is slowed
    down, and a step takes about twice as long.
    benchmarks/busy_core.py measures it. On an idle machine it makes no difference. Only if torch uses every core that
    this process may use: otherwise the scheduler can find a free one.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    library = ctypes.CDLL(None) if cores else None  # sched_getaffinity exists on Linux
    parallel, number = getattr(library, "GOMP_parallel", None), getattr(library, "omp_get_thread_num", None)
    n_threads = torch.get_num_threads()
    if device.type != "cpu" or n_threads < 2 or n_threads != len(cores) or not parallel or not number:
        yield
        return

    def pin(_: object) -> None:
        os.sched_setaffinity(0, {cores[number() % n_threads]})  # 0 is the calling thread

    parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(pin), None, n_threads, 0)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)  # threads and processes started from here inherit the cores of this thread
