"""Work that is shared out to a process for each core. What is imported here is imported by each of them: no torch."""

import contextlib
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from types import ModuleType
from typing import ParamSpec, TypeVar

from multihead.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


def n_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def map_in_processes(make: Callable[[Item], Result], items: Iterable[Item], few: int) -> Iterator[Result]:
    """`map` by a process for each core, the results in order; `few` items or less are not worth starting them."""
    iterator = iter(items)
    first = list(islice(iterator, few + 1))
    if len(first) <= few or n_cores() == 1:
        yield from map(make, chain(first, iterator))
        return
    with ProcessPoolExecutor(n_cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            yield from _map_ahead(pool, make, chain(first, iterator), 2 * n_cores())
        except BrokenProcessPool:
            raise UserError("a process that shared the work was killed: is there too little memory?") from None


def _map_ahead(
    pool: ProcessPoolExecutor, make: Callable[[Item], Result], items: Iterable[Item], n: int
) -> Iterator[Result]:
    """Results in order, `n` of them under way."""
    under_way: deque[Future[Result]] = deque()
    for item in items:
        with _without_main():
            under_way.append(pool.submit(make, item))
        if len(under_way) == n:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


@contextlib.contextmanager
def _without_main() -> Iterator[None]:
    """A process that starts in here does not import the program that asks for it: a script without a guard would start
    all over again."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


def run_in_subprocess(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Call a function in a process of its own, which inherits no memory, threads or allocator."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *args, **kwargs).result()


def map_ahead(make: Callable[[Item], Result], of: Iterable[Item], n: int) -> Iterator[Result]:
    """`map` with `n` calls under way at a time, the results in order."""
    if n == 1:
        yield from map(make, of)
        return
    with ThreadPoolExecutor(n) as pool:
        under_way: deque[Future[Result]] = deque()
        for one in of:
            under_way.append(pool.submit(make, one))
            if len(under_way) == n:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
