"""The device and precision to compute with, its measured speed, and threads pinned to cores."""

import contextlib
import ctypes
import os
import time
from collections.abc import Iterator

import torch

from multihead.system import c_library


def pick_device() -> torch.device:
    """Return the GPU if there is one, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pick_precision(choice: str, device: torch.device) -> torch.dtype:
    """Return the precision of large products; `auto` is bfloat16 if the hardware multiplies it, else float32.

    With hardware support bfloat16 is at least twice as fast, without it far slower.
    """
    use_bfloat16 = has_bfloat16(device) if choice == "auto" else choice == "bfloat16"
    return torch.bfloat16 if use_bfloat16 else torch.float32


def autocast(device: torch.device, precision: torch.dtype) -> contextlib.AbstractContextManager[None]:
    """Return a context in which matrix products are in this precision."""
    return contextlib.nullcontext() if precision == torch.float32 else torch.autocast(device.type, precision)


def validation_precision(device: torch.device, precision: torch.dtype) -> torch.dtype:
    """Return the precision to validate in: that of training on a GPU, float32 on a CPU."""
    return torch.float32 if device.type == "cpu" else precision


def use_tensor_cores(device: torch.device) -> None:
    """Let float32 products of a GPU round their inputs to TF32, which is several times as fast."""
    if device.type == "cuda":
        torch.set_float32_matmul_precision("high")


def precision_name(precision: torch.dtype) -> str:
    """Return the name of a precision in settings, such as bfloat16."""
    return str(precision).removeprefix("torch.")


def has_bfloat16(device: torch.device) -> bool:
    """Return whether the hardware multiplies matrices in bfloat16."""
    if device.type == "cuda":
        return bool(torch.cuda.is_bf16_supported(including_emulation=False))
    # Older versions of torch than our constraints lack get_capabilities; they compute in float32.
    abilities: dict[str, object] = getattr(torch.cpu, "get_capabilities", dict)()
    return any(abilities.get(name) is True for name in ("avx512_bf16", "amx_bf16"))


def matmul_flops(
    device: torch.device, precision: torch.dtype = torch.float32, size: int | None = None, seconds: float = 0.5
) -> float:
    """Measure the floating-point operations per second of a large matrix product (§6.1 counts cost with float32).

    On a GPU a product must be larger, or its latency is measured.
    """
    size = size or (2048 if device.type == "cpu" else 8192)
    left, right = (torch.randn(size, size, device=device).to(precision) for _ in range(2))
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        _ = float((left @ right)[0, 0])  # reading a number waits for the product, also on GPUs
        best = max(best, 2 * size**3 / (time.perf_counter() - start))
    return best


@contextlib.contextmanager
def pinned_threads(device: torch.device) -> Iterator[None]:
    """Pin each of torch's threads to a separate core inside this context.

    The threads of a step wait for each other thousands of times. When another process needs a core, the scheduler keeps
    moving them around it, and a step takes about three times as long; pinned, only the thread on that core is slowed
    down, and a step takes about twice as long (benchmarks/busy_core.py). On an idle machine it makes no difference.
    Threads are pinned only if torch uses every core of this process: otherwise the scheduler can find a free one.
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    library = c_library() if cores else None  # sched_getaffinity exists on Linux
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
