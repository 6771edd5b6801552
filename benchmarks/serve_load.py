"""Measure a server next to greedy clients and under ten times the load that it can serve.

python -m benchmarks.serve_load           # about five minutes, on an otherwise idle machine with two cores

The server has the first core and the load generator the second, so that neither takes time from the other; a server
that has all cores is faster. Every client has an address of its own (127.0.0.0/8; Linux). Ratios are to the idle
server, measured directly before.
"""

import argparse
import asyncio
import json
import os
import random
import re
import statistics
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from multihead.bench.serving import server_process
from multihead.console import make_table
from multihead.data.embedded_corpus import embedded_pairs
from multihead.hardware.load import busy_warning

WARM_UP = 1.0  # seconds
STEADY = 8.0  # seconds until what was admitted first has been answered
PROBE_PAUSE = 0.05  # seconds between short requests next to a greedy client
LONG = "I have lost my passport and my brother lives in a small village near the old town "


@dataclass(slots=True)
class Answers:
    """Seconds to each answer by status, and what was closed without one."""

    seconds: dict[int, list[float]] = field(default_factory=dict)
    n_closed: int = 0

    def add(self, status: int, seconds: float) -> None:
        self.seconds.setdefault(status, []).append(seconds)

    def percentile(self, n: int, *statuses: int) -> float:
        """Return a percentile in milliseconds."""
        found = [second for status in statuses for second in self.seconds.get(status, [])]
        if len(found) < 2:
            return 1000 * found[0] if found else float("nan")
        return 1000 * statistics.quantiles(found, n=100, method="inclusive")[n - 1]

    def count(self, status: int) -> int:
        return len(self.seconds.get(status, []))


