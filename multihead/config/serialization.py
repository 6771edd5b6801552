"""TODO."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from multihead.config.resolve import OLD_NAMES, configure, dotted, format_validation_error
from multihead.config.schema import ModelSearch, RunConfig, Settings
from multihead.errors import UsageError, UserError

PUBLISHED = ("search", "provenance")  # sections of config.json that only a published model has
FORMAT = 2  # of config.json; a reader refuses what is newer than itself


def to_json(config: RunConfig, provenance: Mapping[str, Any] | None = None, search: ModelSearch | None = None) -> str:
    """The content of config.json; of a published model with how it came about and how it translates best."""
    published = {"search": dataclasses.asdict(search) if search else None, "provenance": provenance}
    document = {"format": FORMAT, **dataclasses.asdict(config)}
    return json.dumps(document | {name: value for name, value in published.items() if value}, indent=2) + "\n"


def from_json(text: str, origin: Path) -> RunConfig:
    """A `config.json` read back; `origin` is named when it cannot be."""
    try:
        document = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{origin} is not JSON: {error}") from None
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise UserError(f"{origin} is not a configuration of Multihead: it has no format number")
    if document["format"] > FORMAT:
        raise UserError(
            f"{origin} has format {document['format']}, and this version reads up to {FORMAT}: update multihead"
        )
    sections = {name: fields for name, fields in document.items() if isinstance(fields, dict) and name not in PUBLISHED}
    try:
        return configure(_WHEN_ABSENT, current_names(dotted(sections)))
    except UsageError as error:
        raise UserError(f"{origin}: {error}") from None


# Values of fields that an older config.json does not have, where the default of a new run would be wrong.
_WHEN_ABSENT: Settings = {"data.unicode": "none"}


def current_names(settings: Settings) -> Settings:
    """Return settings of format 1 under the names that they have in format 2."""
    return {OLD_NAMES.get(name, name): value for name, value in settings.items()}


def search_from_json(text: str, origin: Path) -> ModelSearch:
    """How a model translates best, by its `config.json`; one that says nothing is searched as in the paper."""
    try:
        stored = json.loads(text).get("search", {})
        return TypeAdapter(ModelSearch).validate_python(stored)
    except ValidationError as error:
        raise UserError(f"{origin}: search.{format_validation_error(error)}") from None
