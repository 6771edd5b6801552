"""Translate the sentences of concurrent requests in a few threads ("lanes"); knows nothing of HTTP.

A request is admitted once, by `admit`, before any work is done for it: if it would have to wait too long it is refused
at once. What it needs later is never refused. Whose turn it is, `fair_queue` decides. When a request ends, for whatever
reason, its remaining sentences are dropped.
"""

import math
import threading
import time
from bisect import bisect, insort
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from itertools import accumulate
from typing import Any, Self, TypeVar, cast

from multihead.config.schema import SearchConfig
from multihead.serve.errors import Overloaded, ShuttingDown
from multihead.serve.fair_queue import CALL_UNITS, Batch, FairQueue, Job
from multihead.serve.options import Limits
from multihead.serve.pace import DEFAULT_BEAM, Kind, Pace, units
from multihead.translation.translator import Translation

Value = TypeVar("Value")
Result = TypeVar("Result")
Translate = Callable[[list[str], SearchConfig, bool], list[Translation]]  # True: with details

BATCH_UNITS = 160  # two or three short sentences: a request may have to wait for a batch in progress
MERGED_BATCH_UNITS = 2400  # for an engine that is much faster with many sentences
WAIT_PER_SECOND = 20  # a request may wait this many times as long as it takes by itself, and `Limits.max_wait`
MAX_WAIT_SHARE = 0.8  # of the time for an answer
MANY_TICKETS, COUNT_SECONDS = 100, 0.02  # more of them are counted no more often than this


class Waits:
    """The seconds that the requests of a client are expected to take."""

    def __init__(self) -> None:
        self._rising: list[float] = []
        self._sums: list[float] = [0.0]  # of the first 0, 1, 2 … of them; made again when it is needed

    def __len__(self) -> int:
        return len(self._rising)

    def add(self, seconds: float) -> None:
        insort(self._rising, seconds)
        self._sums = []

    def total(self, each_at_most: float = math.inf) -> float:
        """Return their sum, with no request counted for more than this."""
        self._sums = self._sums or [0.0, *accumulate(self._rising)]
        n_shorter = bisect(self._rising, each_at_most)
        n_longer = len(self._rising) - n_shorter
        return self._sums[n_shorter] + (each_at_most * n_longer if n_longer else 0.0)


class Ticket:
    """A request that was admitted: a place in the queue, until it is closed."""

    def __init__(self, batcher: "Batcher", client: str, seconds: float) -> None:
        self.client, self._batcher, self._reserved = client, batcher, seconds
        self._jobs: list[Job] = []

    @property
    def seconds(self) -> float:
        """The time that its remaining work is expected to take on one core."""
        return self._jobs[-1].remaining if self._jobs else self._reserved

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._batcher._close(self, self._jobs)

    def translate(
        self,
        sentences: Sequence[str],
        config: SearchConfig,
        details: bool = False,
        translate: Translate | None = None,
    ) -> Future[list[Translation]]:
        """Translate sentences, with `details` also align their words. Canceling the future drops those that wait.

        `translate` is one direction of a model of several, in place of the function of the batcher.
        """
        return self._submit(Job(self.client, sentences, (config, details), translate=translate))

    def call(self, function: Callable[[Value], Result], values: Sequence[Value]) -> Future[list[Result]]:
        """Call a function that needs the model for each value; only one such call runs at a time."""
        return self._submit(Job(self.client, values, None, function))

    def _submit(self, job: Job) -> Future[list[Any]]:
        self._jobs.append(job)
        return self._batcher._submit(job)


