"""`multihead serve` as a process: real clients, rude clients, too many clients, and leaving without losing anybody."""

import asyncio
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import httpx
import pytest
from libretranslatepy import LibreTranslateAPI
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from multihead.errors import UserError
from multihead.serve.server import _listen, _networks
from multihead.translation.translator import Translator
from tests.unit.serve.conftest import Process, in_a_loop

Start = Callable[..., Process]

SENTENCES = [
    "Where is the station?",
    "I have lost my passport.",
    "The cat sleeps on the old chair.",
    "How much is this book?",
    "My brother lives in a small village.",
    "Good morning.",
    "She gave him a ring yesterday.",
    "We will come back tomorrow.",
]

pytestmark = pytest.mark.long  # each test talks to a server process


def test_libretranslates_own_client_works_unchanged(served: Process) -> None:
    client = LibreTranslateAPI(served.address + "/")
    assert client.translate("Where is the station?", "en", "de") == "Wo ist der Bahnhof?"
    assert client.translate("Where is the station?", "auto", "de") == "Wo ist der Bahnhof?"
    assert client.detect("Where is the station?")[0]["language"] == "en"
    assert [language["code"] for language in client.languages()] == ["en", "de"]


def test_requests_at_the_same_time_get_what_they_would_get_alone(served: Process, en_de: Translator) -> None:
    alone = {sentence: en_de.translate(sentence).text for sentence in SENTENCES}
    texts = [SENTENCES[n % len(SENTENCES)] for n in range(64)]
    with ThreadPoolExecutor(16) as clients:
        answers = list(clients.map(lambda text: served.translate(text).json()["translatedText"], texts))
    assert answers == [alone[text] for text in texts]
    batches = served.get("/metrics").text
    n_batches = next(
        float(line.split()[1]) for line in batches.split("\n") if line.startswith("multihead_batch_pieces_count")
    )
    n_pieces = next(
        float(line.split()[1]) for line in batches.split("\n") if line.startswith("multihead_batch_pieces_sum")
    )
    assert n_pieces > 1.5 * n_batches  # they were merged


def raw(served: Process) -> socket.socket:
    return socket.create_connection(("127.0.0.1", served.port), timeout=30)


def test_a_body_of_50_mb_is_refused_before_it_is_sent(served: Process) -> None:
    with raw(served) as client:
        client.sendall(
            b"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 50000000\r\n\r\n"
        )
        assert client.recv(100).startswith(b"HTTP/1.1 413")


def test_a_line_of_megabytes_is_refused_in_words(served: Process) -> None:
    for size, code, word in (
        (200_000, 400, "exceeds text limit (20000)"),
        (3_000_000, 413, "larger than 2410000 bytes"),
    ):
        answer = served.translate("x" * size)
        assert answer.status_code == code
        assert word in answer.json()["error"]


def test_headers_that_never_end_hold_nothing_up(served: Process) -> None:
    """200 clients that have said half of what they want, while another one is served; they are hung up on in time."""
    slow = [raw(served) for _ in range(200)]
    try:
        for client in slow:
            client.sendall(b"POST /translate HTTP/1.1\r\nhost: x\r\nx-slow: ")
        began = time.monotonic()
        assert served.translate("Good morning.").status_code == 200
        assert time.monotonic() - began < 10
        assert slow[0].recv(100) == b""  # within the 20 seconds that a request may take
    finally:
        for client in slow:
            client.close()


def test_headers_without_end_are_refused(served: Process) -> None:
    with raw(served) as client:
        client.sendall(b"GET /health HTTP/1.1\r\nhost: x\r\nx-large: " + b"x" * 20_000)
        assert client.recv(100).startswith(b"HTTP/1.1 400")


def test_a_kept_connection_may_rest_between_requests_and_go_on(served: Process) -> None:
    with closing(HTTPConnection("127.0.0.1", served.port)) as client:
        for _ in range(3):
            client.request("GET", "/health")
            assert client.getresponse().read() == b'{"status":"ok"}'
            time.sleep(0.2)


def test_small_answers_are_sent_at_once() -> None:
    """asyncio turns off the delay of small packets only where the protocol is named."""
    with closing(_listen("127.0.0.1", 0)) as listening:
        assert listening.proto == socket.IPPROTO_TCP


def test_a_proxy_is_known_on_an_ipv6_socket_too() -> None:
    app: Any = None
    trusted = ProxyHeadersMiddleware(app, _networks(["10.0.0.1/8", "2001:db8::/32"])).trusted_hosts
    for address in ("10.2.3.4", "::ffff:10.2.3.4", "2001:db8::1"):
        assert address in trusted
    for address in ("11.0.0.1", "::ffff:11.0.0.1", "::1", ""):
        assert address not in trusted


