"""HTTP connections: how many there are, how slow clients may be, and refusals that cost almost nothing.

A server that is overloaded must refuse requests faster than they arrive. `QuickRefusal` answers complete small requests
to /translate before they are parsed. Everything else takes the usual way through uvicorn and Starlette.
"""

import asyncio
import json
import re
from collections import Counter
from typing import Any
from urllib.parse import parse_qsl

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from multihead.serve.access import network_of
from multihead.serve.app import AppState
from multihead.serve.middleware import HEADERS
from multihead.serve.service import Service

RECEIVE_SECONDS = 20.0  # from the first byte of a request to its last
READ_SECONDS = 20.0  # in which a client must read READ_BYTES of an answer, or the rest of it
READ_BYTES = 400_000
LINGER_SECONDS = 2.0  # for a client to read why it is disconnected
MAX_CONNECTIONS = 2000  # including idle ones
MAX_CONNECTIONS_PER_CLIENT = 1500  # so that no client can take all of them
MAX_LINGERING = 100  # connections beyond the limit that are told so; more are closed at once
QUICK_BYTES = 10_000  # of a request that may be refused unread
MAX_BACKLOG = 128  # requests that the event loop may have read, but not admitted or answered, before it refuses some

_QUICK = re.compile(rb"POST /translate HTTP/1\.1\r\n((?:[!-9;-~]+:[ -~\t]*\r\n)+)\r\n")
_LENGTH = re.compile(rb"^content-length:[ \t]*(\d{1,4})[ \t]*\r$", re.IGNORECASE | re.MULTILINE)
_SPECIAL = re.compile(rb"^(?:transfer-encoding|expect|upgrade|connection):(?![ \t]*keep-alive\r)", re.I | re.M)


def _refusal(message: str, *more: str) -> bytes:
    content = b'{"error":"%s"}' % message.encode()
    headers = {**HEADERS, "access-control-allow-origin": "*", "content-type": "application/json", "retry-after": "1"}
    lines = [f"{name}: {value}" for name, value in headers.items()]
    head = ["HTTP/1.1 503 Service Unavailable", *lines, *more, f"content-length: {len(content)}", "", ""]
    return "\r\n".join(head).encode() + content


OVERLOADED = _refusal("too many requests are waiting; try again in 1 seconds")
TOO_MANY_CONNECTIONS = _refusal("too many connections", "connection: close")


def _texts(body: bytes) -> list[str]:
    """Return the texts of a JSON or form body; none if it is wrong, which the route will say."""
    try:
        q = json.loads(body)["q"] if body.startswith(b"{") else dict(parse_qsl(body.decode()))["q"]
    except (ValueError, RecursionError, KeyError):
        return []
    texts = q if isinstance(q, list) else [q]
    return texts if all(isinstance(text, str) for text in texts) else []


class Connections:
    """What the connections of a server share."""

    def __init__(self, state: AppState, has_proxies: bool) -> None:
        self.state, self.has_proxies = state, has_proxies
        self.of_client: Counter[str] = Counter()
        self.under_way: Counter[str] = Counter()  # requests of a client that were read and not answered
        self.n_lingering = 0
        self._refused = state.metrics.requests.labels("/translate", "503")

    def open(self, client: str) -> bool:
        """Count a connection; return False if there are too many."""
        is_allowed = self.of_client.total() < MAX_CONNECTIONS and (
            self.has_proxies or self.of_client[client] < MAX_CONNECTIONS_PER_CLIENT
        )
        if is_allowed:
            self.of_client[client] += 1
        return is_allowed

    def close(self, client: str) -> None:
        self.of_client[client] -= 1
        if not self.of_client[client]:
            del self.of_client[client]

    def begin(self, client: str) -> None:
        """Count a request that was read."""
        self.under_way[client] += 1

    def end(self, client: str) -> None:
        """Count a request that was answered or given up."""
        self.under_way[client] -= 1
        if not self.under_way[client]:
            del self.under_way[client]

    def refuses(self, data: bytes, client: str) -> bool:
        """Return whether data is one complete small request that there is no room for, and count it.

        With API keys or behind a proxy, only the request itself says whose it is, and so for which place in the queue.
        """
        service = self.state.service
        if service is None or len(data) > QUICK_BYTES:
            return False
        head = _QUICK.match(data)
        if not head or _SPECIAL.search(head[1]):
            return False
        lengths = _LENGTH.findall(head[1])
        if len(lengths) != 1 or head[1].lower().count(b"content-length") != 1:
            return False
        if head.end() + int(lengths[0]) != len(data):
            return False
        if not self._has_no_room_for(data[head.end() :], client, service):
            return False
        self._refused.inc()
        return True

    def _has_no_room_for(self, body: bytes, client: str, service: Service) -> bool:
        # What was read and has no place in the queue yet, by this client and by all.
        n_coming = max(0, self.under_way[client] - service.n_admitted_of(client))
        n_in_all = max(n_coming, self.under_way.total() - service.n_admitted)
        if n_in_all > MAX_BACKLOG and n_coming * len(self.under_way) >= MAX_BACKLOG:  # and this client has its share
            return True
        is_known = not self.state.access.keys and not self.has_proxies
        texts = _texts(body) if is_known else []
        return bool(texts) and service.is_full_for(client, texts, n_coming, n_in_all - n_coming)