class Batcher:
    """A queue whose bound is the time to empty it, and the threads that do so."""

    def __init__(
        self,
        translate: Translate | None = None,
        limits: Limits | None = None,
        n_lanes: int = 1,
        batch_units: int = MERGED_BATCH_UNITS,
        on_batch: Callable[[int], None] = lambda size: None,  # called with the size of every batch
    ) -> None:
        """`translate` is called by `n_lanes` threads: two more than cores, or one if each call uses all cores.

        It may be left out if each call of `Ticket.translate` names a function.
        """
        self._translate, self._on_batch, self._limits = translate, on_batch, limits or Limits()
        self._n_cores = max(1, n_lanes - 2)
        self._pace = Pace()
        self._queue = FairQueue(self._pace, n_lanes, self._limits.batch, batch_units)
        self._tickets: dict[Ticket, None] = {}
        self._waiting: defaultdict[str, Waits] = defaultdict(Waits)  # of the tickets by client, as last counted
        self._counted_at, self._is_outdated = 0.0, False
        self._changed = threading.Condition()
        self._is_closing = False
        self._threads = [threading.Thread(target=self._work, name=f"lane {n}", daemon=True) for n in range(n_lanes)]
        for thread in self._threads:
            thread.start()

    @property
    def waiting_seconds(self) -> float:
        """The time that the work of all requests is expected to take."""
        with self._changed:
            return sum(ticket.seconds for ticket in self._tickets) / self._n_cores

    def admit(self, client: str, n_units: int, config: SearchConfig, details: bool = False) -> Ticket:
        """Return a place in the queue for a request of about this size, or raise `Overloaded`."""
        with self._changed:
            if self._is_closing:
                raise ShuttingDown("the server is shutting down")
            seconds = self._pace.seconds(n_units, (config.beam, details))
            excess = self._excess_seconds(client, seconds)
            if excess > 0:
                again = max(1.0, excess)
                raise Overloaded(f"too many requests are waiting; try again in {again:.0f} seconds", again)
            ticket = Ticket(self, client, seconds)
            self._tickets[ticket] = None
            self._waiting[client].add(seconds)
            return ticket

    @property
    def n_admitted(self) -> int:
        """How many requests have a place in the queue."""
        return len(self._tickets)

    def n_admitted_of(self, client: str) -> int:
        """Return how many requests of a client have a place in the queue, as last counted."""
        return len(self._waiting[client]) if client in self._waiting else 0

    def is_full_for(self, client: str, n_units: int, n_coming: int = 0, n_coming_of_others: int = 0) -> bool:
        """Return whether `admit` would refuse a request with the usual search settings, after others that are coming.

        Those are requests that were read and are not admitted yet, by this client and by others. They count as much as
        this one: if they did not, many requests would be let in for the same free place.
        """
        with self._changed:
            seconds = self._pace.seconds(n_units, (DEFAULT_BEAM, False))
            return self._excess_seconds(client, seconds, n_coming, n_coming_of_others) > 0

    def _excess_seconds(self, client: str, seconds: float, n_coming: int = 0, n_coming_of_others: int = 0) -> float:
        """Return how much longer than it may a request would wait.

        Until it is done, each request of the same client gets as much time as it, or all that the other one needs, and
        each other client as much as this one.
        """
        if not self._tickets and not n_coming + n_coming_of_others:
            return 0.0
        limit = min(
            MAX_WAIT_SHARE * self._limits.seconds, self._limits.max_wait + WAIT_PER_SECOND * seconds / self._n_cores
        )
        waiting = self._waiting_by_client()
        own = seconds * (1 + n_coming) + (waiting[client].total(each_at_most=seconds) if client in waiting else 0.0)
        others = sum(min(own, one.total()) for name, one in waiting.items() if name != client)
        total = own + others + seconds * n_coming_of_others
        return (total - seconds) / self._n_cores - limit

    def _waiting_by_client(self) -> dict[str, Waits]:
        """Return the expected seconds of all requests. Many of them are not counted again for every refusal."""
        now = time.monotonic()
        if self._is_outdated and (len(self._tickets) < MANY_TICKETS or now > self._counted_at + COUNT_SECONDS):
            self._waiting, self._counted_at, self._is_outdated = defaultdict(Waits), now, False
            for ticket in self._tickets:
                self._waiting[ticket.client].add(ticket.seconds)
        return self._waiting

    def _submit(self, job: Job) -> Future[list[Any]]:
        if not job.items:
            job.future.set_result([])
            return job.future
        with self._changed:
            size = CALL_UNITS * len(job.items) if job.search is None else units(job.items)
            job.remaining = self._pace.seconds(size, job.kind)
            self._is_outdated = True
            self._queue.add(job)
            self._changed.notify()
        job.future.add_done_callback(lambda _: self._drop(job))
        return job.future

    def _drop(self, job: Job) -> None:
        with self._changed:
            self._queue.remove(job)

    def _close(self, ticket: Ticket, jobs: list[Job]) -> None:
        for job in jobs:
            job.future.cancel()
        with self._changed:
            self._tickets.pop(ticket, None)
            self._is_outdated = True

    def close(self, seconds: float) -> bool:
        """Accept no more work, finish what is queued and end the threads; return True if that was done in time."""
        with self._changed:
            self._is_closing = True
            self._changed.notify_all()
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))
        return not any(thread.is_alive() for thread in self._threads)

    # In the threads

    def _work(self) -> None:
        free_since = time.monotonic()
        while found := self._next_batch(free_since):
            batch, start = found
            results = self._run(batch)
            # What a lane does between two batches, such as waiting for a busy event loop, is part of the second one.
            free_since = time.monotonic()
            self._finish(batch, free_since - start)
            for (job, index), result in zip(batch.jobs, results, strict=True):
                _deliver(job, index, result)
            self._on_batch(len(batch.jobs))

    def _next_batch(self, free_since: float) -> tuple[Batch, float] | None:
        """Wait for work, and return it with the time since when there was work for this lane.

        Return None if the batcher is closed and there will be none.
        """
        with self._changed:
            while True:
                batch = self._queue.take()
                if batch.jobs or (self._is_closing and not self._queue):
                    self._changed.notify()  # there may be work for another lane, or it can end too
                    return (batch, free_since) if batch.jobs else None
                self._changed.wait()
                free_since = time.monotonic()

    def _run(self, batch: Batch) -> Sequence[Any]:
        """Return a result for each sentence, or the error."""
        items = [job.items[index] for job, index in batch.jobs]
        try:
            if batch.search is None:
                function = cast(Callable[[Any], Any], batch.jobs[0][0].function)
                return [function(item) for item in items]
            translate = batch.jobs[0][0].translate or self._translate
            assert translate
            return translate(items, *batch.search)
        except BaseException as error:  # reported to the clients; the thread goes on
            # A Rust panic is not an `Exception` and would end the task of the event loop.
            reported = error if isinstance(error, Exception) else RuntimeError(type(error).__name__)
            return [reported] * len(items)

    def _finish(self, batch: Batch, elapsed: float) -> None:
        """Free the lane and learn from the time that the batch took; lanes in excess of the cores share them."""
        with self._changed:
            kind: Kind = batch.jobs[0][0].kind
            seconds = elapsed * min(1.0, self._n_cores / self._queue.n_busy)
            self._pace.record(batch.n_units, seconds, kind)
            self._queue.finish(batch, seconds)
            for job, index in batch.jobs:
                job.remaining = max(0.0, job.remaining - self._pace.seconds(job.units(index), kind))
            self._is_outdated = True


def _deliver(job: Job, index: int, result: object) -> None:
    """Keep a result; the last one, or an error, ends the job."""
    with suppress(InvalidStateError):  # canceled just now
        if isinstance(result, Exception):
            job.future.set_exception(result)
            return
        job.results[index] = result
        if len(job.results) == len(job.items):
            job.future.set_result([job.results[index] for index in range(len(job.items))])
