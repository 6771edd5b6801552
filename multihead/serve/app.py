"""The HTTP interface: LibreTranslate's routes, fields and errors, so that its clients work unchanged, and some more."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route

from multihead.inspection.page import asset
from multihead.serve.access import Access
from multihead.serve.errors import BadRequest, Forbidden, Overloaded, RateLimited, ShuttingDown
from multihead.serve.languages import name_of
from multihead.serve.middleware import BodyLimit, LastResort, Metrics, RequestLogMiddleware
from multihead.serve.openapi import describe
from multihead.serve.requests import AttentionFields, TranslateFields, detect_text, read_fields
from multihead.serve.responses import error, reply
from multihead.serve.service import Limits, Service

Result = TypeVar("Result")
Handler = Callable[["AppState", Request], Awaitable[Response]]

_PAGE = {  # what the page is made of, and where each file is
    "/": ("page/index.html", "text/html; charset=utf-8"),
    "/app.js": ("page/app.js", "text/javascript; charset=utf-8"),
    "/style.css": ("page/style.css", "text/css; charset=utf-8"),
    "/icon.svg": ("page/icon.svg", "image/svg+xml"),
    "/attention.js": ("assets/attention.js", "text/javascript; charset=utf-8"),
    "/attention.css": ("assets/attention.css", "text/css; charset=utf-8"),
}


@dataclass(slots=True)
class AppState:
    """What the routes share; the service comes when the models are loaded."""

    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    metrics: Metrics = field(default_factory=Metrics)
    service: Service | None = None
    is_draining: bool = False

    def open(self, service: Service) -> None:
        """Begin to answer."""
        for direction in service.directions.values():
            direction.batcher.batch_sizes = self.metrics.batches.observe
        self.service = service

    def ready(self) -> Service:
        if self.service is None:
            raise ShuttingDown("the models are being loaded")
        return self.service


def make_app(server: AppState) -> Starlette:
    routes = {
        "/translate": (translate, "POST"),
        "/detect": (detect, "POST"),
        "/languages": (languages, "GET"),
        "/frontend/settings": (settings, "GET"),
        "/attention": (attention, "POST"),
        "/health": (health, "GET"),
        "/ready": (ready, "GET"),
        "/metrics": (metrics, "GET"),
        "/openapi.json": (openapi, "GET"),
        **{path: (page, "GET") for path in _PAGE},
    }
    return Starlette(
        routes=[
            Route(path, _answering(handler, server), methods=[method]) for path, (handler, method) in routes.items()
        ],
        middleware=[
            Middleware(RequestLogMiddleware, metrics=server.metrics, routes=frozenset(routes)),
            # As LibreTranslate: pages of others may ask, and no cookie is ever sent.
            Middleware(
                CORSMiddleware, allow_origins=["*"], allow_methods=["GET", "POST"], allow_headers=["content-type"]
            ),
            Middleware(LastResort),
            Middleware(BodyLimit, most_bytes=server.limits.body_bytes),
        ],
        exception_handlers={404: _not_found, 405: _not_allowed},
    )


def _answering(handler: Handler, server: AppState) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    """The handler, with LibreTranslate's answers for expected errors."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(server, request)
        except BadRequest as problem:
            return error(str(problem), 400)
        except Forbidden as problem:
            return error(str(problem), 403)
        except RateLimited as problem:
            return error(str(problem), 429, _retry_after(problem.seconds))
        except Overloaded as problem:
            return error(str(problem), 503, _retry_after(problem.seconds))
        except ShuttingDown as problem:
            return error(str(problem), 503, _retry_after(5))
        except TimeoutError:
            return error("the translation took too long", 503, _retry_after(5))
        except ClientDisconnect:
            return error("the client has left", 499)

    return answer


def _retry_after(seconds: float) -> dict[str, str]:
    return {"retry-after": str(max(1, round(seconds)))}


async def _not_found(request: Request, _: Exception) -> Response:
    return error("there is nothing here", 404)


async def _not_allowed(request: Request, _: Exception) -> Response:
    return error("this route takes another method", 405)


# LibreTranslate's routes


async def translate(server: AppState, request: Request) -> Response:
    fields = await read_fields(request)
    server.access.check(fields.get("api_key"), _client(request))
    asked = TranslateFields.read(fields, server.limits)
    service = server.ready()
    work = service.translate(asked.texts, asked.source, asked.target, asked.alternatives, asked.is_html)
    answers, detected = await _cancel_on_disconnect(request, work)
    server.metrics.characters.inc(sum(map(len, asked.texts)))
    content: dict[str, list[Any]] = {"translatedText": [one.text for one in answers]}
    if asked.alternatives:
        content["alternatives"] = [one.alternatives for one in answers]
    if detected:
        found = {"confidence": detected.confidence, "language": detected.language}
        content["detectedLanguage"] = [found] * len(answers)
    return reply(content if asked.is_list else {name: values[0] for name, values in content.items()})


async def detect(server: AppState, request: Request) -> Response:
    fields = await read_fields(request)
    server.access.check(fields.get("api_key"), _client(request))
    found = await server.ready().detect(detect_text(fields, server.limits))
    return reply([{"confidence": one.confidence, "language": one.language} for one in found])


async def languages(server: AppState, request: Request) -> Response:
    service = server.ready()
    # With those that are only targets: Weblate looks for both languages of a pair in this list.
    known = [{"code": code, "name": name_of(code), "targets": service.targets_of(code)} for code in service.codes]
    return reply(known)


async def settings(server: AppState, request: Request) -> Response:
    service = server.ready()
    source, target = next(iter(service.directions))
    return reply(
        {
            "apiKeys": bool(server.access.keys),
            "keyRequired": bool(server.access.keys),
            "charLimit": server.limits.characters,
            "frontendTimeout": 500,
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
        }
    )


# Our own


async def attention(server: AppState, request: Request) -> Response:
    fields = await read_fields(request)
    server.access.check(fields.get("api_key"), _client(request))
    asked = AttentionFields.read(fields, server.limits)
    service = server.ready()
    work = service.attention(asked.text, asked.sentence, asked.source, asked.target, asked.search)
    content = await _cancel_on_disconnect(request, work)
    return await asyncio.to_thread(reply, content)  # megabytes, for a long sentence


async def health(server: AppState, request: Request) -> Response:
    return reply({"status": "ok"})


async def ready(server: AppState, request: Request) -> Response:
    """Whether to send requests here: not while loading, and not any more once the server is leaving."""
    server.ready()
    if server.is_draining:
        raise ShuttingDown("the server is shutting down")
    return reply({"status": "ready"})


async def metrics(server: AppState, request: Request) -> Response:
    directions = server.service.directions.values() if server.service else ()
    server.metrics.waiting.set(sum(direction.batcher.waiting for direction in directions))
    return Response(generate_latest(server.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})


async def openapi(server: AppState, request: Request) -> Response:
    service = server.ready()
    targets = sorted({target for _, target in service.directions})
    return reply(describe(server.limits, service.sources, targets))


async def page(server: AppState, request: Request) -> Response:
    name, kind = _PAGE[request.url.path]
    return Response(_content(name), headers={"content-type": kind, "cache-control": "no-cache"})


@cache
def _content(name: str) -> str:
    return (
        files("multihead.serve").joinpath(name).read_text(encoding="utf-8").replace("__VIEWER__", asset("viewer.html"))
    )


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


async def _cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """The result of some work, which is cancelled if the client leaves before it is done."""
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_disconnected(request))
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        # asyncio logs an exception that nobody looked at, and its message may have text of the user in it.
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
