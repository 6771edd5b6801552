"""Directions of translation as text: en-de, and en-pt_BR for a language with a region."""

import re

from multihead.errors import UsageError

Languages = tuple[str, str]  # source and target

_DIRECTION = re.compile(r"(\w+)-(\w+)")


def direction_of(languages: Languages) -> str:
    """Return the name of a direction."""
    source, target = (code.replace("-", "_") for code in languages)
    return f"{source}-{target}"


def languages_of(direction: str) -> Languages:
    """Return the languages of a direction by its name."""
    found = _DIRECTION.fullmatch(direction)
    if not found:
        raise UsageError(f"'{direction}' is not a direction such as en-de; regions are written en-pt_BR")
    return found[1].replace("_", "-"), found[2].replace("_", "-")
