"""The OpenAPI document of /openapi.json, made from the models of requests and answers."""

from collections.abc import Mapping
from importlib.metadata import version
from typing import Any

from pydantic import TypeAdapter

from multihead.serve.languages import Detection
from multihead.serve.options import AUTO
from multihead.serve.requests import ExplainRequest, RequestModels
from multihead.serve.responses import Attention, Error, Language, Status, Translations

Schema = dict[str, Any]

_ERRORS = {
    400: "The request is invalid or not supported",
    403: "The API key is missing or wrong",
    413: "The body is too large",
    429: "Too many requests from this client; see Retry-After",
    500: "Internal error",
    501: "This server has no PyTorch",
    503: "The queue is full, or the models are not loaded yet; see Retry-After",
}
_ANY_OBJECT = dict[str, Any]
_JSON = "application/json"


def openapi_document(models: RequestModels, sources: list[str], targets: list[str]) -> Schema:
    """Describe the API of a server that translates between these languages."""
    components = _Components()
    pair: dict[str, Schema] = {
        "source": {"enum": sources, "description": "Source language"},
        "target": {"enum": targets, "description": "Target language"},
    }
    post, get = components.post, components.get
    paths = {
        "/translate": post("Translate a text or a list of texts", models.translate, Translations),
        "/detect": post("Detect the language of a text", models.detect, list[Detection]),
        "/attention": post("Attention weights of one sentence", models.attention, Attention, 501),
        "/explain": {
            **get(
                *("The lesson about a model, as a page; for servers without API keys", str, 400, 403, 429, 500, 503),
                kind="text/html",
                query={"source": pair["source"], "target": pair["target"]},
            ),
            **post("The lesson about a model, as a page", ExplainRequest, str, kind="text/html"),
        },
        "/languages": get("Languages and their targets", list[Language], 503),
        "/frontend/settings": get("Settings of the web page", _ANY_OBJECT, 503),
        "/health": get("Whether the process is alive", Status),
        "/ready": get("Whether the server accepts requests", Status, 503),
        "/openapi.json": get("This document", _ANY_OBJECT, 503),
        "/metrics": get("Metrics for Prometheus", str, kind="text/plain"),
    }
    for name in ("TranslateRequest", "AttentionRequest"):
        properties = components.schemas[name]["properties"]
        properties["source"] = {"enum": [AUTO, *sources], "description": f"Source language; {AUTO} to detect it"}
        properties["target"] = pair["target"]
    components.schemas["ExplainRequest"]["properties"].update(pair)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Multihead",
            "version": version("multihead"),
            "description": "A translation server with LibreTranslate's interface, which also shows attention weights.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": paths,
        "components": {"schemas": components.schemas},
    }


class _Components:
    """Operations, and the schemas that they refer to."""

    def __init__(self) -> None:
        self.schemas: Schema = {}

    def post(self, summary: str, request: Any, answer: Any, *more_errors: int, kind: str = _JSON) -> Schema:
        errors = sorted({*_ERRORS} - {501} | {*more_errors})
        body = {"required": True, **self._content(request)}
        responses = self._responses(answer, *errors, kind=kind)
        return {"post": {"summary": summary, "requestBody": body, "responses": responses}}

    def get(
        self, summary: str, answer: Any, *errors: int, kind: str = _JSON, query: Mapping[str, Schema] | None = None
    ) -> Schema:
        operation: Schema = {"summary": summary, "responses": self._responses(answer, *errors, kind=kind)}
        if query:
            operation["parameters"] = [
                {"name": name, "in": "query", "required": True, "schema": schema} for name, schema in query.items()
            ]
        return {"get": operation}

    def _responses(self, answer: Any, *errors: int, kind: str = _JSON) -> Schema:
        done = {"200": {"description": "Success", **self._content(answer, kind)}}
        return done | {str(code): {"description": _ERRORS[code], **self._content(Error)} for code in errors}

    def _content(self, shape: Any, kind: str = _JSON) -> Schema:
        schema = TypeAdapter(shape).json_schema(ref_template="#/components/schemas/{model}")
        self.schemas |= schema.pop("$defs", {})
        if "title" in schema:  # a model
            self.schemas[schema["title"]] = schema
            schema = {"$ref": f"#/components/schemas/{schema['title']}"}
        return {"content": {kind: {"schema": schema}}}
