"""Answers: JSON that any client can read, and the shape of every answer."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BaseModel, Field
from starlette.responses import Response

from multihead.serve.languages import Detection

TextOrTexts = str | list[str]


def reply(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Return ASCII JSON, in which half of a surrogate pair can be written, without NaN."""
    return Response(_encode(content), status, headers, media_type="application/json")


def error_reply(message: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return reply({"error": message}, status, headers)


def _encode(content: object) -> str:
    """Encode JSON in small steps: json.dumps holds the interpreter lock, and would block all threads until done."""
    if isinstance(content, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_encode(value)}" for name, value in content.items()) + "}"
    if isinstance(content, list) and content and isinstance(content[0], list):
        return "[" + ",".join(map(_encode, content)) + "]"
    return json.dumps(content, separators=(",", ":"), allow_nan=False)


# Shapes, for /openapi.json


class Error(BaseModel):
    error: str


class Status(BaseModel):
    status: str


class Language(BaseModel):
    code: str
    name: str
    targets: list[str]


class Translations(BaseModel):
    translatedText: TextOrTexts
    alternatives: list[TextOrTexts] = []
    detectedLanguage: Detection | list[Detection] = []
    via: Annotated[TextOrTexts, Field(description="The language that was translated through, if it was one.")] = ""


class Attention(BaseModel):
    sentences: list[str]
    source: str
    translation: str
    score: float
    alternatives: list[dict[str, Any]]
    scale: Annotated[int, Field(description="Weights are integers, to be divided by this.")]
    tokens: dict[str, list[str]]
    maps: Annotated[dict[str, Any], Field(description="encoder, decoder, cross: layer, head, query, key")]
    alignment: dict[str, Any]
    probabilities: Annotated[
        dict[str, list[float]],
        Field(
            description="tokens: of each target token and the end symbol, given those before it; words: their products"
        ),
    ]