def test_clients_that_leave_take_their_work_with_them(served: Process) -> None:
    """What they left waiting is never translated, so the next one is served at once."""
    body = b'{"source":"en","target":"de","q":"' + b"Where is the station? " * 800 + b'"}'
    head = (
        f"POST /translate HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    for _ in range(5):
        with raw(served) as client:
            client.sendall(head.encode() + body)
    deadline = time.monotonic() + 20
    while "multihead_waiting_seconds 0.0" not in served.get("/metrics").text:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert served.translate("Good morning.").status_code == 200


def test_too_much_is_refused_at_once_and_what_is_taken_is_done(start: Start) -> None:
    """More than may wait: every request is answered, with a translation or with 503 and when to come again."""
    small = start("--max-wait=0")
    text = " ".join(SENTENCES) * 2  # 400 characters or so
    fields = {"q": text, "source": "en", "target": "de"}

    async def ask(client: httpx.AsyncClient) -> tuple[int, float, bool]:
        began = time.monotonic()
        answer = await client.post(small.address + "/translate", json=fields)
        return answer.status_code, time.monotonic() - began, "retry-after" in answer.headers

    async def all_at_once() -> list[tuple[int, float, bool]]:
        limits = httpx.Limits(max_connections=None)
        async with httpx.AsyncClient(timeout=60, limits=limits) as client:
            return await asyncio.gather(*(ask(client) for _ in range(60)))

    answers = in_a_loop(all_at_once)
    assert {code for code, _, _ in answers} == {200, 503}
    assert all(says_when for code, _, says_when in answers if code == 503)
    done, refused = ([seconds for code, seconds, _ in answers if code == wanted] for wanted in (200, 503))
    assert max(refused) < max(done)
    assert small.translate("Good morning.").status_code == 200
    assert small.stop() == 0


def test_a_server_that_is_asked_to_leave_finishes_what_it_has(start: Start) -> None:
    """SIGTERM with 100 requests under way: every one of them is answered, and the process ends well."""
    leaving = start("--timeout=120", "--max-wait=100")

    async def ask(client: httpx.AsyncClient, n: int) -> str:
        text = " ".join(SENTENCES[(n + more) % len(SENTENCES)] for more in range(10))
        fields = {"q": text, "source": "en", "target": "de"}
        answer = await client.post(leaving.address + "/translate", json=fields)
        assert answer.status_code == 200, answer.text
        return str(answer.json()["translatedText"])

    async def ask_and_stop() -> list[str]:
        async with httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None)) as client:
            asked = [asyncio.ensure_future(ask(client, n)) for n in range(100)]
            while not any(one.done() for one in asked):  # all of them were sent before the first is answered
                await asyncio.sleep(0.01)
            assert not all(one.done() for one in asked)
            leaving.process.terminate()
            return await asyncio.gather(*asked)

    answers = in_a_loop(ask_and_stop)
    assert all(answers)
    assert leaving.process.wait(60) == 0


def test_memory_stays_where_it_is(served: Process) -> None:
    def ask(n: int) -> None:
        assert served.translate(f"{SENTENCES[n % len(SENTENCES)]} {n}").status_code == 200

    with ThreadPoolExecutor(8) as clients:
        list(clients.map(ask, range(60)))
        before = served.memory_mb()
        list(clients.map(ask, range(200)))
    assert served.memory_mb() < before + 40


def detect_from(served: Process, address: str) -> int:
    headers = {"x-forwarded-for": address}
    return httpx.post(served.address + "/detect", json={"q": "hello"}, headers=headers, timeout=60).status_code


def test_an_invented_address_does_not_evade_the_limit(start: Start) -> None:
    open_to_all = start("--rate-limit=3/hour")
    assert [detect_from(open_to_all, f"10.0.0.{n}") for n in range(5)] == [200, 200, 200, 429, 429]


def test_a_proxy_that_is_named_tells_the_address_of_a_client(start: Start) -> None:
    behind = start("--rate-limit=3/hour", "--proxy=10.1.0.0/16", "--proxy=127.0.0.1")
    assert [detect_from(behind, f"10.0.0.{n}") for n in range(5)] == [200] * 5
    # What the client itself put into the header stands before what the proxy added, and is not believed.
    assert [detect_from(behind, f"10.9.9.{n}, 10.0.0.7, 10.1.2.3") for n in range(5)] == [200, 200, 200, 429, 429]


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["en-de", "--port=0", "--proxy=localhost"], "--proxy takes an address or a network"),
        (["nowhere"], "there is no model 'nowhere'"),
        (["en-de", "en-de", "--port=0"], "two models translate from en to de"),
    ],
)
def test_what_cannot_be_served_is_said_in_words(arguments: list[str], word: str, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "multihead", "serve", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=tmp_path)
    assert done.returncode in (1, 2)
    assert word in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("host", ["127.0.0.1", "256.0.0.1", "::zz"])
def test_where_nobody_can_listen_is_said_in_words(served: Process, host: str) -> None:
    """A port that is taken, and addresses that are none."""
    with pytest.raises(UserError, match=f"cannot listen on {host}, port {served.port}"):
        _listen(host, served.port)


def test_what_is_not_installed_is_named() -> None:
    code = "import sys; sys.modules['starlette'] = None; sys.argv = ['multihead', 'serve', 'en-de']\n"
    code += "from multihead.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "pip install 'multihead[serve]'" in done.stderr
