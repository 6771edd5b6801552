"""The clock of the benchmarks."""

import time
from collections.abc import Callable
from typing import TypeVar

import torch

T = TypeVar("T")


def timed(call: Callable[[], T]) -> tuple[T, float]:
    """Return the result of a call and the seconds it took, including its work on a GPU."""
    began = time.perf_counter()
    result = call()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    return result, time.perf_counter() - began
