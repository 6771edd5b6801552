"""`multihead bench serve`: a load test on loopback, beside the same server when it serves one sentence at a time."""

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
WARM_UP = 2.0  # seconds that are not counted
MERGED, ALONE = "merged", "one_at_a_time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What so many clients got, each asking again as soon as it had its answer; times in milliseconds."""

    clients: int
    requests_per_second: float
    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """Both ways of serving, by the number of clients."""

    model: str
    merged: list[Load]
    one_at_a_time: list[Load]

    def to_dict(self) -> dict[str, object]:
        return {
            "model": self.model,
            **{name: {str(load.clients): asdict(load) for load in loads} for name, loads in self._both().items()},
        }

    def _both(self) -> dict[str, list[Load]]:
        return {MERGED: self.merged, ALONE: self.one_at_a_time}

    def as_text(self) -> str:
        lines = [f"{'':<14} {'clients':>7} {'requests/s':>11} {'p50 ms':>8} {'p95 ms':>8} {'p99 ms':>8}"]
        for name, loads in self._both().items():
            lines += [
                f"{name.replace('_', ' '):<14} {load.clients:>7} {load.requests_per_second:>11.1f} "
                f"{load.p50:>8.1f} {load.p95:>8.1f} {load.p99:>8.1f}"
                for load in loads
            ]
        return "\n".join(lines)


def bench_serving(model: str, engine: str, seconds: float) -> Report:
    """Start a server in each way, and let more and more clients ask."""
    measured = {}
    for name, batch in ((MERGED, 32), (ALONE, 1)):
        with _serving(model, engine, batch) as (port, languages):
            requests = _requests(port, *languages)
            measured[name] = [asyncio.run(_load(port, requests, clients, seconds)) for clients in CLIENTS]
    return Report(model=model, merged=measured[MERGED], one_at_a_time=measured[ALONE])


@contextlib.contextmanager
def _serving(model: str, engine: str, batch: int) -> Iterator[tuple[int, tuple[str, str]]]:
    """The port and the languages of a server in a process of its own."""
    command = [sys.executable, "-m", "multihead", "serve", model, "--port=0", "--no-log"]
    command += [f"--engine={engine}", f"--max-batch={batch}"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        said = ""
        for line in process.stderr:
            said += line
            if line.startswith("ready"):
                break
        address, pair = re.search(r":(\d+); loading", said), re.search(r"ready: (\S+) to (\w+)", said)
        if not address or not pair:
            raise UserError(f"the server did not start: {said.strip()}")
        try:
            yield int(address[1]), (pair[1], pair[2])
        finally:
            process.terminate()


def _requests(port: int, source: str, target: str) -> list[bytes]:
    """A request for each of the sentences of the embedded corpus."""
    made = []
    for text, _ in embedded_pairs("test"):
        body = json.dumps({"q": text, "source": source, "target": target}).encode()
        head = f"POST /translate HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
        made.append(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
    return made


async def _load(port: int, requests: list[bytes], clients: int, seconds: float) -> Load:
    began = time.monotonic()
    first, last = began + WARM_UP, began + WARM_UP + seconds
    asking = (_client(port, requests, number, clients, last) for number in range(clients))
    answered = [one for of_client in await asyncio.gather(*asking) for one in of_client]
    times = sorted(1000 * (end - start) for start, end in answered if first <= end <= last)
    if len(times) < 2:
        raise UserError(f"no more than {len(times)} requests were answered in {seconds:g} seconds: measure for longer")
    hundredths = statistics.quantiles(times, n=100, method="inclusive")
    return Load(
        clients=clients,
        requests_per_second=len(times) / seconds,
        p50=hundredths[49],
        p95=hundredths[94],
        p99=hundredths[98],
    )


async def _client(
    port: int, requests: list[bytes], number: int, clients: int, last: float
) -> list[tuple[float, float]]:
    """Ask again and again over one connection; when each request was sent, and when its answer was there."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    times, at = [], number
    while (start := time.monotonic()) < last:
        writer.write(requests[at % len(requests)])
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head)
        assert head.startswith(b"HTTP/1.1 200") and length, head
        await reader.readexactly(int(length[1]))
        times.append((start, time.monotonic()))
        at += clients
    writer.close()
    await writer.wait_closed()
    return times
