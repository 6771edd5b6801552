"""config.json: a configuration as text, with its format number, and the readers of older formats."""

import dataclasses
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from multihead.config.fields import check_names
from multihead.config.resolve import configure, current_names, dotted
from multihead.config.schema import OLD_DATA_SETTINGS, ModelSearch, RunConfig, Settings
from multihead.errors import UsageError, UserError
from multihead.untrusted import parse_json

PUBLISHED = ("search", "provenance")  # sections that only a published model has
_WHEN_ABSENT: Settings = {f"data.{name}": value for name, value in OLD_DATA_SETTINGS.items()}
FORMAT = 2  # format 1 has the old names of settings
# Settings of a few runs, which config.json leaves out where they have their default.
_RARE: Settings = {
    **{"data.directions": (), "data.balance": 2.0, "data.rehearse": 1.0},
    "train.new_vocabulary": False,
}


def to_json(config: RunConfig, provenance: Mapping[str, Any] | None = None, search: ModelSearch | None = None) -> str:
    """Return the content of config.json; that of a published model includes its provenance and search settings."""
    published = {"search": dataclasses.asdict(search) if search else None, "provenance": provenance}
    document = {"format": FORMAT, **_without_rare(dataclasses.asdict(config))}
    return json.dumps(document | {name: value for name, value in published.items() if value}, indent=2) + "\n"


def _without_rare(sections: dict[str, Any]) -> dict[str, Any]:
    for name, default in _RARE.items():
        section, _, field = name.partition(".")
        if sections[section][field] == default:
            del sections[section][field]
    return sections


def from_json(text: str | bytes, origin: Path) -> RunConfig:
    """Parse config.json; `origin` is the path for error messages."""
    document = parse_json(text, origin)
    if not isinstance(document, dict) or not isinstance(document.get("format"), int):
        raise UserError(f"{origin} is not a Multihead configuration: it has no format number")
    if document["format"] > FORMAT:
        raise UserError(
            f"{origin} has format {document['format']}, but this version reads formats up to {FORMAT}; update multihead"
        )
    sections = {name: fields for name, fields in document.items() if isinstance(fields, dict) and name not in PUBLISHED}
    try:
        return configure(_WHEN_ABSENT, current_names(dotted(sections)))
    except UsageError as error:
        raise UserError(f"{origin}: {error}") from None


def search_from_json(text: str | bytes, origin: Path) -> ModelSearch:
    """Return the search settings in config.json, by default those of the paper."""
    document = parse_json(text, origin)
    stored = document.get("search", {}) if isinstance(document, dict) else document
    if not isinstance(stored, dict):
        raise UserError(f"{origin}: search={stored}: not an object of settings")
    try:
        check_names(stored, ModelSearch)
        values: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in stored.items()}
        return ModelSearch(**values)
    except UsageError as error:
        raise UserError(f"{origin}: search: {error}") from None
