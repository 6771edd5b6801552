"""Whose sentences are translated next: clients get equal shares of the time. Knows neither threads nor HTTP.

This is start-time fair queueing. Every client has a clock that advances by the time its sentences take, and the client
whose clock is behind goes first. A client that was idle starts at the clock of the server, so it cannot save up time.
Among the requests of a client, one with little left to do goes first: a short request overtakes long ones, and new
requests do not keep one that is half done from its end.

A sentence cannot be interrupted, and a long one may take seconds. There are therefore two lanes more than cores. One is
reserved for clients that have nothing under way, another also admits small requests of other clients. One client alone
can still keep every core busy.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from multihead.config.schema import SearchConfig
from multihead.serve.pace import SENTENCE_UNITS, Kind, Pace, units

SMALL_UNITS = 400  # of a request that may use the lane for small ones: a few short sentences
MAX_CLIENTS = 1000  # above which the clocks of idle ones are forgotten
CALL_UNITS = 200  # that a function call counts as
RESERVED_LANES = 2  # one for clients with nothing under way, one also for small requests

Search = tuple[SearchConfig, bool]  # settings, and whether words are aligned


@dataclass(slots=True, eq=False)
class Job:
    """Sentences to translate, or values to call a function with, and the results so far."""

    client: str
    items: Sequence[Any]
    search: Search | None  # None: call `function`
    function: Callable[[Any], Any] | None = None
    translate: Callable[..., Sequence[Any]] | None = None  # the direction of a model of several
    future: Future[list[Any]] = field(default_factory=Future)
    remaining: float = 0.0  # seconds that the sentences without a result are expected to take
    n_taken: int = 0
    n_units_left: int = 0  # of the sentences that are not under way; set when it is added to the queue
    results: dict[int, Any] = field(default_factory=dict)
    is_small: bool = field(init=False)

    def __post_init__(self) -> None:
        few = self.items[: SMALL_UNITS // SENTENCE_UNITS]
        self.is_small = self.search is not None and len(few) == len(self.items) and units(few) <= SMALL_UNITS

    @property
    def kind(self) -> Kind:
        return (self.search[0].beam, self.search[1]) if self.search else None

    @property
    def size_class(self) -> int:
        """About how much is left to do. Small requests are all alike, so that they are answered in their order."""
        return max(SMALL_UNITS, self.n_units_left).bit_length()

    def units(self, index: int) -> int:
        return CALL_UNITS if self.search is None else SENTENCE_UNITS + len(self.items[index])


@dataclass(slots=True, eq=False)
class _Client:
    """The clock of a client, and its jobs that have sentences left."""

    clock: float
    jobs: list[Job] = field(default_factory=list)
    n_lanes: int = 0  # that it is part of


@dataclass(slots=True, eq=False)
class Batch:
    """Sentences that are searched together, and what they are expected to take."""

    jobs: list[tuple[Job, int]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def search(self) -> Search | None:
        return self.jobs[0][0].search

    def may_have(self, job: Job) -> bool:
        """Return whether the sentences of a job are searched in the same way."""
        first = self.jobs[0][0]
        return job.search == first.search and job.translate == first.translate

    @property
    def n_units(self) -> int:
        return sum(job.units(index) for job, index in self.jobs)

    @property
    def clients(self) -> set[str]:
        return {job.client for job, _ in self.jobs}


class FairQueue:
    """The jobs of all clients. Not thread-safe."""

    def __init__(self, pace: Pace, n_lanes: int, max_batch: int, batch_units: int) -> None:
        self._pace, self._n_lanes, self._max_batch, self._batch_units = pace, n_lanes, max_batch, batch_units
        self._clients: dict[str, _Client] = {}
        self._clock = 0.0
        self._is_calling = False
        self.n_busy = 0  # lanes

    def __bool__(self) -> bool:
        return any(client.jobs for client in self._clients.values())

    def add(self, job: Job) -> None:
        client = self._clients.get(job.client)
        if client is None:
            if len(self._clients) >= MAX_CLIENTS:
                self._clients = {name: one for name, one in self._clients.items() if one.jobs or one.n_lanes}
            client = self._clients[job.client] = _Client(self._clock)
        if not client.jobs and not client.n_lanes:  # its clock is kept while it is ahead
            client.clock = max(client.clock, self._clock)
        job.n_units_left = sum(map(job.units, range(len(job.items))))
        client.jobs.append(job)

    def remove(self, job: Job) -> None:
        """Drop what is left of a job; nothing happens if all of it is under way."""
        client = self._clients.get(job.client)
        if client and job in client.jobs:
            client.jobs.remove(job)

    def take(self) -> Batch:
        """Return the next batch for a free lane, which `finish` must get; it is empty if there is nothing to do."""
        batch = Batch()
        while len(batch.jobs) < self._max_batch and batch.n_units < self._batch_units:
            job = self._next(batch)
            if job is None:
                break
            n_units = job.units(job.n_taken)
            if batch.jobs and batch.n_units + n_units > self._batch_units:
                break
            self._take_sentence(job, self._pace.seconds(n_units, job.kind), batch)
            if job.search is None:
                self._is_calling = True
                break
        if batch.jobs:
            self.n_busy += 1
            for name in batch.clients:
                self._clients[name].n_lanes += 1
        return batch

    def finish(self, batch: Batch, seconds: float) -> None:
        """Free the lane of a batch, and charge clients what it really took instead of what was expected."""
        self.n_busy -= 1
        for name in batch.clients:
            self._clients[name].n_lanes -= 1
        if batch.search is None:
            self._is_calling = False
        correction = (seconds - batch.seconds) / max(1, batch.n_units)
        for job, index in batch.jobs:
            self._clients[job.client].clock += correction * job.units(index)
        if not self.n_busy and not self:
            self._clients.clear()  # nobody is left to share the time with

    def _next(self, batch: Batch) -> Job | None:
        """Return the job whose turn it is, among those that may be in a batch of a free lane."""
        n_free = self._n_lanes - self.n_busy
        for client in sorted(self._clients.values(), key=lambda client: client.clock):
            allowed = (
                job
                for job in client.jobs
                if (not batch.jobs or batch.may_have(job)) and self._may_use_lane(client, job, n_free)
            )
            if job := min(allowed, key=lambda job: job.size_class, default=None):
                return job
        return None

    def _may_use_lane(self, client: _Client, job: Job, n_free: int) -> bool:
        if job.search is None and self._is_calling:
            return False  # functions use what belongs to one thread at a time
        if self._n_lanes == 1 or n_free > RESERVED_LANES or not client.n_lanes:
            return True
        return n_free == RESERVED_LANES and job.is_small

    def _take_sentence(self, job: Job, seconds: float, batch: Batch) -> None:
        client = self._clients[job.client]
        self._clock = max(self._clock, client.clock)
        client.clock += seconds
        batch.jobs.append((job, job.n_taken))
        batch.seconds += seconds
        job.n_units_left -= job.units(job.n_taken)
        job.n_taken += 1
        if job.n_taken == len(job.items):
            client.jobs.remove(job)
