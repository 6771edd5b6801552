"""Requests that come together share batches; none waits for another longer than it must, and none is lost."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.config.schema import SearchConfig
from multihead.serve.batcher import Batcher, Ticket, Waits
from multihead.serve.errors import Overloaded, ShuttingDown
from multihead.serve.options import Limits
from multihead.serve.pace import FIRST_GUESS, estimated_units, units
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
        first = ask(by, ["first"], BEST)
        assert self.began.wait(10)
        yield
        self.go.set()
        first.result(10)


def ask(
    batcher: Batcher, sentences: list[str], config: SearchConfig = BEST, details: bool = False, client: str = "a"
) -> "Future[list[Translation]]":
    """Translate in a request of its own, which ends when its future does."""
    ticket = batcher.admit(client, units(sentences), config, details)
    future = ticket.translate(sentences, config, details)
    future.add_done_callback(lambda _: ticket.__exit__())
    return future


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
    assert texts(ask(one, ["a", "b", "c"], BEST)) == ["A", "B", "C"]
    assert texts(ask(one, [], BEST)) == []


def test_requests_that_wait_share_a_batch(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        waiting = [ask(one, [f"t{n}"], BEST) for n in range(5)]
    assert [texts(future) for future in waiting] == [[f"T{n}"] for n in range(5)]
    assert engine.batches == [["first"], ["t0", "t1", "t2", "t3", "t4"]]


def test_what_is_searched_in_another_way_has_a_batch_of_its_own(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        waiting = [ask(one, [f"t{n}"], (BEST, GREEDY)[n % 2]) for n in range(4)]
    for future in waiting:
        future.result(10)
    assert engine.batches[1:] == [["t0", "t2"], ["t1", "t3"]]


def test_requests_that_need_an_alignment_have_batches_of_their_own(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        plain, aligned = ask(one, ["a"], BEST), ask(one, ["b"], BEST, details=True)
    assert (texts(plain), texts(aligned)) == (["A"], ["B"])
    assert (engine.batches[1:], engine.details[1:]) == ([["a"], ["b"]], [False, True])


def test_a_short_request_does_not_wait_for_a_long_one(engine: Engine, one: Batcher) -> None:
    """It is in the first batch after it came, beside pieces of the long one."""
    with engine.held_up(one):
        long = ask(one, [f"l{n}" for n in range(200)], BEST)
        short = ask(one, ["short"], BEST)
    assert texts(short) == ["SHORT"]
    assert texts(long) == [f"L{n}" for n in range(200)]
    assert "short" in engine.batches[1]
    assert max(map(len, engine.batches)) <= Limits().batch


def test_another_configuration_has_its_turn_beside_a_long_request(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        long = ask(one, [f"l{n}" for n in range(200)], BEST)
        short = ask(one, ["short"], GREEDY)
    assert texts(short) == ["SHORT"]
    long.result(10)
    assert ["short"] in engine.batches[1:3]


def test_a_batch_has_a_bound_of_size(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        waiting = [ask(one, ["x" * 1500]) for _ in range(6)]
    for future in waiting:
        future.result(10)
    assert engine.batches[1:] == [["x" * 1500]] * 6


def test_a_full_queue_refuses_and_says_when_to_come_again(engine: Engine) -> None:
    strict = Batcher(engine, Limits(max_wait=0))
    with engine.held_up(strict):
        waiting = [ask(strict, [f"t{n}"]) for n in range(15)]
        with pytest.raises(Overloaded) as refused:
            for n in range(15):
                waiting.append(ask(strict, [f"u{n}"]))
        assert (refused.value.retry_after or 0) >= 1
    assert [texts(future)[0][0] for future in waiting] == ["T"] * 15 + ["U"] * (len(waiting) - 15)
    assert texts(ask(strict, ["again"])) == ["AGAIN"]
    assert strict.close(10)


def seconds(n_units: int) -> float:
    """What units are expected to take before anything is measured."""
    return n_units * FIRST_GUESS


def admit_until_full(batcher: Batcher, client: str, n_units: int) -> int:
    for n in range(10_000):
        try:
            batcher.admit(client, n_units, BEST)
        except Overloaded:
            return n
    raise AssertionError("it is never full")


@given(st.lists(st.floats(0, 100)), st.floats(0, 100))
def test_the_waits_of_a_client_are_summed_with_a_bound_for_each(seconds: list[float], most: float) -> None:
    waits = Waits()
    for one in seconds:
        waits.add(one)
        assert waits.total() == pytest.approx(sum(seconds[: len(waits)]))
    assert waits.total(each_at_most=most) == pytest.approx(sum(min(most, one) for one in seconds))


def test_the_queue_is_bounded_by_the_time_that_a_request_would_wait(engine: Engine, one: Batcher) -> None:
    """By two seconds, and twenty times its own."""
    n_admitted = admit_until_full(one, "a", 40)
    assert (n_admitted - 1) * seconds(40) == pytest.approx(2 + 20 * seconds(40), abs=0.02)


def test_a_queue_that_one_client_has_filled_has_room_for_another(engine: Engine, one: Batcher) -> None:
    admit_until_full(one, "greedy", 4000)
    with pytest.raises(Overloaded):
        one.admit("greedy", 4000, BEST)
    for n_units in (40, 4000):
        one.admit(f"other {n_units}", n_units, BEST)


def test_a_short_request_is_admitted_next_to_long_ones_of_the_same_client(one: Batcher) -> None:
    admit_until_full(one, "a", 4000)
    one.admit("a", 40, BEST)


def test_no_request_is_admitted_that_would_take_too_long_to_be_answered(engine: Engine) -> None:
    short = Batcher(engine, Limits(seconds=5))
    assert admit_until_full(short, "a", 4000) <= 0.8 * 5 + 1
    assert short.close(10)


def test_three_weblates_at_once_are_served() -> None:
    """Each sends 20 strings of 400 characters, from four workers: together this takes 15 seconds on a core."""
    pace = 6.25e-5 * 2  # seconds per unit: 8,000 units a second, half of what this was measured with
    server = Batcher(lambda texts, *_: [Translation(text=text) for text in texts])
    server._pace.record(1e9, 1e9 * pace, (4, False))
    strings = ["This sentence has about sixty-seven characters, as in many programs."] * 6
    for n in range(12):
        server.admit(f"weblate {n % 3}", estimated_units([" ".join(strings)[:400]] * 20), BEST)
    assert server.close(10)


def test_what_was_measured_bounds_the_queue(engine: Engine, one: Batcher) -> None:
    before = admit_until_full(one, "a", 40)
    slow = Batcher(engine)
    slow._pace.record(1e6, 1e6 * FIRST_GUESS * 10, (4, False))
    assert admit_until_full(slow, "a", 40) == pytest.approx(20 + (before - 20) / 10, rel=0.2)
    assert slow.close(10)


def test_a_request_larger_than_the_queue_is_taken_if_nothing_waits(engine: Engine) -> None:
    small = Batcher(engine, Limits(max_wait=0, seconds=0.1))
    assert len(texts(ask(small, ["x" * 1000] * 10))) == 10
    assert small.close(10)


def test_the_place_of_a_request_that_ends_early_is_free_again(one: Batcher) -> None:
    ticket: Ticket
    with pytest.raises(ValueError, match="early"), one.admit("a", 4000, BEST) as ticket:
        assert one.waiting_seconds == pytest.approx(seconds(4000))
        raise ValueError("early")
    assert one.waiting_seconds == 0
    assert ticket.seconds == pytest.approx(seconds(4000))


def test_lanes_translate_at_the_same_time() -> None:
    meeting = threading.Barrier(3, timeout=10)

    def translate(texts: list[str], config: SearchConfig, details: bool) -> list[Translation]:
        meeting.wait()
        return [Translation(text=text) for text in texts]

    three = Batcher(translate, n_lanes=3, batch_units=40)
    waiting = [ask(three, ["x"], client=client) for client in ("a", "b", "c")]
    assert [texts(future) for future in waiting] == [["x"]] * 3
    assert three.close(10)


def test_what_is_cancelled_is_not_translated(engine: Engine, one: Batcher) -> None:
    with engine.held_up(one):
        gone, stays = ask(one, ["gone"], BEST), ask(one, ["stays"], BEST)
        assert gone.cancel()
    assert texts(stays) == ["STAYS"]
    assert not any("gone" in batch for batch in engine.batches)
    with pytest.raises(CancelledError):
        gone.result(0)
    assert one.waiting_seconds == 0


def test_a_bug_reaches_those_who_wait_and_nobody_else(engine: Engine, one: Batcher) -> None:
    with pytest.raises(RuntimeError, match="a bug"):
        ask(one, ["bug"], BEST).result(10)
    assert texts(ask(one, ["next"], BEST)) == ["NEXT"]
    assert one.waiting_seconds == 0


def call(batcher: Batcher, function: Callable[[Any], Any], values: Sequence[Any]) -> "Future[list[Any]]":
    ticket = batcher.admit("a", 40, BEST)
    future = ticket.call(function, values)
    future.add_done_callback(lambda _: ticket.__exit__())
    return future


def test_functions_are_called_in_a_thread_of_the_model(one: Batcher) -> None:
    found = call(one, lambda n: (n, threading.current_thread().name), [1, 2])
    assert found.result(10) == [(1, "lane 0"), (2, "lane 0")]
    with pytest.raises(ZeroDivisionError):
        call(one, lambda n: 1 // n, [1, 0]).result(10)
    assert call(one, str, []).result(10) == []
    wait_until_nothing_waits(one)


def test_one_function_is_called_at_a_time() -> None:
    many, running, most = Batcher(Engine(), n_lanes=4), list[int](), list[int]()

    def work(n: int) -> None:
        running.append(n)
        most.append(len(running))
        time.sleep(0.005)
        running.remove(n)

    for future in [call(many, work, [n]) for n in range(10)]:
        future.result(10)
    assert max(most) == 1
    assert many.close(10)


def wait_until_nothing_waits(one: Batcher) -> None:
    """A future is done a moment before the count goes down."""
    deadline = time.monotonic() + 10
    while one.waiting_seconds:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_calls_of_an_admitted_request_are_not_refused_by_a_full_queue(engine: Engine, one: Batcher) -> None:
    ticket = one.admit("a", 40, BEST)
    admit_until_full(one, "a", 40)
    with ticket:
        assert ticket.call(str, range(1000)).result(10) == [str(n) for n in range(1000)]


def test_many_calls_do_not_hold_up_a_translation(one: Batcher) -> None:
    calls = call(one, lambda _: time.sleep(0.01), range(500))
    assert texts(ask(one, ["short"])) == ["SHORT"]
    assert not calls.done()
    calls.cancel()
    wait_until_nothing_waits(one)


def test_calls_end_when_nobody_waits_for_them(one: Batcher) -> None:
    called: list[int] = []

    def slow(n: int) -> None:
        called.append(n)
        time.sleep(0.05)

    canceled = call(one, slow, range(100))
    assert canceled.cancel()
    wait_until_nothing_waits(one)
    assert one.close(10)
    assert len(called) <= 1


def test_a_panic_of_a_library_reaches_the_client_and_the_thread_lives_on(engine: Engine, one: Batcher) -> None:
    """Rust libraries raise what is no Exception."""
    engine.error = type("PanicException", (BaseException,), {})("with the text of a user")
    with pytest.raises(RuntimeError, match=r"^PanicException$"):
        ask(one, ["bug"], BEST).result(10)
    assert texts(ask(one, ["next"], BEST)) == ["NEXT"]


def test_closing_finishes_what_is_there_and_takes_no_more(engine: Engine) -> None:
    closing = Batcher(engine)
    with engine.held_up(closing):
        waiting = [ask(closing, [f"t{n}"], BEST) for n in range(50)]
        thread = threading.Thread(target=closing.close, args=(10,))
        thread.start()
        time.sleep(0.05)
        with pytest.raises(ShuttingDown):
            ask(closing, ["too late"], BEST)
    thread.join(10)
    assert [texts(future) for future in waiting] == [[f"T{n}"] for n in range(50)]


def test_nothing_is_lost_when_everybody_comes_at_once(engine: Engine, one: Batcher) -> None:
    """Many threads, some of which cancel; the count of what waits comes back to nothing."""
    answers: dict[int, list[str]] = {}

    def client(number: int) -> None:
        future = ask(one, [f"c{number}", "x"], (BEST, GREEDY)[number % 2])
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
    ask(one, ["last"], BEST).result(10)
    time.sleep(0.05)
    assert one.waiting_seconds == 0
