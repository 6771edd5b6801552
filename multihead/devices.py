"""What the machine has, and what is chosen by it."""

import time

import torch


def pick_device() -> torch.device:
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def pick_precision(choice: str, device: torch.device) -> torch.dtype:
    """bfloat16 where a GPU has it; on CPUs it would be slower, not faster."""
    if choice == "auto":
        fits = device.type == "cuda" and torch.cuda.is_bf16_supported()
        return torch.bfloat16 if fits else torch.float32
    return torch.bfloat16 if choice == "bfloat16" else torch.float32


def matmul_flops(device: torch.device, size: int = 2048, seconds: float = 0.5) -> float:
    """Floating-point operations a second in a large float32 product: the capacity that §6.1 counts training cost by."""
    one, other = (torch.randn(size, size, device=device) for _ in range(2))
    best, end = 0.0, time.perf_counter() + seconds
    while time.perf_counter() < end:
        began = time.perf_counter()
        _ = float((one @ other)[0, 0])  # reading a number waits for the product, on GPUs too
        best = max(best, 2 * size**3 / (time.perf_counter() - began))
    return best
