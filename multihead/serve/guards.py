"""What stands before the routes: how large a body may be, who may ask and how often, what is counted and logged."""

import hmac
import json
import logging
import time
import traceback
from datetime import UTC, datetime
from ipaddress import IPv4Address, IPv6Network, ip_address
from pathlib import Path

from limits import RateLimitItem, RateLimitItemPerMinute, parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from multihead.config import ConfigError
from multihead.serve.replies import error

LOG = logging.getLogger("multihead.serve")

WRONG_KEYS = RateLimitItemPerMinute(10)  # of one client
MOST_ADDRESS = 64  # characters
MOST_CLIENTS = 10_000  # whose requests are counted at a time

HEADERS = {
    # Everything comes from here, and nothing runs that is not a file of ours.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class Forbidden(Exception):
    """The key of a request is none of ours."""


class TooOften(Exception):
    """A client asks more often than it may; `seconds` says when it may again."""

    def __init__(self, limit: str, seconds: float) -> None:
        super().__init__(f"Slowdown: {limit}")
        self.seconds = seconds


class Access:
    """Which keys may ask, if any are set, and how often one client may, if that is limited."""

    def __init__(self, keys: frozenset[str] = frozenset(), rate: str = "") -> None:
        self.keys = keys
        try:
            self._rate = parse(rate) if rate else None
        except ValueError:
            raise ConfigError(f"--rate is a number by a time, such as 60/minute; got '{rate}'") from None
        self._storage = MemoryStorage()
        self._limiter = MovingWindowRateLimiter(self._storage)

    @classmethod
    def read(cls, keys_file: Path | None, rate: str) -> "Access":
        """With the keys of a file, one a line."""
        if keys_file is None:
            return cls(rate=rate)
        try:
            lines = keys_file.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(f"cannot read the keys in {keys_file}: {problem}") from None
        keys = frozenset(line.strip() for line in lines if line.strip())
        if not keys:
            raise ConfigError(f"there is no key in {keys_file}")
        return cls(keys, rate)

    def check(self, key: object, client: str) -> None:
        """Refuse a request that may not be made; `client` is an address."""
        if len(self._storage.events) > MOST_CLIENTS:  # the storage never drops a client by itself
            self._storage.reset()
        network = _network(client)
        if self.keys:
            self._check_key(key, network)
        if self._rate and not self._limiter.hit(self._rate, str(key) if self.keys else network):
            raise self._too_often(self._rate, str(key) if self.keys else network)

    def _check_key(self, key: object, network: str) -> None:
        # After too many wrong keys not even a right one is accepted: guessing would go on otherwise.
        if not self._limiter.test(WRONG_KEYS, "wrong key", network):
            raise self._too_often(WRONG_KEYS, "wrong key", network)
        if any(self._same(key, known) for known in self.keys):
            return
        if key:  # a missing one is no guess: our own page asks before a key is typed
            self._limiter.hit(WRONG_KEYS, "wrong key", network)
        raise Forbidden("Invalid API key")

    def _too_often(self, rate: RateLimitItem, *who: str) -> TooOften:
        reset = self._limiter.get_window_stats(rate, *who).reset_time
        return TooOften(str(rate), max(1.0, reset - time.time()))

    def _same(self, key: object, known: str) -> bool:
        return isinstance(key, str) and hmac.compare_digest(key.encode(errors="replace"), known.encode())


def _network(address: str) -> str:
    """An IPv4 address, or the /64 network of an IPv6 address, in which a client chooses its addresses freely."""
    try:
        ip = ip_address(address)
    except ValueError:  # whatever a proxy has forwarded
        return address[:MOST_ADDRESS]
    if isinstance(ip, IPv4Address):
        return str(ip)
    return str(ip.ipv4_mapped or IPv6Network((int(ip), 64), strict=False))


class Metrics:
    """Counters for Prometheus; no label holds a text, a key or an address."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("multihead_requests", "Answers sent", ["route", "status"], registry=self.registry)
        self.seconds = Histogram(
            "multihead_request_seconds", "From request to answer", ["route"], registry=self.registry
        )
        self.characters = Counter("multihead_characters", "Characters translated", registry=self.registry)
        sizes = (1, 2, 4, 8, 16, 32)
        self.batches = Histogram("multihead_batch_pieces", "Sentences a batch", buckets=sizes, registry=self.registry)
        self.waiting = Gauge("multihead_waiting_characters", "Characters that wait", registry=self.registry)


class BodyLimit:
    """Refuses a body by its announced length before a byte is read, and one that is not announced when it has grown."""

    def __init__(self, app: ASGIApp, most_bytes: int) -> None:
        self.app, self.most_bytes = app, most_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        # The rest of the body is not read, so the connection cannot be used again.
        refusal = error(f"the request is larger than {self.most_bytes} bytes", 413, {"connection": "close"})
        n_bytes, has_begun = 0, False

        async def counted() -> Message:
            nonlocal n_bytes
            message = await receive()
            n_bytes += len(message.get("body", b""))
            if n_bytes > self.most_bytes:
                raise _TooLarge
            return message

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        if int(Headers(scope=scope).get("content-length", "0")) > self.most_bytes:
            await refusal(scope, receive, send)
            return
        try:
            await self.app(scope, counted, noted)
        except _TooLarge:
            if not has_begun:
                await refusal(scope, receive, send)


class _TooLarge(Exception):
    pass


class LastResort:
    """Answers an unexpected error with JSON, and logs its type and place only: a message may quote the user's text."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def noted(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self.app(scope, receive, noted)
        except Exception as problem:
            frames = traceback.extract_tb(problem.__traceback__)[-5:]
            at = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
            LOG.error(json.dumps({"time": _now(), "error": type(problem).__name__, "at": at}))
            if not has_begun:
                await error("the server failed to answer this request", 500)(scope, receive, send)


def _now() -> str:
    return datetime.now(tz=UTC).isoformat(timespec="milliseconds")


class Watch:
    """Headers for every answer; its route, status and time for the metrics and the log, and nothing of its text."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: frozenset[str]) -> None:
        self.app, self.metrics, self.routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        began, status = time.monotonic(), 499  # what is sent to nobody, if the client leaves first

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        try:
            await self.app(scope, receive, watched)
        finally:
            seconds = time.monotonic() - began
            route = scope["path"] if scope["path"] in self.routes else "other"
            self.metrics.requests.labels(route, str(status)).inc()
            self.metrics.seconds.labels(route).observe(seconds)
            line = {
                "time": _now(),
                "method": scope["method"],
                "route": route,
                "status": status,
                "seconds": round(seconds, 4),
            }
            LOG.info(json.dumps(line))