class DeadlineProtocol(H11Protocol):
    """HTTP/1.1 with deadlines for a client to send a request and to read the answer."""

    shared: Connections
    _receiving: asyncio.TimerHandle | None = None
    _sending: asyncio.TimerHandle | None = None
    _is_counted = False
    _is_lingering = False
    _is_under_way = False
    _network = ""

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        transport.set_write_buffer_limits(0)  # `pause_writing` is called whenever a client does not keep up
        self._network = network_of(self.client[0] if self.client else "")
        self._is_counted = self.shared.open(self._network)
        if self._is_counted:
            self._receiving = self.loop.call_later(RECEIVE_SECONDS, self._hang_up)
        else:
            self._refuse_connection()

    def data_received(self, data: bytes) -> None:
        if self._is_lingering:
            return
        is_idle = self.conn.our_state is h11.IDLE and self.conn.their_state is h11.IDLE
        if is_idle and not self.conn.trailing_data[0] and self.shared.refuses(data, self._network):
            self._cancel_receiving()
            self.transport.write(OVERLOADED)
            self.on_response_complete()
            return
        if self._receiving is None:
            self._receiving = self.loop.call_later(RECEIVE_SECONDS, self._hang_up)
        super().data_received(data)
        if self.conn.their_state is h11.DONE:  # the request is complete
            self._cancel_receiving()

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state is h11.DONE and not self._is_under_way:
            self._is_under_way = True
            self.shared.begin(self._network)

    def on_response_complete(self) -> None:
        self._end_request()
        super().on_response_complete()  # which goes on with a request that was sent meanwhile

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_receiving()
        self._cancel_sending()
        self._end_request()
        if self._is_counted:
            self.shared.close(self._network)
        elif self._is_lingering:
            self.shared.n_lingering -= 1
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        if self._sending is None:
            self._expect_reading()

    def _expect_reading(self) -> None:
        """Disconnect the client after a while unless it keeps reading: its answer takes up memory."""
        unread = self.transport.get_write_buffer_size()

        def check() -> None:
            if self.transport.get_write_buffer_size() > unread - READ_BYTES:
                self.transport.abort()
            else:
                self._expect_reading()

        self._sending = self.loop.call_later(READ_SECONDS, check)

    def resume_writing(self) -> None:
        super().resume_writing()
        self._cancel_sending()

    def _end_request(self) -> None:
        if self._is_under_way:
            self._is_under_way = False
            self.shared.end(self._network)

    def _refuse_connection(self) -> None:
        """Say why, and read what the client sends for a moment: closing at once could destroy the answer."""
        if self.shared.n_lingering >= MAX_LINGERING:
            self.transport.abort()
            return
        self.shared.n_lingering += 1
        self._is_lingering = True
        self.transport.write(TOO_MANY_CONNECTIONS)
        self.transport.write_eof()
        self._receiving = self.loop.call_later(LINGER_SECONDS, self._hang_up)

    def _cancel_receiving(self) -> None:
        if self._receiving is not None:
            self._receiving.cancel()
            self._receiving = None

    def _cancel_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            self._sending = None

    def _hang_up(self) -> None:
        self._receiving = None
        self.transport.close()


def protocol_of(state: AppState, has_proxies: bool) -> type[DeadlineProtocol]:
    """Return the class of the connections of one server."""
    return type("Protocol", (DeadlineProtocol,), {"shared": Connections(state, has_proxies)})
