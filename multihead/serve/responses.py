"""Answers as JSON that any client can read: in ASCII, so that half of a surrogate pair is no error, and without NaN."""

import json
from collections.abc import Mapping

from starlette.responses import Response


def reply(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(_encode(content), status, headers, media_type="application/json")


def error(text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return reply({"error": text}, status, headers)


def _encode(content: object) -> str:
    """JSON, encoded in small steps: json.dumps holds the interpreter lock, and would stop all threads for the whole."""
    if isinstance(content, dict):
        return "{" + ",".join(f"{json.dumps(name)}:{_encode(value)}" for name, value in content.items()) + "}"
    if isinstance(content, list) and content and isinstance(content[0], list):
        return "[" + ",".join(map(_encode, content)) + "]"
    return json.dumps(content, separators=(",", ":"), allow_nan=False)
