"""TODO."""

import json
import logging
import time
import traceback
from datetime import UTC, datetime
from pathlib import Path

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from multihead.serve.responses import error

LOG = logging.getLogger("multihead.serve")

HEADERS = {
    # Everything comes from here, and nothing runs that is not a file of ours.
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
}


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


class RequestLogMiddleware:
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
