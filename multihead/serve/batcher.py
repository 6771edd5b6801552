"""Merge concurrent requests into batches for the one thread that owns the model; knows nothing of HTTP.

A request is a list of sentences. Each batch takes one sentence from every waiting request in turn until it is full, so
a short request never waits for a long one to finish: it is part of the next batch.

A request is admitted once, by `submit`. Function calls that it needs later (`run_exclusive`) are never refused because
the queue is full, so that no work is done twice.
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
from multihead.serve.options import Limits
from multihead.translation.translator import Translation

Value = TypeVar("Value")
Result = TypeVar("Result")
Translate = Callable[[list[str], SearchConfig, bool], list[Translation]]  # True: with details

BATCH_CHARACTERS = 4000
MIN_WEIGHT = 50  # characters that the shortest sentence counts as
CALL_SECONDS = 0.1  # of function calls between two batches


def weight(sentences: Sequence[str]) -> int:
    """Return how many characters sentences count as in the queue."""
    return sum(max(MIN_WEIGHT, len(sentence)) for sentence in sentences)


@dataclass(slots=True, eq=False)
class _Request:
    """The sentences of one client and the results so far."""

    sentences: Sequence[str]
    config: SearchConfig
    details: bool
    deadline: float
    future: Future[list[Translation]]
    n_taken: int = 0
    results: dict[int, Translation] = field(default_factory=dict)

    def is_over(self) -> bool:
        """True if the client has canceled or its time is over; in the latter case fail the request."""
        if time.monotonic() > self.deadline:
            _fail(self.future, TimeoutError("the request waited too long"))
        return self.future.done()

    def deliver(self, index: int, result: Translation) -> None:
        self.results[index] = result
        if len(self.results) == len(self.sentences):
            with suppress(InvalidStateError):
                self.future.set_result([self.results[index] for index in range(len(self.sentences))])


@dataclass(slots=True, eq=False)
class _Calls:
    """A function to call for each of some values."""

    function: Callable[[Any], Any]
    values: Sequence[Any]
    deadline: float
    future: Future[list[Any]]
    results: list[Any] = field(default_factory=list)

    def weight(self) -> int:
        """Return how many characters the calls count as: at most one batch."""
        return min(BATCH_CHARACTERS, MIN_WEIGHT * len(self.values))

    def step(self) -> bool:
        """Call the function once; return True if all calls are done or nobody waits for them anymore."""
        if time.monotonic() > self.deadline:
            _fail(self.future, TimeoutError("the request waited too long"))
        if self.future.done():
            return True
        try:
            self.results.append(self.function(self.values[len(self.results)]))
        except BaseException as error:  # reported to the client; the thread goes on
            _fail(self.future, error)
            return True
        if len(self.results) < len(self.values):
            return False
        with suppress(InvalidStateError):  # canceled just now
            self.future.set_result(self.results)
        return True


def _fail(future: Future[Any], error: BaseException) -> None:
    """Pass an error to the client. A Rust panic is not an `Exception` and would end the task of the event loop."""
    with suppress(InvalidStateError):  # canceled just now
        future.set_exception(error if isinstance(error, Exception) else RuntimeError(type(error).__name__))


class Batcher:
    """A bounded queue, and the thread that empties it."""

    def __init__(
        self,
        translate: Translate,
        max_queued_characters: int = Limits().queued_characters,
        max_batch: int = Limits().batch,
        on_batch: Callable[[int], None] = lambda size: None,  # called with the size of every batch
    ) -> None:
        self._translate, self._on_batch = translate, on_batch
        self._max_queued_characters, self._max_batch = max_queued_characters, max_batch
        self._requests: deque[_Request] = deque()
        self._calls: deque[_Calls] = deque()
        self._queued_characters = 0  # not yet translated
        self._characters_per_second = 2000.0  # running estimate
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    @property
    def queued_characters(self) -> int:
        return self._queued_characters

    def submit(
        self, sentences: Sequence[str], config: SearchConfig, seconds: float, details: bool = False
    ) -> Future[list[Translation]]:
        """Translate sentences within this time, with `details` also align their words.

        Canceling the future removes those that still wait.
        """
        request = _Request(sentences, config, details, time.monotonic() + seconds, Future())
        if not sentences:
            request.future.set_result([])
            return request.future
        with self._changed:
            self._admit(weight(sentences))
            self._requests.append(request)
            self._changed.notify()
        return request.future

    def run_exclusive(
        self, function: Callable[[Value], Result], values: Sequence[Value], seconds: float
    ) -> Future[list[Result]]:
        """Call a function for each value in the thread that owns the model, for a request that is already admitted."""
        calls = _Calls(function, values, time.monotonic() + seconds, Future())
        if not values:
            calls.future.set_result([])
            return calls.future
        with self._changed:
            self._check_open()
            self._queued_characters += calls.weight()
            self._calls.append(calls)
            self._changed.notify()
        return calls.future

    def _admit(self, weight: int) -> None:
        self._check_open()
        # A request larger than the queue is accepted if the queue is empty.
        if self._queued_characters and self._queued_characters + weight > self._max_queued_characters:
            seconds = max(1.0, self._queued_characters / self._characters_per_second)
            raise Overloaded(f"too many requests are waiting; try again in {seconds:.0f} seconds", seconds)
        self._queued_characters += weight

    def _check_open(self) -> None:
        if self._is_closing:
            raise ShuttingDown("the server is shutting down")

    def close(self, seconds: float) -> bool:
        """Accept no more work, finish what is queued and end the thread; return True if that was done in time."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    # In the thread

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._requests and not self._calls and not self._is_closing:
                    self._changed.wait()
                if not self._requests and not self._calls:
                    return
                batch = self._next_batch()
            if batch:
                self._translate_batch(batch)
            self._run_calls(CALL_SECONDS)

    def _run_calls(self, seconds: float) -> None:
        """Call functions of all clients in turn, until none is left or the time is over."""
        end = time.monotonic() + seconds
        while self._calls and time.monotonic() < end:
            calls = self._calls.popleft()
            if not calls.step():
                self._calls.append(calls)
                continue
            with self._changed:
                self._queued_characters -= calls.weight()

    def _next_batch(self) -> list[tuple[_Request, int]]:
        """Take a sentence of every request with the search settings of the first, in turn, until the batch is full."""
        for request in [request for request in self._requests if request.is_over()]:
            self._requests.remove(request)
            self._queued_characters -= weight(request.sentences[request.n_taken :])
        if not self._requests:
            return []
        first = self._requests[0]
        kind = first.config, first.details
        compatible = deque(request for request in self._requests if (request.config, request.details) == kind)
        batch: list[tuple[_Request, int]] = []
        n_characters = 0
        while compatible and len(batch) < self._max_batch and n_characters < BATCH_CHARACTERS:
            request = compatible.popleft()
            batch.append((request, request.n_taken))
            n_characters += weight([request.sentences[request.n_taken]])
            request.n_taken += 1
            if request.n_taken < len(request.sentences):
                compatible.append(request)
        # Requests that had a turn go to the end, so that other search settings get theirs.
        served = {id(request): request for request, _ in batch}
        self._requests = deque(request for request in self._requests if id(request) not in served)
        self._requests.extend(request for request in served.values() if request.n_taken < len(request.sentences))
        return batch

    def _translate_batch(self, batch: list[tuple[_Request, int]]) -> None:
        sentences = [request.sentences[index] for request, index in batch]
        start = time.monotonic()
        try:
            results = self._translate(sentences, batch[0][0].config, batch[0][0].details)
        except BaseException as error:  # reported to the clients; the thread goes on
            for request, _ in batch:
                _fail(request.future, error)
        else:
            for (request, index), result in zip(batch, results, strict=True):
                request.deliver(index, result)
        speed = weight(sentences) / max(1e-3, time.monotonic() - start)
        self._characters_per_second += 0.2 * (speed - self._characters_per_second)
        with self._changed:
            self._queued_characters -= weight(sentences)
        self._on_batch(len(batch))
