"""Ordered maps over threads and processes, and calls in a process of their own.

Worker processes import this module and the mapped function, so neither may import torch.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from itertools import chain, islice
from typing import ParamSpec, TypeVar

from multihead.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")
Parameters = ParamSpec("Parameters")


def n_cores() -> int:
    """Return the number of CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def n_threads() -> int:
    """Return how many threads to compute with: OMP_NUM_THREADS, or else the number of cores."""
    number = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    return int(number) if number.isdecimal() and int(number) else n_cores()


def map_in_processes(function: Callable[[Item], Result], items: Iterable[Item], min_items: int = 2) -> Iterator[Result]:
    """Yield `function(item)` in the order of the items, computed by a process for each core.

    Fewer than `min_items` are not worth starting processes for; they are mapped in this one.
    """
    iterator = iter(items)
    first = list(islice(iterator, min_items))
    items = chain(first, iterator)
    if len(first) < min_items or n_cores() == 1:
        yield from map(function, items)
        return
    from concurrent.futures.process import BrokenProcessPool, ProcessPoolExecutor

    from multihead.spawning import WorkerContext, use_one_core

    with ProcessPoolExecutor(n_cores(), mp_context=WorkerContext(), initializer=use_one_core) as pool:
        try:
            yield from _map_ahead(pool, function, items, 2 * n_cores())
        except BrokenProcessPool:
            raise UserError("a worker process was killed, possibly because memory ran out") from None


def map_in_threads(function: Callable[[Item], Result], items: Iterable[Item], n_threads: int) -> Iterator[Result]:
    """Yield `function(item)` in the order of the items, with up to `n_threads` calls under way."""
    if n_threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield from _map_ahead(pool, function, items, n_threads)


def map_ahead(function: Callable[[Item], Result], items: Iterable[Item]) -> Iterator[Result]:
    """Yield `function(item)` in the order of the items; a thread computes the next one while a result is used."""
    with ThreadPoolExecutor(1) as pool:
        yield from _map_ahead(pool, function, items, 2)


def _map_ahead(
    pool: Executor, function: Callable[[Item], Result], items: Iterable[Item], n_ahead: int
) -> Iterator[Result]:
    """Yield results in order while at most `n_ahead` calls are under way; `Executor.map` would read all items first."""
    under_way: deque[Future[Result]] = deque()
    for item in items:
        under_way.append(pool.submit(function, item))
        if len(under_way) == n_ahead:
            yield under_way.popleft().result()
    while under_way:
        yield under_way.popleft().result()


def run_in_subprocess(
    function: Callable[Parameters, Result], *args: Parameters.args, **kwargs: Parameters.kwargs
) -> Result:
    """Call a function in a new process, which shares no memory, threads or allocator with this one."""
    from concurrent.futures.process import ProcessPoolExecutor

    from multihead.spawning import WorkerContext

    with ProcessPoolExecutor(1, mp_context=WorkerContext()) as pool:
        return pool.submit(function, *args, **kwargs).result()
