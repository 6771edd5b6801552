"""Answers as JSON that any client can read: in ASCII, so that half of a surrogate pair is no error, and without NaN."""

import json
from collections.abc import Mapping

from starlette.responses import Response


def reply(content: object, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    body = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return Response(body, status, headers, media_type="application/json")


def error(text: str, status: int, headers: Mapping[str, str] | None = None) -> Response:
    return reply({"error": text}, status, headers)
