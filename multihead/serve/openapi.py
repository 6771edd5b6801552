"""What the routes take and give, as OpenAPI; tests send what it allows, and see that it is true."""

from importlib.metadata import version
from typing import Any

from multihead.serve.service import AUTO, Limits

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_ERROR: Schema = {
    "type": "object",
    "required": ["error"],
    "properties": {"error": {"type": "string", "description": "What is wrong, in words."}},
}
_DETECTION: Schema = {
    "type": "object",
    "required": ["confidence", "language"],
    "properties": {"confidence": {"type": "number", "minimum": 0, "maximum": 100}, "language": _TEXT},
}


def describe(limits: Limits, sources: list[str], targets: list[str]) -> Schema:
    """The document of /openapi.json, for a server of these languages."""
    languages = {
        "source": {"enum": [AUTO, *sources], "description": "Language of the text; auto to find it out."},
        "target": {"enum": targets, "description": "Language to translate to."},
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Multihead",
            "version": version("multihead"),
            "description": "A translation server with LibreTranslate's interface, and attention to look at.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "paths": {
            "/translate": {"post": _translate(limits, languages)},
            "/detect": {"post": _detect(limits)},
            "/languages": {"get": _get("What can be translated", _LANGUAGES)},
            "/frontend/settings": {"get": _get("What a page has to know", {"type": "object"})},
            "/attention": {"post": _attention(limits, languages)},
            "/health": {"get": _get("Whether the process is alive", _STATUS, busy=False)},
            "/ready": {"get": _get("Whether requests are welcome", _STATUS)},
            "/openapi.json": {"get": _get("This document", {"type": "object"})},
            "/metrics": {"get": {"summary": "Figures for Prometheus", "responses": {"200": _plain("Figures")}}},
        },
    }


_STATUS: Schema = {"type": "object", "required": ["status"], "properties": {"status": _TEXT}}
_LANGUAGES: Schema = {
    "type": "array",
    "items": {
        "type": "object",
        "required": ["code", "name", "targets"],
        "properties": {"code": _TEXT, "name": _TEXT, "targets": {"type": "array", "items": _TEXT}},
    },
}


def _translate(limits: Limits, languages: Schema) -> Schema:
    text = {"type": "string", "minLength": 1, "maxLength": limits.characters}
    some = {
        "type": "array",
        "items": {"type": "string", "maxLength": limits.characters},
        "minItems": 1,
        "maxItems": limits.texts,
        "description": f"Up to {limits.request_characters} characters together.",
    }
    fields = {
        "q": {"oneOf": [text, some], "description": "A text, or several; several are answered with a list."},
        **languages,
        "format": {"enum": ["text", "html"], "default": "text"},
        "alternatives": {"type": "integer", "minimum": 0, "maximum": limits.alternatives, "default": 0},
        "api_key": _TEXT,
    }
    one_or_more = {"oneOf": [_TEXT, {"type": "array", "items": _TEXT}]}
    answer = {
        "type": "object",
        "required": ["translatedText"],
        "properties": {
            "translatedText": one_or_more,
            "alternatives": {"type": "array", "items": {"oneOf": [_TEXT, {"type": "array", "items": _TEXT}]}},
            "detectedLanguage": {"oneOf": [_DETECTION, {"type": "array", "items": _DETECTION}]},
        },
    }
    return _post("Translate", fields, ["q", "source", "target"], answer)


def _detect(limits: Limits) -> Schema:
    fields = {"q": {"type": "string", "minLength": 1, "maxLength": limits.characters}, "api_key": _TEXT}
    return _post("Which language a text is in", fields, ["q"], {"type": "array", "items": _DETECTION})


def _attention(limits: Limits, languages: Schema) -> Schema:
    fields = {
        "q": {"type": "string", "minLength": 1, "maxLength": limits.characters},
        **languages,
        "sentence": {"type": "integer", "minimum": 0, "maximum": limits.characters, "default": 0},
        "alternatives": {"type": "integer", "minimum": 0, "maximum": limits.alternatives, "default": 0},
        "beam": {"type": "integer", "minimum": 1, "maximum": limits.beam, "default": 4},
        "alpha": {"type": "number", "minimum": 0, "maximum": 5, "description": "By default the model's own."},
        "api_key": _TEXT,
    }
    answer = {
        "type": "object",
        "required": ["sentences", "source", "translation", "score", "alternatives", "tokens", "maps", "alignment"],
        "properties": {
            "sentences": {"type": "array", "items": _TEXT},
            "translation": _TEXT,
            "score": {"type": "number"},
            "scale": {"type": "integer", "description": "Weights are whole parts of this."},
            "maps": {"type": "object", "description": "encoder, decoder, cross: layer, head, query, key."},
        },
    }
    return _post("What every head looks at in one sentence", fields, ["q", "source", "target"], answer)


def _post(summary: str, fields: Schema, required: list[str], answer: Schema) -> Schema:
    body = {"type": "object", "required": required, "properties": fields}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {"200": _json("Done", answer), **_refusals("400", "403", "413", "429", "500", "503")},
    }


def _get(summary: str, answer: Schema, busy: bool = True) -> Schema:
    return {"summary": summary, "responses": {"200": _json("Done", answer), **(_refusals("503") if busy else {})}}


_WHY = {
    "500": "An error of the server",
    "400": "The request cannot be served",
    "403": "The key is not known",
    "413": "The body is too large",
    "429": "Too many requests of this client",
    "503": "Too much is waiting, or the models are not there yet; Retry-After says when to come again",
}


def _refusals(*codes: str) -> Schema:
    return {code: _json(_WHY[code], _ERROR) for code in codes}


def _json(description: str, schema: Schema) -> Schema:
    return {"description": description, "content": {"application/json": {"schema": schema}}}


def _plain(description: str) -> Schema:
    return {"description": description, "content": {"text/plain": {"schema": _TEXT}}}
