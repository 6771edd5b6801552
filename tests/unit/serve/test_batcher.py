"""Requests that come together share batches; none waits for another longer than it must, and none is lost."""

import threading
import time
from collections.abc import Iterator
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager

import pytest

from multihead.config.schema import SearchConfig
from multihead.serve.batcher import BATCH_CHARACTERS, Batcher
from multihead.serve.errors import Overloaded, ShuttingDown
from multihead.serve.options import Limits
from multihead.translation.translator import Translation

BEST, GREEDY = SearchConfig(), SearchConfig(beam=1)


class Engine:
    """Shouts; remembers its batches; can be held up."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []
        self.configs: list[SearchConfig] = []
        self.details: list[bool] = []
        self.go = threading.Event()
        self.go.set()
        self.began = threading.Event()
        self.error: BaseException = RuntimeError("a bug")

    def __call__(self, texts: list[str], config: SearchConfig, details: bool) -> list[Translation]:
        self.began.set()
        assert self.go.wait(10)
        self.batches.append(texts)
        self.configs.append(config)
        self.details.append(details)
        if "bug" in texts:
            raise self.error
        return [Translation(text=text.upper()) for text in texts]

    @contextmanager
    def held_up(self, by: Batcher) -> Iterator[None]:
        """While a first request keeps the engine busy, others can queue up."""
        self.go.clear()
        self.began.clear()
        first = by.submit(["first"], BEST, 10)
        assert self.began.wait(10)
        yield
        self.go.set()
        first.result(10)


def texts(future: "Future[list[Translation]]") -> list[str]:
    return [one.text for one in future.result(10)]


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def one(engine: Engine) -> Iterator[Batcher]:
    made = Batcher(engine)
    yield made
    engine.go.set()
    assert made.close(10)


def test_a_request_gets_its_pieces_in_order(one: Batcher) -> None:
    assert texts(one.submit(["a", "b", "c"], BEST, 10)) == ["A", "B", "C"]
    assert texts(one.submit([], BEST, 10)) == []


def test_requests_that_wait_share_a_batch(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        waiting = [one.submit([f"t{n}"], BEST, 10) for n in range(5)]
    assert [texts(future) for future in waiting] == [[f"T{n}"] for n in range(5)]
    assert engine.batches == [["first"], ["t0", "t1", "t2", "t3", "t4"]]


def test_what_is_searched_in_another_way_has_a_batch_of_its_own(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        waiting = [one.submit([f"t{n}"], (BEST, GREEDY)[n % 2], 10) for n in range(4)]
    for future in waiting:
        future.result(10)
    assert engine.batches[1:] == [["t0", "t2"], ["t1", "t3"]]


def test_requests_that_need_an_alignment_have_batches_of_their_own(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        plain, aligned = one.submit(["a"], BEST, 10), one.submit(["b"], BEST, 10, details=True)
    assert (texts(plain), texts(aligned)) == (["A"], ["B"])
    assert (engine.batches[1:], engine.details[1:]) == ([["a"], ["b"]], [False, True])


def test_a_short_request_does_not_wait_for_a_long_one(engine: Engine, one: Batcher) -> None:
    """It is in the first batch after it came, beside pieces of the long one."""
    with engine.held_up(one):
        long = one.submit([f"l{n}" for n in range(200)], BEST, 10)
        short = one.submit(["short"], BEST, 10)
    assert texts(short) == ["SHORT"]
    assert texts(long) == [f"L{n}" for n in range(200)]
    assert "short" in engine.batches[1]
    assert max(map(len, engine.batches)) <= Limits().batch


def test_another_configuration_has_its_turn_beside_a_long_request(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        long = one.submit([f"l{n}" for n in range(200)], BEST, 10)
        short = one.submit(["short"], GREEDY, 10)
    assert texts(short) == ["SHORT"]
    long.result(10)
    assert ["short"] in engine.batches[1:3]


def test_a_batch_has_a_bound_of_characters(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        waiting = [one.submit(["x" * 1500], BEST, 10) for _ in range(6)]
    for future in waiting:
        future.result(10)
    assert max(sum(map(len, batch)) for batch in engine.batches) <= BATCH_CHARACTERS + 1500


def test_a_full_queue_refuses_and_says_when_to_come_again(engine: Engine) -> None:
    small = Batcher(engine, max_queued_characters=200)
    with engine.held_up(small):
        waiting = [small.submit([f"t{n}"], BEST, 10) for n in range(3)]
        with pytest.raises(Overloaded) as refused:
            small.submit(["one too many"], BEST, 10)
        assert (refused.value.retry_after or 0) >= 1
    assert [texts(future) for future in waiting] == [["T0"], ["T1"], ["T2"]]
    assert texts(small.submit(["again"], BEST, 10)) == ["AGAIN"]
    assert small.close(10)


def test_a_request_larger_than_the_queue_is_taken_if_nothing_waits(engine: Engine) -> None:
    small = Batcher(engine, max_queued_characters=200)
    assert len(texts(small.submit(["x" * 100] * 10, BEST, 10))) == 10
    assert small.close(10)


def test_what_is_cancelled_is_not_translated(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        gone, stays = one.submit(["gone"], BEST, 10), one.submit(["stays"], BEST, 10)
        assert gone.cancel()
    assert texts(stays) == ["STAYS"]
    assert not any("gone" in batch for batch in engine.batches)
    with pytest.raises(CancelledError):
        gone.result(0)
    assert one.queued_characters == 0


def test_what_waited_too_long_is_told_so(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        late, patient = one.submit(["late"], BEST, 0.01), one.submit(["patient"], BEST, 10)
        time.sleep(0.05)
    assert texts(patient) == ["PATIENT"]
    with pytest.raises(TimeoutError):
        late.result(10)
    assert not any("late" in batch for batch in engine.batches)


def test_a_bug_reaches_those_who_wait_and_nobody_else(engine: Engine, one: Batcher) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        one.submit(["bug"], BEST, 10).result(10)
    assert texts(one.submit(["next"], BEST, 10)) == ["NEXT"]
    assert one.queued_characters == 0


def test_functions_are_called_in_the_thread_of_the_model(one: Batcher) -> None:
    assert one.run_exclusive(lambda n: (n, threading.current_thread().name), [1, 2], 10).result(10) == [
        (1, "batcher"),
        (2, "batcher"),
    ]
    with pytest.raises(ZeroDivisionError):
        one.run_exclusive(lambda n: 1 // n, [1, 0], 10).result(10)
    assert one.run_exclusive(str, [], 10).result(10) == []
    wait_until_nothing_waits(one)


def wait_until_nothing_waits(one: Batcher) -> None:
    """A future is done a moment before the count goes down."""
    deadline = time.monotonic() + 10
    while one.queued_characters:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_calls_of_an_admitted_request_are_not_refused_by_a_full_queue(engine: Engine) -> None:
    small = Batcher(engine, max_queued_characters=200)
    with engine.held_up(small):
        waiting = [small.submit([f"t{n}"], BEST, 10) for n in range(3)]
        with pytest.raises(Overloaded):
            small.submit(["one too many"], BEST, 10)
        calls = small.run_exclusive(str, range(1000), 10)
    assert calls.result(10) == [str(n) for n in range(1000)]
    assert [texts(future) for future in waiting] == [["T0"], ["T1"], ["T2"]]
    assert small.close(10)


def test_many_calls_do_not_hold_up_a_translation(one: Batcher) -> None:
    calls = one.run_exclusive(lambda _: time.sleep(0.01), range(500), 20)
    assert texts(one.submit(["short"], BEST, 10)) == ["SHORT"]
    assert not calls.done()
    calls.cancel()
    wait_until_nothing_waits(one)


def test_calls_end_when_nobody_waits_for_them_or_their_time_is_over(one: Batcher) -> None:
    called: list[int] = []

    def slow(n: int) -> None:
        called.append(n)
        time.sleep(0.05)

    late = one.run_exclusive(slow, range(100), 0.2)
    with pytest.raises(TimeoutError):
        late.result(10)
    canceled = one.run_exclusive(slow, range(100), 10)
    assert canceled.cancel()
    wait_until_nothing_waits(one)
    assert len(called) < 50


def test_a_panic_of_a_library_reaches_the_client_and_the_thread_lives_on(engine: Engine, one: Batcher) -> None:
    """Rust libraries raise what is no Exception."""
    engine.error = type("PanicException", (BaseException,), {})("with the text of a user")
    with pytest.raises(RuntimeError, match=r"^PanicException$"):
        one.submit(["bug"], BEST, 10).result(10)
    assert texts(one.submit(["next"], BEST, 10)) == ["NEXT"]


def test_closing_finishes_what_is_there_and_takes_no_more(engine: Engine) -> None:
    closing = Batcher(engine)
    with engine.held_up(closing):
        waiting = [closing.submit([f"t{n}"], BEST, 10) for n in range(50)]
        thread = threading.Thread(target=closing.close, args=(10,))
        thread.start()
        time.sleep(0.05)
        with pytest.raises(ShuttingDown):
            closing.submit(["too late"], BEST, 10)
    thread.join(10)
    assert [texts(future) for future in waiting] == [[f"T{n}"] for n in range(50)]


def test_nothing_is_lost_when_everybody_comes_at_once(engine: Engine, one: Batcher) -> None:
    """Many threads, some of which cancel; the count of what waits comes back to nothing."""
    answers: dict[int, list[str]] = {}

    def client(number: int) -> None:
        future = one.submit([f"c{number}", "x"], (BEST, GREEDY)[number % 2], 10)
        if number % 7 == 0:
            future.cancel()
        else:
            answers[number] = texts(future)

    threads = [threading.Thread(target=client, args=(n,)) for n in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert answers == {n: [f"C{n}", "X"] for n in range(100) if n % 7}
    one.submit(["last"], BEST, 10).result(10)
    time.sleep(0.05)
    assert one.queued_characters == 0
