"""The fields of a request, from JSON or a form, checked one by one before anything is done with them."""

import asyncio
import json
import math
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from starlette.exceptions import HTTPException
from starlette.requests import Request

from multihead.config.resolve import search_config
from multihead.config.schema import ALPHA, BEAM, SearchConfig
from multihead.errors import UserError
from multihead.serve.errors import BadRequest
from multihead.serve.service import Limits

FORMATS = ("text", "html")
MAX_FIELDS = 100
URLENCODED = "application/x-www-form-urlencoded"

Fields = dict[str, Any]


async def read_fields(request: Request) -> Fields:
    """The fields of a body, whether it is JSON or a form; a body that is neither has none."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in (URLENCODED, "multipart/form-data"):
        return await _read_form(request, kind)
    body = await request.body()
    if not body.strip():
        return {}
    try:
        fields = json.loads(body, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        raise BadRequest("Invalid request: the body is not JSON") from None
    if not isinstance(fields, dict):
        raise BadRequest("Invalid request: the body is not a JSON object")
    return fields


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


async def _read_form(request: Request, kind: str) -> Fields:
    try:
        if kind == URLENCODED:  # in a thread, because decoding takes long if all of it is escaped
            return await asyncio.to_thread(_decode_form, await request.body())
        form = await request.form(max_files=0, max_fields=MAX_FIELDS)
    except (HTTPException, ValueError):
        raise BadRequest("Invalid request: the form cannot be read") from None
    return {name: value for name, value in form.items() if isinstance(value, str)}


def _decode_form(body: bytes) -> Fields:
    return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS))


@dataclass(frozen=True, slots=True, kw_only=True)
class TranslateFields:
    """What `POST /translate` asks for."""

    texts: list[str]
    is_list: bool  # a list is answered with a list
    source: str
    target: str
    is_html: bool
    alternatives: int

    @classmethod
    def read(cls, fields: Fields, limits: Limits) -> "TranslateFields":
        texts, is_list = _texts(fields, limits)
        return cls(
            texts=texts,
            is_list=is_list,
            source=_code(fields, "source"),
            target=_code(fields, "target"),
            is_html=_choice(fields, "format", FORMATS) == "html",
            alternatives=_integer(fields, "alternatives", 0, limits.alternatives),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionFields:
    """What `POST /attention` asks for."""

    text: str
    source: str
    target: str
    sentence: int
    search: SearchConfig

    @classmethod
    def read(cls, fields: Fields, limits: Limits) -> "AttentionFields":
        (text,), is_list = _texts({"q": fields.get("q")}, Limits(texts=1, characters=limits.characters))
        if is_list:
            raise BadRequest("Invalid request: q must be a text")
        n_best = 1 + _integer(fields, "alternatives", 0, limits.alternatives)
        beam = max(n_best, _integer(fields, "beam", BEAM, limits.beam, least=1))
        try:
            alpha = None if fields.get("alpha") in (None, "") else _number(fields, "alpha", ALPHA, 5.0)
            search = search_config(n_best=n_best, beam=beam, alpha=alpha)  # None: the model's own
        except UserError as error:
            raise BadRequest(f"Invalid request: {error}") from None
        return cls(
            text=text,
            source=_code(fields, "source"),
            target=_code(fields, "target"),
            sentence=_integer(fields, "sentence", 0, limits.characters),
            search=search,
        )


def detect_text(fields: Fields, limits: Limits) -> str:
    """What `POST /detect` asks about."""
    (text,), is_list = _texts({"q": fields.get("q")}, Limits(texts=1, characters=limits.characters))
    if is_list:
        raise BadRequest("Invalid request: q must be a text")
    return text


def _texts(fields: Fields, limits: Limits) -> tuple[list[str], bool]:
    q = fields.get("q")
    texts: list[Any] = q if isinstance(q, list) else [q]
    if not q and q != []:
        raise BadRequest("Invalid request: missing q parameter")
    if not texts or not all(isinstance(text, str) for text in texts):
        raise BadRequest("Invalid request: q must be a text or a list of texts")
    if len(texts) > limits.texts:
        raise BadRequest(f"Invalid request: request ({len(texts)}) exceeds text limit ({limits.texts})")
    for size, limit in (
        (max(map(len, texts)), limits.characters),
        (sum(map(len, texts)), limits.request_characters),
    ):
        if size > limit:
            raise BadRequest(f"Invalid request: request ({size}) exceeds text limit ({limit})")
    return texts, isinstance(q, list)


def _code(fields: Fields, name: str) -> str:
    code = fields.get(name)
    if not code:
        raise BadRequest(f"Invalid request: missing {name} parameter")
    if not isinstance(code, str) or len(code) > 20:
        raise BadRequest(f"Invalid request: {name} must be the code of a language")
    return code.lower()


def _choice(fields: Fields, name: str, known: tuple[str, ...]) -> str:
    chosen = fields.get(name) or known[0]
    if chosen not in known:
        raise BadRequest(f"Invalid request: {name} must be {' or '.join(known)}")
    return str(chosen)


def _integer(fields: Fields, name: str, default: int, most: int, least: int = 0) -> int:
    number = _number(fields, name, default, most, least)
    if number != int(number):
        raise BadRequest(f"Invalid request: {name} must be a whole number")
    return int(number)


def _number(fields: Fields, name: str, default: float, most: float, least: float = 0) -> float:
    given = fields.get(name)
    if given is None or given == "":
        return default
    try:
        number = math.nan if isinstance(given, bool) or not isinstance(given, int | float | str) else float(given)
    except (ValueError, OverflowError):
        number = math.nan
    if not least <= number <= most:
        raise BadRequest(f"Invalid request: {name} must be a number from {least} to {most}")
    return number
