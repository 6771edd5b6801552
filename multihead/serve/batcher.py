"""Requests that come at the same time share batches, for one thread that owns the model. It knows nothing of HTTP.

A request is a list of pieces (sentences). Each batch takes a piece from every waiting request in turn until it is full,
so that a short request never waits for a long one to end: it is in the next batch.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

from multihead.config import SearchConfig
from multihead.translate import Translation

Result = TypeVar("Result")
Translate = Callable[[list[str], SearchConfig], list[Translation]]

BATCH_PIECES = 32  # by default; more of them would only make the next ones wait
BATCH_CHARACTERS = 4000
DEFAULT_WAITING = 100_000  # characters that may wait: some seconds of work
LEAST_PIECE = 50  # characters that even the shortest piece counts as


class Full(Exception):
    """Too much is waiting already; `seconds` says when to come again."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"too many requests are waiting; try again in {seconds:.0f} seconds")
        self.seconds = seconds


class Closed(Exception):
    """The batcher is being shut down and takes no more."""


def weight(pieces: Sequence[str]) -> int:
    """What pieces count against the bound."""
    return sum(max(LEAST_PIECE, len(piece)) for piece in pieces)


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
            self.fail(TimeoutError("the request waited too long"))
        return self.future.done()

    def fail(self, error: Exception) -> None:
        with suppress(InvalidStateError):  # it was cancelled at this very moment
            self.future.set_exception(error)

    def deliver(self, at: int, result: Translation) -> None:
        self.results[at] = result
        if len(self.results) == len(self.pieces):
            with suppress(InvalidStateError):
                self.future.set_result([self.results[at] for at in range(len(self.pieces))])


class Batcher:
    """A queue with a bound, and the thread that empties it."""

    def __init__(
        self, translate: Translate, most_waiting: int = DEFAULT_WAITING, batch_pieces: int = BATCH_PIECES
    ) -> None:
        self._translate, self._most_waiting, self._batch_pieces = translate, most_waiting, batch_pieces
        self._requests: deque[_Request] = deque()
        self._calls: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
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

    def call(self, function: Callable[[], Result]) -> Future[Result]:
        """Call a function in the thread that owns the model, before the next batch."""
        future: Future[Result] = Future()
        with self._changed:
            self._admit(BATCH_CHARACTERS)
            self._calls.append((function, future))
            self._changed.notify()
        return future

    def _admit(self, weight: int) -> None:
        if self._closing:
            raise Closed("the server is shutting down")
        if self._waiting and self._waiting + weight > self._most_waiting:
            raise Full(max(1.0, self._waiting / self._pace))
        self._waiting += weight

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
                call = self._calls.popleft() if self._calls else None
                batch = self._next_batch()
            if call:  # one at a time: those who wait for a translation have their turn in between
                self._run(*call)
            if batch:
                self._translate_batch(batch)

    def _run(self, function: Callable[[], Result], future: Future[Result]) -> None:
        if future.set_running_or_notify_cancel():
            try:
                future.set_result(function())
            except BaseException as error:  # whoever asked gets it
                future.set_exception(error)
        with self._changed:
            self._waiting -= BATCH_CHARACTERS

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
        except Exception as error:  # a bug: those who wait are told, and the server goes on
            for request, _ in batch:
                request.fail(error)
        else:
            for (request, at), result in zip(batch, results, strict=True):
                request.deliver(at, result)
        self._pace += 0.2 * (weight(texts) / max(1e-3, time.monotonic() - began) - self._pace)
        with self._changed:
            self._waiting -= weight(texts)
        self.batch_sizes(len(batch))
