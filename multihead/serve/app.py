"""The HTTP interface: LibreTranslate's routes, fields and errors, so that its clients work unchanged, and our own."""

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from pathlib import PurePath
from typing import Any, TypeVar

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest
from pydantic import BaseModel
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from multihead.errors import is_installed
from multihead.inspection.page import MODULES, asset
from multihead.serve import lessons
from multihead.serve.access import Access
from multihead.serve.errors import BadRequest, NotInstalled, ServeError, ShuttingDown, Unavailable
from multihead.serve.middleware import HeaderLimitMiddleware, InternalErrorMiddleware, Metrics, RequestLogMiddleware
from multihead.serve.openapi import openapi_document
from multihead.serve.options import Limits
from multihead.serve.requests import ExplainRequest, RequestModels, parse, read_fields
from multihead.serve.responses import error_reply, reply
from multihead.serve.service import Service
from multihead.text.language import name_of

Result = TypeVar("Result")
Model = TypeVar("Model", bound=BaseModel)

_PAGE_FILES = ("index.html", "app.js", "lesson.js", "style.css", "icon.svg")  # in page/
_VIEWER_FILES = (*MODULES, "attention.css")  # shared with the pages of `multihead inspect`
_CONTENT_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}


@dataclass(slots=True)
class AppState:
    """State shared by the routes; `service` is set once the models are loaded."""

    limits: Limits = field(default_factory=Limits)
    access: Access = field(default_factory=Access)
    metrics: Metrics = field(default_factory=Metrics)
    service: Service | None = None
    is_draining: bool = False
    offers_lesson: bool = True
    requests: RequestModels = field(init=False)

    def __post_init__(self) -> None:
        self.requests = RequestModels.with_limits(self.limits)

    def ready_service(self) -> Service:
        if self.service is None:
            raise Unavailable("the models are still loading")
        return self.service


def make_app(state: AppState) -> Starlette:
    routes = {
        "/translate": (translate, "POST"),
        "/detect": (detect, "POST"),
        "/languages": (languages, "GET"),
        "/frontend/settings": (settings, "GET"),
        "/attention": (attention, "POST"),
        "/explain": (explain, "GET POST"),
        "/health": (health, "GET"),
        "/ready": (ready, "GET"),
        "/metrics": (metrics, "GET"),
        "/openapi.json": (openapi, "GET"),
        "/": (page, "GET"),
        **{f"/{name}": (page, "GET") for name in (*_PAGE_FILES[1:], *_VIEWER_FILES)},
    }
    app = Starlette(
        routes=[
            Route(path, partial(route, state), methods=methods.split()) for path, (route, methods) in routes.items()
        ],
        middleware=[
            Middleware(RequestLogMiddleware, metrics=state.metrics, routes=frozenset(routes)),
            # Like LibreTranslate, allow requests from other sites; no cookies are used.
            Middleware(
                CORSMiddleware, allow_origins=["*"], allow_methods=["GET", "POST"], allow_headers=["content-type"]
            ),
            Middleware(InternalErrorMiddleware),
            Middleware(HeaderLimitMiddleware),
        ],
        exception_handlers={
            ServeError: _serve_error,
            TimeoutError: _timeout,
            ClientDisconnect: _client_disconnected,
            404: _not_found,
            405: _not_allowed,
        },
    )
    app.router.redirect_slashes = False  # a redirect would repeat the Host header of the request
    return app


async def _serve_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServeError)
    return error_reply(str(error), error.status, error.headers)


async def _timeout(request: Request, _: Exception) -> Response:
    return await _serve_error(request, Unavailable("the translation took too long"))


async def _client_disconnected(request: Request, _: Exception) -> Response:
    return error_reply("client disconnected", 499)


async def _not_found(request: Request, _: Exception) -> Response:
    return error_reply("not found", 404)


async def _not_allowed(request: Request, _: Exception) -> Response:
    return error_reply("method not allowed", 405)


# LibreTranslate's routes


async def translate(state: AppState, request: Request) -> Response:
    asked, client = await _read(state, request, state.requests.translate)
    work = state.ready_service().translate(
        asked.texts, asked.source, asked.target, asked.alternatives, is_html=asked.format == "html", client=client
    )
    translations, detected = await _cancel_on_disconnect(request, work)
    state.metrics.characters.inc(sum(map(len, asked.texts)))
    content: dict[str, list[Any]] = {"translatedText": [one.text for one in translations]}
    if asked.alternatives:
        content["alternatives"] = [one.alternatives for one in translations]
    if asked.texts and translations[0].via:
        content["via"] = [one.via for one in translations]
    if detected:
        content["detectedLanguage"] = [
            {"confidence": detected.confidence, "language": detected.language} for _ in translations
        ]
    return reply(content if isinstance(asked.q, list) else {name: values[0] for name, values in content.items()})


async def detect(state: AppState, request: Request) -> Response:
    asked, client = await _read(state, request, state.requests.detect)
    found = await state.ready_service().detect(asked.q, client)
    return reply([{"confidence": one.confidence, "language": one.language} for one in found])


