"""ASGI middleware: security headers, metrics and a log for every answer, and unexpected errors without user text."""

import json
import logging
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from multihead.serve.responses import error_reply

LOG = logging.getLogger("multihead.serve")

MAX_HEADER_BYTES = 16_384
MAX_HEADERS = 100
CLOSE = {"connection": "close"}
HEADERS = {
    # The page loads files from this server only, and no inline script or style. The lesson is in a frame of it.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; frame-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'self'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


class Metrics:
    """Prometheus metrics; no label contains a text, an API key or an address."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.requests = Counter("multihead_requests", "Answers sent", ["route", "status"], registry=self.registry)
        self.seconds = Histogram(
            "multihead_request_seconds", "Time from request to answer", ["route"], registry=self.registry
        )
        self.characters = Counter("multihead_characters", "Characters translated", registry=self.registry)
        sizes = (1, 2, 4, 8, 16, 32)
        self.batches = Histogram("multihead_batch_pieces", "Sentences per batch", buckets=sizes, registry=self.registry)
        self.waiting = Gauge("multihead_waiting_seconds", "Time to empty the queue", registry=self.registry)


class InternalErrorMiddleware:
    """Answer an unexpected error with status 500; log its type and location only, since a message may quote user text.

    Starlette's own handler would raise the error again, and uvicorn would log its message.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        response_started = False

        async def send_and_note(message: Message) -> None:
            nonlocal response_started
            response_started = True
            await send(message)

        try:
            await self.app(scope, receive, send_and_note)
        except Exception as error:
            frames = traceback.extract_tb(error.__traceback__)[-5:]
            at = [f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames]
            LOG.error(json.dumps({"time": _now(), "error": type(error).__name__, "at": at}))
            if not response_started:
                await error_reply("internal server error", 500)(scope, receive, send)


class HeaderLimitMiddleware:
    """Refuse requests with too many headers, or with two lengths, which a proxy might read in another way."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = scope.get("headers", [])
        names = {name for name, _ in headers}
        if len(headers) > MAX_HEADERS or sum(len(name) + len(value) + 4 for name, value in headers) > MAX_HEADER_BYTES:
            await error_reply("the headers are too large", 431, CLOSE)(scope, receive, send)
        elif {b"content-length", b"transfer-encoding"} <= names:
            await error_reply("Content-Length and Transfer-Encoding exclude each other", 400, CLOSE)(
                scope, receive, send
            )
        else:
            await self.app(scope, receive, send)


class RequestLogMiddleware:
    """Add security headers to every answer; record its route, status and time in the metrics and the log."""

    def __init__(self, app: ASGIApp, metrics: Metrics, routes: frozenset[str]) -> None:
        self.app, self.metrics, self.routes = app, metrics, routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        start, status = time.monotonic(), 499  # stays 499 if the client disconnects before an answer

        async def send_with_headers(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)  # the lesson has a policy of its own
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        finally:
            self._record(scope, status, time.monotonic() - start)

    def _record(self, scope: Scope, status: int, seconds: float) -> None:
        route = scope["path"] if scope["path"] in self.routes else "other"
        self.metrics.requests.labels(route, str(status)).inc()
        self.metrics.seconds.labels(route).observe(seconds)
        line = {"method": scope["method"], "route": route, "status": status, "seconds": round(seconds, 4)}
        LOG.info(json.dumps({"time": _now(), **line}))


def _now() -> str:
    return datetime.now(tz=UTC).isoformat(timespec="milliseconds")
