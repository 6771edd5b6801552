"""Merges concurrent requests into batches, for one thread that owns the model. It knows nothing of HTTP.

A request is a list of pieces (sentences). Each batch takes a piece from every waiting request in turn until it is full,
so that a short request never waits for a long one to end: it is in the next batch.

A request is admitted once, by `submit`. The function calls that it needs afterwards (`call`) are never refused because
the queue is full: its work is not done twice.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from multihead.config.schema import SearchConfig
from multihead.serve.errors import Overloaded, ShuttingDown
from multihead.translation.translator import Translation

Value = TypeVar("Value")
Result = TypeVar("Result")
Translate = Callable[[list[str], SearchConfig], list[Translation]]

BATCH_SENTENCES = 32  # by default; more of them would only make the next ones wait
BATCH_CHARACTERS = 4000
DEFAULT_QUEUED_CHARACTERS = 100_000  # characters that may wait: some seconds of work
MIN_WEIGHT = 50  # characters that even the shortest piece counts as
TURN_SECONDS = 0.1  # of function calls before the next batch has its turn


def weight(pieces: Sequence[str]) -> int:
    """What pieces count against the bound."""
    return sum(max(MIN_WEIGHT, len(piece)) for piece in pieces)


@dataclass(slots=True, eq=False)
class _Request:
    """Pieces of one client, some translated, some under way, some waiting."""

    pieces: Sequence[str]
    config: SearchConfig
    deadline: float
    future: Future[list[Translation]]
    taken: int = 0
    results: dict[int, Translation] = field(default_factory=dict)

    def is_over(self) -> bool:
        """Whether nobody waits for it any more; one that is too late is told so."""
        if time.monotonic() > self.deadline:
            _fail(self.future, TimeoutError("the request waited too long"))
        return self.future.done()

    def deliver(self, at: int, result: Translation) -> None:
        self.results[at] = result
        if len(self.results) == len(self.pieces):
            with suppress(InvalidStateError):
                self.future.set_result([self.results[at] for at in range(len(self.pieces))])


@dataclass(slots=True, eq=False)
class _Calls:
    """A function that one client needs for each of some values."""

    function: Callable[[Any], Any]
    values: Sequence[Any]
    deadline: float
    future: Future[list[Any]]
    results: list[Any] = field(default_factory=list)

    def weight(self) -> int:
        """What all of them count against the bound: no more than one batch."""
        return min(BATCH_CHARACTERS, MIN_WEIGHT * len(self.values))

    def step(self) -> bool:
        """Call the function once; return whether all is done, or nobody waits for it any more."""
        if time.monotonic() > self.deadline:
            _fail(self.future, TimeoutError("the request waited too long"))
        if self.future.done():
            return True
        try:
            self.results.append(self.function(self.values[len(self.results)]))
        except BaseException as error:  # the client gets it, and the thread lives on
            _fail(self.future, error)
            return True
        if len(self.results) < len(self.values):
            return False
        with suppress(InvalidStateError):  # cancelled at this very moment
            self.future.set_result(self.results)
        return True


def _fail(future: Future[Any], error: BaseException) -> None:
    """Hand an error to the client. A panic of a Rust library is no Exception, and would end the event loop's task."""
    with suppress(InvalidStateError):  # cancelled at this very moment
        future.set_exception(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))


