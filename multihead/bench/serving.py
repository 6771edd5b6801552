"""`multihead bench serve`: a load test on loopback, with requests merged into batches and with one at a time."""

import asyncio
import contextlib
import json
import re
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass

from multihead.data.embedded_corpus import embedded_pairs
from multihead.errors import UserError

CLIENTS = (1, 8, 64)
WARM_UP = 2.0  # seconds before requests are counted
MERGED, ONE_AT_A_TIME = "merged", "one_at_a_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """Throughput and latencies with a number of clients, each of which sends a request as soon as it has its response.

    Latencies are in milliseconds.
    """

    clients: int
    requests_per_second: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingReport:
    """The load with requests merged and one at a time, by the number of clients."""

    model: str
    merged: list[Load]
    one_at_a_time: list[Load]

    def to_dict(self) -> dict[str, object]:
        return {
            "model": self.model,
            **{name: {str(load.clients): asdict(load) for load in loads} for name, loads in self._by_mode().items()},
        }

    def _by_mode(self) -> dict[str, list[Load]]:
        return {MERGED: self.merged, ONE_AT_A_TIME: self.one_at_a_time}

    def as_text(self) -> str:
        lines = [f"{'':<14} {'clients':>7} {'requests/s':>11} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8}"]
        for name, loads in self._by_mode().items():
            lines += [
                f"{name.replace('_', ' '):<14} {load.clients:>7} {load.requests_per_second:>11.1f} "
                f"{load.p50:>8.1f} {load.p95:>8.1f} {load.p99:>8.1f}"
                for load in loads
            ]
        return "\n".join(lines)


def bench_serving(model: str, engine: str, seconds: float) -> ServingReport:
    """Start a server in each mode, and load it with more and more clients."""
    measured = {}
    for name, max_batch in ((MERGED, 32), (ONE_AT_A_TIME, 1)):
        with server_process(model, engine, max_batch) as (port, languages):
            requests = _requests(port, *languages)
            measured[name] = [asyncio.run(_load(port, requests, clients, seconds)) for clients in CLIENTS]
    return ServingReport(model=model, merged=measured[MERGED], one_at_a_time=measured[ONE_AT_A_TIME])


@contextlib.contextmanager
def server_process(model: str, engine: str, max_batch: int) -> Iterator[tuple[int, tuple[str, str]]]:
    """Run a server in a separate process; yield its port and its language pair."""
    command = [sys.executable, "-m", "multihead", "serve", model, "--port=0", "--no-log"]
    command += [f"--engine={engine}", f"--max-batch={max_batch}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        output = ""
        for line in process.stderr:
            output += line
            if line.startswith("ready"):
                break
        address, pair = re.search(r"http://\S+:(\d+)", output), re.search(r"ready: (\S+) to (\w+)", output)
        if not address or not pair:
            raise UserError(f"the server did not start: {output.strip()}")
        try:
            yield int(address[1]), (pair[1], pair[2])
        finally:
            process.terminate()


def _requests(port: int, source: str, target: str) -> list[bytes]:
    """Return an HTTP request for each test sentence of the embedded corpus."""
    requests = []
    for text, _ in embedded_pairs("test"):
        body = json.dumps({"q": text, "source": source, "target": target}).encode()
        head = f"POST /translate HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        requests.append(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return requests


async def _load(port: int, requests: list[bytes], clients: int, seconds: float) -> Load:
    """Send requests from several clients at once and measure those that end after the warm-up."""
    first = time.monotonic() + WARM_UP
    last = first + seconds
    running = (_client(port, requests, number, clients, last) for number in range(clients))
    responses = [response for client in await asyncio.gather(*running) for response in client]
    times = sorted(1000 * (end - start) for start, end in responses if first <= end <= last)
    if len(times) < 2:
        raise UserError(f"only {len(times)} requests were answered in {seconds:g} seconds: raise --seconds")
    percentiles = statistics.quantiles(times, n=100, method="inclusive")
    return Load(
        clients=clients,
        requests_per_second=len(times) / seconds,
        p50=percentiles[49],
        p95=percentiles[94],
        p99=percentiles[98],
    )


async def _client(
    port: int, requests: list[bytes], number: int, clients: int, last: float
) -> list[tuple[float, float]]:
    """Send requests over one connection until `last`; return when each was sent and when its response was complete."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times, index = [], number
    while (start := time.monotonic()) < last:
        writer.write(requests[index % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert head.startswith(b"HTTP/1.1 200") and length, head
        await reader.readexactly(int(length[1]))
        times.append((start, time.monotonic()))
        index += clients
    writer.close()
    await writer.wait_closed()
    return times
