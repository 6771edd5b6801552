"""Read the fields of a request from JSON or a form, and validate them against the limits of the server.

The models below are also the source of /openapi.json. Messages are LibreTranslate's where it has them.
"""

import asyncio
import json
from collections.abc import AsyncGenerator
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    ValidationError,
    WithJsonSchema,
    create_model,
)
from pydantic_core import PydanticCustomError
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from multihead.config.schema import SearchConfig
from multihead.serve.errors import BadRequest, BodyTooLarge
from multihead.serve.options import Limits

MAX_FIELDS = 100
MAX_CODE = 20  # characters of a language code
URLENCODED, MULTIPART = "application/x-www-form-urlencoded", "multipart/form-data"

Fields = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)


# Reading


async def read_fields(request: Request, max_bytes: int) -> Fields:
    """Return the fields of a JSON or form body; an empty body has none."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == MULTIPART:
        return await _read_multipart(request, max_bytes)
    body = b"".join([chunk async for chunk in _read_body(request, max_bytes)])
    if kind == URLENCODED:
        return await asyncio.to_thread(_decode_form, body)  # slow if every character is escaped
    return _decode_json(body) if body.strip() else {}


async def _read_body(request: Request, max_bytes: int) -> AsyncGenerator[bytes, None]:
    """Yield the body. A body that is too large is refused before it is read if its length is announced."""
    n_bytes = int(request.headers.get("content-length", "0"))
    error = BodyTooLarge(f"the request is larger than {max_bytes} bytes")
    if n_bytes > max_bytes:
        raise error
    n_bytes = 0
    async for chunk in request.stream():
        n_bytes += len(chunk)
        if n_bytes > max_bytes:
            raise error
        yield chunk


async def _read_multipart(request: Request, max_bytes: int) -> Fields:
    parser = MultiPartParser(request.headers, _read_body(request, max_bytes), max_files=0, max_fields=MAX_FIELDS)
    try:
        form = await parser.parse()
    except (MultiPartException, HTTPException, KeyError, ValueError):
        raise BadRequest("Invalid request: the form cannot be read") from None
    return {name: value for name, value in form.items() if isinstance(value, str)}


def _decode_form(body: bytes) -> Fields:
    try:
        return dict(parse_qsl(body.decode(errors="replace"), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except ValueError:
        raise BadRequest("Invalid request: the form cannot be read") from None


def _decode_json(body: bytes) -> Fields:
    try:
        fields = json.loads(body, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise BadRequest("Invalid request: the body is not JSON") from None
    if not isinstance(fields, dict):
        raise BadRequest("Invalid request: the body is not a JSON object")
    return fields


def _refuse_constant(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


# Models. The description of a field, up to a semicolon, completes the message "NAME must be …".


def parse(model: type[Model], fields: Fields) -> Model:
    """Validate fields; an empty one counts as missing."""
    try:
        return model.model_validate({name: value for name, value in fields.items() if value not in (None, "")})
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
    name = str(first["loc"][0])
    match first["type"]:
        case "missing":
            message = f"missing {name} parameter"
        case "size":
            message = first["msg"]
        case "int_from_float":
            message = f"{name} must be a whole number"
        case _:
            message = f"{name} must be {(model.model_fields[name].description or 'valid').partition(';')[0]}"
    raise BadRequest(f"Invalid request: {message}")


def _check_code(code: str) -> str:
    if len(code) > MAX_CODE:
        raise ValueError
    return code.lower()


def _refuse_boolean(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError
    return value


def _number(kind: Any, minimum: int, maximum: float, note: str = "") -> Any:
    description = f"a number from {minimum} to {maximum:g}{note}"
    return Annotated[kind, Field(ge=minimum, le=maximum, description=description), BeforeValidator(_refuse_boolean)]


def _texts(limits: Limits, allow_list: bool = False) -> Any:
    """The type of `q`: checked here, since pydantic's strings refuse half of a surrogate pair."""

    def check(q: Any) -> Any:
        texts = q if allow_list and isinstance(q, list) else [q]
        if not texts or not all(isinstance(text, str) for text in texts):
            raise ValueError
        for size, limit in (
            (len(texts), limits.texts),
            (max(map(len, texts)), limits.characters),
            (sum(map(len, texts)), limits.request_characters),
        ):
            if size > limit:
                raise PydanticCustomError("size", f"request ({size}) exceeds text limit ({limit})")
        return q

    text = {"type": "string", "maxLength": limits.characters}
    schema: dict[str, Any] = {**text, "minLength": 1}
    if allow_list:
        schema = {"oneOf": [schema, {"type": "array", "items": text, "minItems": 1, "maxItems": limits.texts}]}
    note = f"; up to {limits.request_characters} characters together"
    description = f"a text or a list of texts{note}" if allow_list else "a text"
    return Annotated[Any, AfterValidator(check), WithJsonSchema(schema), Field(description=description)]


Code = Annotated[str, AfterValidator(_check_code), Field(description="the code of a language")]
Key = Annotated[Any, WithJsonSchema({"type": "string"})]  # checked by `access` before the other fields


class DetectRequest(BaseModel):
    """Body of `POST /detect`."""

    q: str
    api_key: Key = None


class TranslateRequest(BaseModel):
    """Body of `POST /translate`; a list of texts is answered with a list."""

    q: str | list[str]
    source: Code
    target: Code
    format: Annotated[Literal["text", "html"], Field(description="text or html")] = "text"
    alternatives: int = 0
    api_key: Key = None

    @property
    def texts(self) -> list[str]:
        return [self.q] if isinstance(self.q, str) else self.q


class AttentionRequest(BaseModel):
    """Body of `POST /attention`."""

    q: str
    source: Code
    target: Code
    sentence: int = 0
    alternatives: int = 0
    beam: int = SearchConfig().beam
    alpha: float | None = None
    api_key: Key = None

    @property
    def search(self) -> SearchConfig:
        n_best = 1 + self.alternatives
        return SearchConfig(n_best=n_best, beam=max(n_best, self.beam), alpha=self.alpha)


class ExplainRequest(BaseModel):
    """Body of `POST /explain`, and query of `GET /explain`."""

    source: Code
    target: Code
    api_key: Key = None


@dataclass(frozen=True, slots=True)
class RequestModels:
    """The models with the limits of a server."""

    detect: type[DetectRequest]
    translate: type[TranslateRequest]
    attention: type[AttentionRequest]

    @classmethod
    def with_limits(cls, limits: Limits) -> "RequestModels":
        def bounded(model: type[Model], **types: Any) -> type[Model]:
            fields: dict[str, Any] = {name: (kind, model.model_fields[name].default) for name, kind in types.items()}
            return create_model(model.__name__, __base__=model, **fields)

        text, alternatives = _texts(limits), _number(int, 0, limits.alternatives)
        return cls(
            detect=bounded(DetectRequest, q=text),
            translate=bounded(TranslateRequest, q=_texts(limits, allow_list=True), alternatives=alternatives),
            attention=bounded(
                AttentionRequest,
                q=text,
                sentence=_number(int, 0, limits.characters),
                alternatives=alternatives,
                beam=_number(int, 1, limits.beam),
                alpha=_number(float | None, 0, limits.alpha, note="; by default the model's own"),
            ),
        )
