"""Clients get equal shares of the time, and a short request never waits for long ones. Without threads or a clock."""

import heapq
from collections.abc import Callable
from itertools import count

import pytest

from multihead.config.schema import SearchConfig
from multihead.serve.fair_queue import SMALL_UNITS, Batch, FairQueue, Job
from multihead.serve.pace import SENTENCE_UNITS, Pace

SEARCH = (SearchConfig(), False)
SECONDS = 0.01  # of a sentence on a core of its own


class Server:
    """Lanes on one core that takes a fixed time per sentence; lanes do not slow each other down."""

    def __init__(self, n_lanes: int = 3, batch_units: int = 160) -> None:
        self.queue = FairQueue(Pace(), n_lanes, 32, batch_units)
        self.n_lanes, self.now = n_lanes, 0.0
        self.done: dict[Job, float] = {}
        self.seconds_of: Callable[[str], float] = lambda sentence: SECONDS * (1 + len(sentence) // 100)
        self._under_way: list[tuple[float, int, Batch, float]] = []
        self._number = count()

    def add(self, client: str, *sentences: str) -> Job:
        job = Job(client, sentences, SEARCH)
        self.queue.add(job)
        return job

    def fill_lanes(self) -> None:
        while self.queue.n_busy < self.n_lanes and (batch := self.queue.take()).jobs:
            seconds = sum(self.seconds_of(job.items[index]) for job, index in batch.jobs)
            heapq.heappush(self._under_way, (self.now + seconds, next(self._number), batch, seconds))

    def step(self) -> Batch:
        """Let the next lane finish."""
        self.fill_lanes()
        self.now, _, batch, seconds = heapq.heappop(self._under_way)
        self.queue.finish(batch, seconds)
        for job, index in batch.jobs:
            job.results[index] = True
            if len(job.results) == len(job.items):
                self.done[job] = self.now
        return batch

    def run_until(self, job: Job) -> float:
        while job not in self.done:
            self.step()
        return self.done[job]


def sentences_of(server: Server, n_steps: int) -> dict[str, int]:
    found: dict[str, int] = {}
    for _ in range(n_steps):
        for job, _ in server.step().jobs:
            found[job.client] = found.get(job.client, 0) + 1
    return found


def test_clients_get_equal_shares_however_many_requests_they_have() -> None:
    server = Server()
    for _ in range(20):
        server.add("greedy", *["sentence"] * 50)
    server.add("modest", *["sentence"] * 1000)
    found = sentences_of(server, 200)
    assert found["modest"] == pytest.approx(found["greedy"], rel=0.1)


def test_shares_are_of_time_and_not_of_sentences() -> None:
    """The sentences of one client take ten times as long."""
    server = Server()
    server.seconds_of = {"easy": SECONDS, "hard": 10 * SECONDS}.__getitem__
    server.add("a", *["hard"] * 100)
    server.add("b", *["easy"] * 1000)
    found = sentences_of(server, 300)
    assert found["b"] == pytest.approx(10 * found["a"], rel=0.15)


@pytest.mark.parametrize("length", [10, 4000])
def test_a_short_request_of_another_client_starts_at_once(length: int) -> None:
    server = Server()
    for _ in range(20):
        server.add("greedy", *["x" * length] * 100)
    for _ in range(10):
        server.step()
        server.fill_lanes()
        short = server.add("other", "Where is the station?")
        assert server.run_until(short) - server.now < 1e-9
        assert server.done[short] <= server.now + 2 * SECONDS


def test_a_short_request_does_not_wait_for_long_ones_of_the_same_client() -> None:
    server = Server()
    for _ in range(20):
        server.add("one", *["x" * 4000] * 10)
    server.fill_lanes()
    began = server.now
    assert server.run_until(server.add("one", "short")) - began <= 2 * SECONDS


def test_one_client_alone_keeps_every_core_busy() -> None:
    for n_cores in (1, 2, 8):
        server = Server(n_lanes=n_cores + 2)
        server.add("alone", *["x" * 500] * 100)
        server.fill_lanes()
        assert server.queue.n_busy == n_cores


def test_a_lane_stays_free_for_new_clients_next_to_any_number_of_requests_of_one() -> None:
    server = Server(n_lanes=4)
    for _ in range(100):
        server.add("greedy", "short")
    server.fill_lanes()
    assert server.queue.n_busy == 3
    server.add("other", "short")
    server.fill_lanes()
    assert server.queue.n_busy == 4


def test_an_idle_client_does_not_save_up_time() -> None:
    server = Server()
    server.run_until(server.add("early", "hello"))
    server.add("busy", *["sentence"] * 1000)
    sentences_of(server, 100)
    server.add("early", *["sentence"] * 1000)
    found = sentences_of(server, 100)
    assert found["early"] == pytest.approx(found["busy"], rel=0.15)


def test_a_client_whose_text_took_longer_than_expected_pays_for_it() -> None:
    server = Server(n_lanes=1, batch_units=40)
    server.seconds_of = {"slow": 100 * SECONDS, "fast": SECONDS}.__getitem__
    server.add("a", "slow", "slow")
    server.add("b", *["fast"] * 90)
    order = [job.client for _ in range(20) for job, _ in server.step().jobs]
    assert order.count("a") == 1


def test_sentences_of_several_clients_are_merged_up_to_a_size() -> None:
    server = Server(n_lanes=1, batch_units=800)
    for n in range(50):
        server.add(f"client {n}", "x" * 40)
    batch = server.step()
    assert len(batch.jobs) == 800 // (SENTENCE_UNITS + 40)
    assert len(batch.clients) == len(batch.jobs)


def test_a_small_request_is_a_few_short_sentences() -> None:
    assert Job("a", ["Hello."] * 3, SEARCH).is_small
    assert not Job("a", ["x" * SMALL_UNITS], SEARCH).is_small
    assert not Job("a", ["Go."] * 50, SEARCH).is_small
    assert not Job("a", ["Hello."], None, str).is_small


def test_what_is_removed_is_not_taken_and_clients_are_forgotten() -> None:
    server = Server()
    job = server.add("gone", "a", "b")
    server.queue.remove(job)
    assert not server.queue
    for n in range(1000):
        server.run_until(server.add(f"client {n}", "a"))
    assert len(server.queue._clients) < 10


def test_a_request_that_is_nearly_done_is_finished_before_new_ones_of_its_size() -> None:
    """Otherwise a client that keeps asking would have many requests half done, and none in time."""
    server = Server(n_lanes=1)
    first = server.add("a", *["sentence"] * 20)
    for _ in range(4):
        server.step()
    later = [server.add("a", *["sentence"] * 20) for _ in range(5)]
    assert server.run_until(first) < min(server.run_until(job) for job in later)
