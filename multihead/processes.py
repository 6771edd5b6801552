"""Work that is shared out to a process for each core. What is imported here is imported by each of them: no torch."""

import contextlib
import multiprocessing
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from types import ModuleType
from typing import TypeVar

from multihead.config import UserError

Given = TypeVar("Given")
Made = TypeVar("Made")


def n_cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def side_by_side(make: Callable[[Given], Made], items: Iterable[Given], few: int) -> Iterator[Made]:
    """`map` by a process for each core, the results in order; `few` items or less are not worth starting them."""
    iterator = iter(items)
    first = list(islice(iterator, few + 1))
    if len(first) <= few or n_cores() == 1:
        yield from map(make, chain(first, iterator))
        return
    with ProcessPoolExecutor(n_cores(), mp_context=multiprocessing.get_context("spawn")) as pool:
        try:
            yield from _ahead(pool, make, chain(first, iterator), 2 * n_cores())
        except BrokenProcessPool:
            raise UserError("a process that shared the work was killed: is there too little memory?") from None


def _ahead(pool: ProcessPoolExecutor, make: Callable[[Given], Made], items: Iterable[Given], n: int) -> Iterator[Made]:
    """Results in order, `n` of them under way."""
    under_way: deque[Future[Made]] = deque()
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
