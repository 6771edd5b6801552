"""Connections: their number, what is refused unread, and clients that do not read."""

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from multihead.config.schema import SearchConfig
from multihead.serve import protocol
from multihead.serve.access import Access
from multihead.serve.app import AppState
from multihead.serve.options import Limits
from multihead.serve.pace import estimated_units
from multihead.serve.protocol import OVERLOADED, Connections, protocol_of
from multihead.serve.service import Service
from multihead.translation.translator import Translator
from tests.unit.serve.conftest import Process, in_a_loop

BODY = b'{"q":"Hello.","source":"en","target":"de"}'


def request(*headers: str, body: bytes = BODY, route: str = "/translate") -> bytes:
    lines = [f"POST {route} HTTP/1.1", "host: x", *(headers or [f"content-length: {len(body)}"]), "", ""]
    return "\r\n".join(lines).encode() + body


@pytest.fixture
def full(en_de: Translator) -> Iterator[Connections]:
    """The connections of a server that has no room for client "a"."""
    state = AppState()
    state.service = Service([en_de], Limits(max_wait=0))
    batcher = state.service.directions["en", "de"].batcher
    tickets = [batcher.admit("a", 1000, SearchConfig()) for _ in range(21)]
    yield Connections(state, has_proxies=False)
    assert tickets
    assert state.service.close(10)


def test_a_small_request_is_refused_unread_if_its_client_has_no_room(full: Connections) -> None:
    assert full.refuses(request(), "a")
    assert not full.refuses(request(), "b")


def test_a_form_is_refused_unread_like_json(full: Connections) -> None:
    form = b"q=Hello.&source=en&target=de"
    assert full.refuses(request(f"content-length: {len(form)}", body=form), "a")


@pytest.mark.parametrize("body", [b"{}", b'{"q": 1}', b'{"q": [1]}', b'["q"]', b"{", b"x", b"\xff", b'{"q": []}'])
def test_a_request_that_is_wrong_is_read_to_say_so(full: Connections, body: bytes) -> None:
    assert not full.refuses(request(f"content-length: {len(body)}", body=body), "a")


@pytest.mark.parametrize(
    "data",
    [
        request(route="/health"),
        request()[:-1],  # not all of it
        request() + b"x",  # and more
        request("content-length: 42", "content-length: 42"),
        request("content-length: 42", "transfer-encoding: chunked"),
        request("content-length: 42", "expect: 100-continue"),
        request("content-length: 42", "connection: close"),
        request("content-length : 42"),
        request("content-length: 42", " folded: line"),
        request("x: y"),
        request("content-length: 20000", body=b"x" * 20_000),
        b"POST /translate HTTP/1.0\r\ncontent-length: 42\r\n\r\n" + BODY,
    ],
)
def test_anything_unusual_is_read(full: Connections, data: bytes) -> None:
    assert not full.refuses(data, "a")


def test_keys_and_proxies_say_whose_a_request_is_so_it_is_read(full: Connections) -> None:
    assert full.refuses(request(), "a")
    full.state.access = Access(frozenset({"key"}))
    assert not full.refuses(request(), "a")
    full.state.access, full.has_proxies = Access(), True
    assert not full.refuses(request(), "a")


def test_the_refusal_says_when_to_come_again_and_has_the_usual_headers() -> None:
    head, _, body = OVERLOADED.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 503 ")
    for line in (b"retry-after: 1", b"access-control-allow-origin: *", b"x-content-type-options: nosniff"):
        assert line in head
    assert f"content-length: {len(body)}".encode() in head
    assert body.startswith(b'{"error":"')


def test_no_client_can_have_all_connections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS", 10)
    monkeypatch.setattr(protocol, "MAX_CONNECTIONS_PER_CLIENT", 7)
    shared = Connections(AppState(), has_proxies=False)
    assert [shared.open("greedy") for _ in range(9)] == [True] * 7 + [False] * 2
    assert [shared.open("other") for _ in range(4)] == [True] * 3 + [False]
    shared.close("greedy")
    assert shared.open("other")
    assert all(Connections(AppState(), has_proxies=True).open("proxy") for _ in range(10))


Start = Callable[..., Process]


def connect(served: Process, receive_buffer: int | None = None) -> socket.socket:
    client = socket.socket()
    client.settimeout(30)
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.connect(("127.0.0.1", served.port))
    return client


@pytest.mark.long
def test_headers_are_bounded_even_in_one_piece(served: Process) -> None:
    many = "".join(f"x{n}: y\r\n" for n in range(200))
    for headers in (f"x: {'y' * 20_000}\r\n", many):
        with connect(served) as client:
            client.sendall(f"GET /health HTTP/1.1\r\nhost: x\r\n{headers}\r\n".encode())
            assert client.recv(100).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))


