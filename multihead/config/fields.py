"""Validation of settings: values that fit their field are checked here, all others are left to pydantic.

Importing pydantic and building its validators takes longer than translating a sentence. Settings nearly always have
the right type already, so pydantic is imported only to convert a value, such as the text of
`--set train.warmup=8000`, or to say what is wrong with it.
"""

import dataclasses
import types
import typing
from functools import cache
from typing import TYPE_CHECKING, Any

from multihead.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from _typeshed import DataclassInstance
    from pydantic import ValidationError


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """Limits of a number, in the annotation of its field; understood by pydantic as well."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None

    def contain(self, value: float) -> bool:
        """Return whether a number is inside the limits; NaN never is."""
        return (
            (self.ge is None or value >= self.ge)
            and (self.gt is None or value > self.gt)
            and (self.le is None or value <= self.le)
            and (self.lt is None or value < self.lt)
        )

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        limits = {name: limit for name in ("ge", "gt", "le", "lt") if (limit := getattr(self, name)) is not None}
        return {**handler(source), **limits}


def check_fields(settings: "DataclassInstance") -> None:
    """Validate every field of a new, frozen object; raise UsageError if a value cannot be converted to its type."""
    for field in dataclasses.fields(settings):
        value = getattr(settings, field.name)
        if not conforms(value, field.type):
            object.__setattr__(settings, field.name, convert(field.name, field.type, value))


def check_names(names: typing.Iterable[str], settings: "type[DataclassInstance]") -> None:
    """Refuse the name of a field that does not exist."""
    known = [field.name for field in dataclasses.fields(settings)]
    for name in names:
        if name not in known:
            raise UsageError(f"there is no setting '{name}'{did_you_mean(name, known)}")


def conforms(value: object, kind: Any) -> bool:
    """Return whether a value has exactly this type and is inside its bounds, so that pydantic would not change it."""
    origin, arguments = _parts(kind)
    if origin is typing.Annotated:
        base, *metadata = arguments
        limits = (one for one in metadata if isinstance(one, Bounds))
        return conforms(value, base) and all(one.contain(typing.cast(float, value)) for one in limits)
    if origin is typing.Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    if origin is tuple:  # of any length
        return type(value) is tuple and all(conforms(one, arguments[0]) for one in value)
    if origin in (typing.Union, types.UnionType):
        return any(conforms(value, one) for one in arguments)
    return type(value) is kind


@cache
def _parts(kind: Any) -> tuple[Any, tuple[Any, ...]]:
    if hasattr(kind, "__metadata__"):
        return typing.Annotated, (kind.__origin__, *kind.__metadata__)
    return typing.get_origin(kind), typing.get_args(kind)


def convert(name: str, kind: Any, value: object) -> Any:
    """Return a value as the type of a field; `name` is for the error message."""
    from pydantic import ValidationError

    try:
        return _validator(kind).validate_python(value)
    except ValidationError as error:
        raise UsageError(f"{name}={value} {_requirement(error)}") from None


def requirement_of(error: BaseException) -> str:
    """Return what pydantic refused and why, for options that are no settings: "'four' must be a whole number"."""
    from pydantic import ValidationError

    assert isinstance(error, ValidationError)
    return f"'{error.errors()[0]['input']}' {_requirement(error)}"


# What a value must be, by pydantic's name of the error and its details.
_REQUIREMENTS = {
    "greater_than_equal": "must be at least {ge:g}",
    "greater_than": "must be more than {gt:g}",
    "less_than_equal": "must be at most {le:g}",
    "less_than": "must be less than {lt:g}",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "int_from_float": "must be a whole number",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "string_type": "must be text",
    "literal_error": "must be {expected}",
}


def _requirement(error: "ValidationError") -> str:
    """Return what is wrong with a value, in our words where there are some."""
    first = error.errors()[0]
    known = _REQUIREMENTS.get(first["type"])
    return known.format(**first.get("ctx", {})) if known else f"is invalid: {first['msg']}"


def format_validation_error(error: "ValidationError") -> str:
    """Describe what is wrong with a field, beginning with its name."""
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    return f"{name} is missing" if first["type"] == "missing" else f"{name}={first['input']}: {first['msg']}"


@cache
def _validator(kind: Any) -> Any:
    from pydantic import TypeAdapter

    return TypeAdapter(kind)