async def languages(state: AppState, request: Request) -> Response:
    service = state.ready_service()
    # Include languages that are only targets: Weblate looks for both languages of a pair in this list.
    known = [{"code": code, "name": name_of(code), "targets": service.targets_of(code)} for code in service.codes]
    return reply(known)


async def settings(state: AppState, request: Request) -> Response:
    service = state.ready_service()
    source, target = next(iter(service.directions))
    return reply(
        {
            "attention": is_installed("torch"),  # ours; the page hides what the server does not have
            "apiKeys": bool(state.access.keys),
            "keyRequired": bool(state.access.keys),
            "charLimit": state.limits.characters,
            "frontendTimeout": 500,
            "suggestions": False,
            "filesTranslation": False,
            "supportedFilesFormat": [],
            "explain": state.offers_lesson,
            "lessons": [list(pair) for pair, direction in service.directions.items() if direction.lesson.is_available],
            "language": {
                "source": {"code": source, "name": name_of(source)},
                "target": {"code": target, "name": name_of(target)},
            },
        }
    )


# Our own routes


async def attention(state: AppState, request: Request) -> Response:
    if not is_installed("torch"):
        raise NotInstalled("this server does not show attention: PyTorch is not installed")
    asked, client = await _read(state, request, state.requests.attention)
    work = state.ready_service().attention(asked.q, asked.sentence, asked.source, asked.target, asked.search, client)
    content = await _cancel_on_disconnect(request, work)
    return await asyncio.to_thread(reply, content)  # megabytes for a long sentence


async def explain(state: AppState, request: Request) -> Response:
    """Send the lesson about a model. The page asks with a form, so that no API key is part of an address."""
    is_get = request.method in ("GET", "HEAD")
    fields = dict(request.query_params) if is_get else await read_fields(request, state.limits.body_bytes)
    key = None if is_get else fields.get("api_key")  # an address ends up in logs and histories
    state.access.check(key, _client(request))
    asked = parse(ExplainRequest, fields)
    if not state.offers_lesson:
        raise BadRequest("this server does not offer the lesson")
    found = await state.ready_service().lesson(asked.source, asked.target)
    headers = {"etag": found.etag, "cache-control": "no-cache", "content-security-policy": lessons.policy()}
    if is_get and request.headers.get("if-none-match") == found.etag:
        return Response(status_code=304, headers=headers)
    headers |= {"content-type": _CONTENT_TYPES[".html"], "content-length": str(len(found.content))}
    return StreamingResponse(found.parts(), headers=headers)


async def health(state: AppState, request: Request) -> Response:
    return reply({"status": "ok"})


async def ready(state: AppState, request: Request) -> Response:
    """Tell a load balancer whether to send requests: not while loading, and not during shutdown."""
    state.ready_service()
    if state.is_draining:
        raise ShuttingDown("the server is shutting down")
    return reply({"status": "ready"})


async def metrics(state: AppState, request: Request) -> Response:
    batchers = state.service.batchers if state.service else ()
    state.metrics.waiting.set(sum(batcher.waiting_seconds for batcher in batchers))
    return Response(generate_latest(state.metrics.registry), headers={"content-type": CONTENT_TYPE_LATEST})


async def openapi(state: AppState, request: Request) -> Response:
    service = state.ready_service()
    targets = sorted({target for source in service.sources for target in service.targets_of(source)})
    return reply(openapi_document(state.requests, service.sources, targets))


async def page(state: AppState, request: Request) -> Response:
    name = request.url.path.removeprefix("/") or "index.html"
    headers = {"content-type": _CONTENT_TYPES[PurePath(name).suffix], "cache-control": "no-cache"}
    return Response(_page_file(name), headers=headers)


@cache
def _page_file(name: str) -> str:
    if name in _VIEWER_FILES:
        return asset(name)
    text = files("multihead.serve").joinpath("page", name).read_text(encoding="utf-8")
    return text.replace("__VIEWER__", asset("viewer.html"))


# Shared by the routes


async def _read(state: AppState, request: Request, model: type[Model]) -> tuple[Model, str]:
    """Return the validated fields of a client that has access, and which client it is."""
    fields = await read_fields(request, state.limits.body_bytes)
    client = state.access.check(fields.get("api_key"), _client(request))
    return parse(model, fields), client


def _client(request: Request) -> str:
    return request.client.host if request.client else ""


async def _cancel_on_disconnect(request: Request, work: Coroutine[Any, Any, Result]) -> Result:
    """Return the result of a coroutine, which is canceled if the client disconnects."""
    task, disconnect = asyncio.ensure_future(work), asyncio.ensure_future(_wait_for_disconnect(request))
    try:
        await asyncio.wait([task, disconnect], return_when=asyncio.FIRST_COMPLETED)
        if not task.done():
            raise ClientDisconnect
        return task.result()
    finally:
        for one in (task, disconnect):
            one.cancel()
        # asyncio logs exceptions that nobody retrieves, and their messages may quote the user's text.
        await asyncio.gather(task, disconnect, return_exceptions=True)


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