@pytest.mark.long
def test_a_request_with_two_lengths_is_refused_and_hung_up_on(served: Process) -> None:
    with connect(served) as client:
        client.sendall(request("content-length: 5", "transfer-encoding: chunked", body=b"0\r\n\r\n"))
        answer = b""
        while data := client.recv(1000):
            answer += data
        assert answer.startswith(b"HTTP/1.1 400")


@pytest.mark.long
def test_no_route_redirects_to_the_host_that_was_sent(served: Process) -> None:
    with connect(served) as client:
        client.sendall(b"GET /health/ HTTP/1.1\r\nhost: evil.example\r\n\r\n")
        answer = client.recv(1000)
        assert answer.startswith(b"HTTP/1.1 404")
        assert b"evil.example" not in answer


@pytest.mark.long
def test_a_connection_beyond_the_limit_is_told_why(start: Start) -> None:
    served = start()
    held = [connect(served) for _ in range(protocol.MAX_CONNECTIONS_PER_CLIENT)]
    try:
        with connect(served) as client:
            client.sendall(request())
            answer = client.recv(1000)
            assert answer.startswith(b"HTTP/1.1 503")
            assert b"too many connections" in answer
    finally:
        for one in held:
            one.close()
    deadline = time.monotonic() + 20
    while True:
        with connect(served) as client:
            client.sendall(request())
            if client.recv(1000).startswith(b"HTTP/1.1 200"):
                return
        assert time.monotonic() < deadline


ANSWER = b"x" * 8_000_000  # more than the buffers of a connection hold


async def large_answer(scope: Scope, receive: Receive, send: Send) -> None:
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"8000000")]})
    await send({"type": "http.response.body", "body": ANSWER})


async def bytes_read(pause: float) -> int:
    """How much of the answer a client gets that pauses after the first bytes."""
    config = uvicorn.Config(
        large_answer, port=0, http=protocol_of(AppState(), False), lifespan="off", log_level="error"
    )
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server._serve())
    while not server.started:
        await asyncio.sleep(0.01)
    reader, writer = await asyncio.open_connection(*server.servers[0].sockets[0].getsockname(), limit=1000)
    writer.write(b"GET / HTTP/1.1\r\nhost: x\r\n\r\n")
    n_read = 0
    try:
        while n_read < len(ANSWER) and (data := await reader.read(400_000)):
            n_read += len(data)
            await asyncio.sleep(pause)
            pause = 0.0
    except ConnectionResetError:
        pass
    writer.close()
    server.should_exit = True
    await serving
    return n_read


@pytest.mark.parametrize(("pause", "is_slow"), [(0.0, False), (3.0, True)])
def test_a_client_that_does_not_read_is_disconnected(
    pause: float, is_slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answer takes up memory."""
    monkeypatch.setattr(protocol, "READ_SECONDS", 0.5)
    n_read = in_a_loop(lambda: bytes_read(pause))
    assert (n_read < len(ANSWER)) == is_slow


def test_a_client_is_refused_once_the_event_loop_has_its_share_to_do(en_de: Translator) -> None:
    """Requests wait there, too: unread, or on their way to the queue."""
    state = AppState()
    state.service = Service([en_de], Limits())
    shared = Connections(state, has_proxies=False)
    for _ in range(protocol.MAX_BACKLOG + 1):
        shared.begin("greedy")
    assert shared.refuses(request(), "greedy")
    assert not shared.refuses(request(), "other")
    shared.end("greedy")
    assert not shared.refuses(request(), "greedy")
    assert state.service.close(10)


def test_what_is_not_refused_unread_is_not_refused_later(en_de: Translator) -> None:
    """Requests on their way to the queue count as if they were in it: else many would be let in for one free place."""
    state = AppState()
    state.service = Service([en_de], Limits(max_wait=0.5))
    shared = Connections(state, has_proxies=False)
    n_read = 0
    while not shared.refuses(request(), "a"):
        shared.begin("a")
        n_read += 1
    assert 10 < n_read < protocol.MAX_BACKLOG
    batcher, text = state.service.directions["en", "de"].batcher, json.loads(BODY)["q"]
    tickets = [batcher.admit("a", estimated_units([text]), SearchConfig()) for _ in range(n_read)]
    assert shared.refuses(request(), "a")
    assert len(tickets) == n_read
    assert state.service.close(10)


@pytest.mark.long
def test_requests_are_counted_until_they_are_answered_or_given_up(start: Start) -> None:
    """Otherwise a server would refuse more and more."""
    served = start()
    for _ in range(2 * protocol.MAX_BACKLOG):
        with connect(served) as client:  # closed before it is answered
            client.sendall(request())
    for _ in range(2 * protocol.MAX_BACKLOG):
        assert served.get("/health").status_code == 200
    assert served.translate("Hello.").status_code == 200