class Batcher:
    """A queue with a bound, and the thread that empties it."""

    def __init__(
        self, translate: Translate, most_waiting: int = DEFAULT_QUEUED_CHARACTERS, batch_pieces: int = BATCH_SENTENCES
    ) -> None:
        self._translate, self._most_waiting, self._batch_pieces = translate, most_waiting, batch_pieces
        self._requests: deque[_Request] = deque()
        self._calls: deque[_Calls] = deque()
        self._waiting = 0  # characters of pieces that are not yet translated
        self._pace = 2000.0  # characters a second, measured as it goes
        self._changed = threading.Condition()
        self._closing = False
        self.batch_sizes: Callable[[int], None] = lambda size: None  # told of every batch
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return self._waiting

    def submit(self, pieces: Sequence[str], config: SearchConfig, seconds: float) -> Future[list[Translation]]:
        """Translate these pieces within so many seconds. Cancelling the future takes back what is still waiting."""
        request = _Request(pieces, config, time.monotonic() + seconds, Future())
        if not pieces:
            request.future.set_result([])
            return request.future
        with self._changed:
            self._admit(weight(pieces))
            self._requests.append(request)
            self._changed.notify()
        return request.future

    def call(
        self, function: Callable[[Value], Result], values: Sequence[Value], seconds: float
    ) -> Future[list[Result]]:
        """Call a function for each value, in the thread that owns the model, for a request that is admitted."""
        calls = _Calls(function, values, time.monotonic() + seconds, Future())
        if not values:
            calls.future.set_result([])
            return calls.future
        with self._changed:
            self._check_open()
            self._waiting += calls.weight()
            self._calls.append(calls)
            self._changed.notify()
        return calls.future

    def _admit(self, weight: int) -> None:
        self._check_open()
        # A request that is larger than the bound is taken if nothing else waits.
        if self._waiting and self._waiting + weight > self._most_waiting:
            raise Overloaded(max(1.0, self._waiting / self._pace))
        self._waiting += weight

    def _check_open(self) -> None:
        if self._closing:
            raise ShuttingDown("the server is shutting down")

    def close(self, seconds: float) -> bool:
        """Take no more, finish what is there, and end the thread; True if all was done in time."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # The thread

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._requests and not self._calls and not self._closing:
                    self._changed.wait()
                if not self._requests and not self._calls:
                    return
                batch = self._next_batch()
            if batch:
                self._translate_batch(batch)
            self._call_for(TURN_SECONDS)

    def _call_for(self, seconds: float) -> None:
        """Call functions of every client in turn, until none is left or the time is over."""
        end = time.monotonic() + seconds
        while self._calls and time.monotonic() < end:
            calls = self._calls.popleft()
            if not calls.step():
                self._calls.append(calls)
                continue
            with self._changed:
                self._waiting -= calls.weight()

    def _next_batch(self) -> list[tuple[_Request, int]]:
        """A piece of every request that searches as the first one does, in turn, until the batch is full."""
        for request in [request for request in self._requests if request.is_over()]:
            self._forget(request)
        if not self._requests:
            return []
        first = self._requests[0]
        sharing = deque(request for request in self._requests if request.config == first.config)
        batch: list[tuple[_Request, int]] = []
        while (
            sharing and len(batch) < self._batch_pieces and weight([r.pieces[at] for r, at in batch]) < BATCH_CHARACTERS
        ):
            request = sharing.popleft()
            batch.append((request, request.taken))
            request.taken += 1
            if request.taken < len(request.pieces):
                sharing.append(request)
        # Those that have had a turn go to the end, so that another configuration comes to its own.
        served = {id(request): request for request, _ in batch}
        self._requests = deque(request for request in self._requests if id(request) not in served)
        self._requests.extend(request for request in served.values() if request.taken < len(request.pieces))
        return batch

    def _forget(self, request: _Request) -> None:
        self._requests.remove(request)
        self._waiting -= weight(request.pieces[request.taken :])

    def _translate_batch(self, batch: list[tuple[_Request, int]]) -> None:
        texts = [request.pieces[at] for request, at in batch]
        began = time.monotonic()
        try:
            results = self._translate(texts, batch[0][0].config)
        except BaseException as error:  # a bug: the clients get it, and the thread lives on
            for request, _ in batch:
                _fail(request.future, error)
        else:
            for (request, at), result in zip(batch, results, strict=True):
                request.deliver(at, result)
        self._pace += 0.2 * (weight(texts) / max(1e-3, time.monotonic() - began) - self._pace)
        with self._changed:
            self._waiting -= weight(texts)
        self.batch_sizes(len(batch))
