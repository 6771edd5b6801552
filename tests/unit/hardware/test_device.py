"""How torch's threads are placed on cores while a model trains."""

import ctypes
import os

import pytest
import torch

from multihead.concurrency import run_in_subprocess
from multihead.hardware.device import pinned_threads

has_openmp = hasattr(os, "sched_getaffinity") and hasattr(ctypes.CDLL(None), "GOMP_parallel")
pytestmark = pytest.mark.skipif(not has_openmp, reason="threads are pinned where Linux and GNU OpenMP are")
CPU = torch.device("cpu")


def cores_of_threads(n_threads: int) -> dict[int, set[int]]:
    """The cores that each of torch's threads may use, by its number."""
    library, found = ctypes.CDLL(None), {}

    def look(_: object) -> None:
        found[library.omp_get_thread_num()] = os.sched_getaffinity(0)

    library.GOMP_parallel(ctypes.CFUNCTYPE(None, ctypes.c_void_p)(look), None, n_threads, 0)
    return found


def pinned(n_threads: int) -> tuple[dict[int, set[int]], set[int]]:
    """The cores inside of the context, and those of the main thread after it."""
    torch.set_num_threads(n_threads)
    with pinned_threads(CPU):
        inside = cores_of_threads(n_threads)
    return inside, os.sched_getaffinity(0)


def test_each_thread_has_a_core_of_its_own_and_the_main_thread_is_free_afterwards() -> None:
    cores = os.sched_getaffinity(0)
    if len(cores) < 2:
        pytest.skip("one core: there is nothing to pin")
    inside, after = run_in_subprocess(pinned, len(cores))
    assert sorted(core for mask in inside.values() for core in mask) == sorted(cores)
    assert after == cores


def test_fewer_threads_than_cores_are_left_to_the_scheduler() -> None:
    inside, after = run_in_subprocess(pinned, 1)
    assert inside == {0: os.sched_getaffinity(0)}
    assert after == os.sched_getaffinity(0)