class Connection(asyncio.Protocol):
    """A connection with one request at a time; lighter than streams, so that the generator keeps up."""

    def __init__(self) -> None:
        self._data = b""
        self._answer: asyncio.Future[int] | None = None
        self.is_open = False

    def connection_made(self, transport: Any) -> None:
        self.transport, self.is_open = transport, True

    def data_received(self, data: bytes) -> None:
        self._data += data
        head, end, body = self._data.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head) if end else None
        if length and len(body) >= int(length[1]):
            self._data = b""
            if self._answer and not self._answer.done():
                self._answer.set_result(int(head[9:12]))

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_open = False
        if self._answer and not self._answer.done():
            self._answer.set_exception(ConnectionResetError())

    async def ask(self, request: bytes) -> int:
        """Send a request and return the status of its answer."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer


@dataclass(frozen=True, slots=True)
class Target:
    """A server under load."""

    port: int
    source: str
    target: str

    def request(self, q: str | list[str], route: str = "/translate", **more: object) -> bytes:
        fields = {"q": q, "source": self.source, "target": self.target, **more}
        body = json.dumps(fields).encode()
        head = f"POST {route} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\n"
        return f"{head}content-length: {len(body)}\r\n\r\n".encode() + body

    async def connect(self, address: str) -> Connection:
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            Connection, "127.0.0.1", self.port, local_addr=(address, 0) if address else None
        )
        return connection

    async def keep_asking(
        self, requests: Sequence[bytes], address: str, answers: Answers, pause: float = 0.0, every: float = 0.0
    ) -> None:
        """Send one request after the other until canceled; with `every`, at regular times if the server keeps up."""
        loop = asyncio.get_running_loop()
        connection, n = await self.connect(address), 0
        due = loop.time() + every * random.random()
        try:
            while True:
                if every:
                    due = max(due + every, loop.time() - every)
                    await asyncio.sleep(due - loop.time())
                if not connection.is_open:
                    connection = await self.connect(address)
                start = time.monotonic()
                try:
                    answers.add(await connection.ask(requests[n % len(requests)]), time.monotonic() - start)
                except ConnectionResetError:
                    answers.n_closed += 1
                n += 1
                if pause:
                    await asyncio.sleep(pause)
        finally:
            connection.transport.abort()


@asynccontextmanager
async def running(*work: Any) -> AsyncIterator[None]:
    """Run coroutines until the end of the block."""
    tasks = [asyncio.ensure_future(one) for one in work]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def load(target: Target, sentences: list[bytes], n_clients: int, seconds: float) -> Answers:
    """Return the answers of closed-loop clients, each with an address of its own."""
    answers = Answers()
    clients = [target.keep_asking(sentences[n:], f"127.0.1.{n + 1}", answers) for n in range(n_clients)]
    async with running(*clients):
        await asyncio.sleep(WARM_UP)
        answers.seconds.clear()
        await asyncio.sleep(seconds)
        return Answers({status: list(found) for status, found in answers.seconds.items()}, answers.n_closed)


async def probe(target: Target, sentences: list[bytes], seconds: float, address: str = "127.0.0.2") -> Answers:
    """Return the answers of a client that sends a short request now and then."""
    answers = Answers()
    async with running(target.keep_asking(sentences, address, answers, PROBE_PAUSE)):
        await asyncio.sleep(seconds)
    return answers


def greedy_kinds(target: Target) -> dict[str, tuple[int, bytes]]:
    """Return how many connections a greedy client has, and its request, for each kind of load."""
    texts = [sentence for sentence, _ in embedded_pairs("test")]
    long = " ".join(texts)[:4900]
    return {
        "20 x HTML, 10 alternatives": (20, target.request("<b>A</b> b. " * 415, format="html", alternatives=10)),
        "4 x 50 texts": (4, target.request([long[n * 90 : n * 90 + 900] for n in range(50)])),
        "20 x 4,900 characters": (20, target.request(long)),
        "1 x 1,249 sentences": (1, target.request("Go. " * 1249)),
        "20 x one sentence of 4,700 characters": (20, target.request(LONG * 57)),
        "20 x 400 equal letters": (20, target.request("a" * 400)),
        "64 x one sentence": (64, target.request(texts[0])),
        "20 x /attention": (20, target.request(LONG * 4, "/attention")),
        "20 x /detect": (20, target.request(long, "/detect")),
    }


async def next_to_greedy(target: Target, sentences: list[bytes], seconds: float) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    for kind, (n_connections, request) in greedy_kinds(target).items():
        await asyncio.sleep(1)  # what the last one left
        idle = await probe(target, sentences, seconds / 2)
        row: dict[str, object] = {"greedy client": kind, "idle p50": round(idle.percentile(50, 200), 1)}
        greed = Answers()
        async with running(*(target.keep_asking([request], "127.0.0.3", greed) for _ in range(n_connections))):
            await asyncio.sleep(WARM_UP)
            beside = await probe(target, sentences, seconds)
            same = await probe(target, sentences, seconds / 2, "127.0.0.3")
        row |= {f"p{n}": round(beside.percentile(n, 200), 1) for n in (50, 95, 99)}
        row["p50 ratio"] = round(beside.percentile(50, 200) / idle.percentile(50, 200), 1)
        row["refused"] = beside.count(503)
        row["same address, ratio"] = round(same.percentile(50, 200) / idle.percentile(50, 200), 1)
        rows.append(row)
        print(row, flush=True)
    return rows


async def overload(  # noqa: PLR0913 - the numbers of a load
    target: Target,
    sentences: list[bytes],
    seconds: float,
    n_connections: int = 1900,
    n_addresses: int = 64,
    n_clients: int = 64,
) -> dict[str, object]:
    """Return what happens at ten times the capacity, which is measured directly before.

    There are more connections than requests that the server lets wait, so that the others keep asking.
    """
    capacity = (await load(target, sentences, n_clients, seconds)).count(200) / seconds
    every = n_connections / (10 * capacity)
    answers = Answers()
    clients = [
        target.keep_asking(sentences[n % 50 :], f"127.0.2.{1 + n % n_addresses}", answers, every=every)
        for n in range(n_connections)
    ]
    async with running(*clients):
        await asyncio.sleep(STEADY)
        answers.seconds.clear()
        await asyncio.sleep(seconds)
        n_sent = sum(map(len, answers.seconds.values()))
        goodput = answers.count(200) / seconds
        return {
            "capacity/s": round(capacity, 1),
            "load": f"{n_sent / seconds / capacity:.1f} x",
            "goodput": f"{goodput / capacity:.0%}",
            "200 p50": round(answers.percentile(50, 200)),
            "200 p99": round(answers.percentile(99, 200)),
            "503": answers.count(503),
            "503 p50": round(answers.percentile(50, 503), 1),
            "503 p99": round(answers.percentile(99, 503), 1),
            "other": n_sent - answers.count(200) - answers.count(503),
            "closed": answers.n_closed,
        }


async def measure(target: Target, seconds: float, only: str) -> None:
    texts = [sentence for sentence, _ in embedded_pairs("test")]
    sentences = [target.request(text) for text in texts]
    thirty = [target.request(" ".join(texts[n : n + 30])) for n in range(100)]
    rows: list[dict[str, object]] = []
    if only in ("", "load"):
        for n_clients in (1, 8, 64):
            answers = await load(target, sentences, n_clients, seconds)
            latencies = {f"p{n} ms": round(answers.percentile(n, 200), 1) for n in (50, 95, 99)}
            rows.append({"clients": n_clients, "requests/s": round(answers.count(200) / seconds, 1), **latencies})
        print(make_table(rows).as_text(), flush=True)
    if only in ("", "greedy"):
        print(make_table(await next_to_greedy(target, sentences, seconds)).as_text(), flush=True)
    if only in ("", "overload"):
        rows = [
            {"requests": "one sentence", "clients": 64, **await overload(target, sentences, seconds)},
            {
                "requests": "one sentence",
                "clients": 1,
                **await overload(target, sentences, seconds, n_connections=1400, n_addresses=1),
            },
            {
                "requests": "30 sentences",
                "clients": 64,
                **await overload(target, thirty, 3 * seconds, 640, n_clients=8),
            },
        ]
        print(make_table(rows).as_text(), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--engine", default="auto")
    parser.add_argument("--seconds", type=float, default=10.0, help="of each measurement")
    parser.add_argument("--only", default="", choices=["", "load", "greedy", "overload"])
    options = parser.parse_args()
    if busy := busy_warning():
        print(busy)
    cores = sorted(os.sched_getaffinity(0))
    os.environ["OMP_NUM_THREADS"] = "1"
    os.sched_setaffinity(0, cores[:1])  # which the server inherits
    with server_process(options.model, options.engine, 32) as (port, languages):
        os.sched_setaffinity(0, cores[1:2] or cores)
        asyncio.run(measure(Target(port, *languages), options.seconds, options.only))


if __name__ == "__main__":
    main()
