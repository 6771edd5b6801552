"""Abuse of the server: malformed requests, bombs, slow and greedy clients, overload, SIGTERM."""

import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

from tests.gauntlet.outcome import Row

SECONDS = 60.0  # for any answer
SHORT: dict[str, object] = {"q": "A dog.", "source": "en", "target": "de"}
ANSWERS = (200, 400, 404, 405, 408, 411, 413, 414, 415, 422, 429, 431, 503)  # 500 and 502 are failures


@contextmanager
def serving(folder: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int]]:
    """Yield a server on a free port; its messages go to a file."""
    environment = {**os.environ, "XDG_CACHE_HOME": str(folder / "cache")}
    with (folder / "stderr").open("wb") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-m", "multihead", "serve", "en-de", "--port", "0"],
            stdout=stderr,
            stderr=stderr,
            env=environment,
        )
    try:
        yield process, _port(folder / "stderr", process)
    finally:
        process.kill()
        process.wait()


def _port(messages: Path, process: "subprocess.Popen[bytes]") -> int:
    end = time.monotonic() + 120
    while process.poll() is None and time.monotonic() < end:
        if found := re.search(r"http://[^\s:]+:(\d+)", messages.read_text(encoding="utf-8")):
            return int(found[1])
        time.sleep(0.1)
    raise RuntimeError(f"the server did not start: {messages.read_text(encoding='utf-8')[-300:]}")


def malformed(fast: bool) -> dict[str, bytes]:
    """Return raw requests by name."""
    line, host = b"POST /translate HTTP/1.1\r\n", b"Host: localhost\r\n"
    kind = b"Content-Type: application/json\r\n"
    found = {
        "no HTTP": b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n",
        "no version": b"GET /\r\n\r\n",
        "length below 0": line + host + kind + b"Content-Length: -1\r\n\r\n{}",
        "two lengths": line + host + kind + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{}x",
        "bad chunk": line + host + kind + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        "long path": b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\n" + host + b"\r\n",
        "10,000 headers": b"GET /health HTTP/1.1\r\n" + host + b"a: b\r\n" * 10_000 + b"\r\n",
    }
    bodies = [b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"q":1}', b"[" * 50_000, b'{"q":' * 5_000, b"1" * 5_000,
              b'{"q":"a","source":"en","target":[]}', b'{"q":"\\ud800","source":"en","target":"de"}',
              b'{"q":"a","source":"en","target":"de","alternatives":1e99}']  # fmt: skip
    rng = random.Random(5)
    bodies += [rng.randbytes(rng.randint(1, 200)) for _ in range(3 if fast else 50)]
    for number, body in enumerate(bodies):
        length = f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
        found[f"body {number}: {body[:12]!r}"] = line + host + kind + length + body
    return found


def _send_raw(port: int, request: bytes) -> str | None:
    """Return a problem: no answer, or one that is not of a server that understood the mistake."""
    with closing(socket.create_connection(("127.0.0.1", port), timeout=SECONDS)) as client:
        try:
            client.sendall(request)
            client.shutdown(socket.SHUT_WR)
            answer = client.recv(65_536)
        except (ConnectionResetError, BrokenPipeError):
            return None  # refused without reading it all
        except TimeoutError:
            return "no answer"
    status = re.match(rb"HTTP/1\.\d (\d+)", answer)
    return f"answered {answer[:40]!r}" if answer and (not status or int(status[1]) not in ANSWERS) else None


def bombs(fast: bool) -> dict[str, dict[str, object]]:
    """Return requests whose work could grow faster than their size."""
    size = 500 if fast else 4_900
    texts = {
        "full stops": "." * size + "x",
        "declaration": "<![ MySecretName 555",
        "unclosed tags": "<b>" * (size // 3),
        "nested": "<div>" * (size // 12) + "a" + "</div>" * (size // 12),
        "entities": "&amp;" * (size // 5),
        "attributes": "<a " + "b=c " * (size // 4) + ">x</a>",
        "sentences": "<b>A</b> b. " * (size // 12),
    }
    return {
        f"{name}, {kind}": {**SHORT, "q": text, "format": kind} for name, text in texts.items()
        for kind in ("text", "html")
    }  # fmt: skip


def _post(port: int, body: dict[str, object], seconds: float = SECONDS) -> str | None:
    try:
        answer = httpx.post(f"http://127.0.0.1:{port}/translate", json=body, timeout=seconds)
    except httpx.HTTPError as error:
        return f"{type(error).__name__}: {error}"
    if answer.status_code not in ANSWERS:
        return f"status {answer.status_code}"
    try:
        json.loads(answer.text)
    except ValueError:
        return f"status {answer.status_code} without JSON"
    return None if answer.status_code != 503 or "retry-after" in answer.headers else "503 without Retry-After"


def _timed(row: Row, name: str, problem: str | None, began: float) -> None:
    row.add(name, problem, time.monotonic() - began)


def _slow_clients(row: Row, port: int, n: int) -> None:
    """Clients that begin a request and wait do not keep others out."""
    clients = [socket.create_connection(("127.0.0.1", port), timeout=SECONDS) for _ in range(n)]
    for client in clients:
        client.sendall(b"POST /translate HTTP/1.1\r\nHost: x\r\nContent-Le")
    began = time.monotonic()
    _timed(row, f"beside {n} slow clients", _post(port, SHORT), began)
    for client in clients:
        client.close()


def _overload(row: Row, port: int, n: int) -> None:
    """Every request of an overload gets an answer: a translation, or 503 with a time to retry."""
    began = time.monotonic()
    bodies = [{**SHORT, "q": f"Sentence number {number} is about a dog. " * 10} for number in range(n)]
    with ThreadPoolExecutor(64) as pool:
        for problem in pool.map(lambda body: _post(port, body), bodies):
            row.add("overload", problem)
    row.seconds = max(row.seconds, time.monotonic() - began)


def run(fast: bool, folder: Path) -> Row:
    row = Row("server abuse")
    with serving(folder) as (process, port):
        began = time.monotonic()
        _timed(row, "a first request", _post(port, SHORT), began)
        for name, request in malformed(fast).items():
            began = time.monotonic()
            _timed(row, name, _send_raw(port, request), began)
        for name, body in bombs(fast).items():
            began = time.monotonic()
            _timed(row, name, _post(port, body), began)
        _slow_clients(row, port, 20 if fast else 200)
        _overload(row, port, 30 if fast else 1_000)
        began = time.monotonic()
        _timed(row, "after all of it", _post(port, SHORT), began)
        began = time.monotonic()
        process.send_signal(signal.SIGTERM)
        status = process.wait(SECONDS)
        _timed(row, "SIGTERM", None if status == 0 else f"status {status}", began)
    if "Traceback" in (messages := (folder / "stderr").read_text(encoding="utf-8", errors="replace")):
        row.failures.append(f"traceback in the log: {messages[-300:]}")
    return row
