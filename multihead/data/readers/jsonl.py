"""JSON Lines: {"en": "…", "de": "…"} or {"translation": {"en": "…", "de": "…"}} on each line."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from multihead.data.readers.language_codes import codes_among, find_columns
from multihead.data.readers.opening import TextPair, lines_of, one_line
from multihead.errors import UserError

NESTED = "translation"  # the key under which datasets of Hugging Face have the texts


def read_pairs(path: Path, languages: Sequence[str]) -> Iterator[TextPair]:
    """Yield the pairs of a file with an object on each line."""
    names: list[str] = []
    columns: tuple[int, ...] | None = None
    for number, texts in _objects(path):
        if list(texts) != names:  # usually the keys of all objects are the same
            names = list(texts)
            columns = find_columns(names, languages)
        if not columns:
            raise UserError(
                f"{path}, line {number:,}: no texts in {' and '.join(languages)}; its keys are {', '.join(names)[:200]}"
            )
        values = [texts[names[column]] for column in columns]
        if not all(value is None or isinstance(value, str) for value in values):
            raise UserError(f"{path}, line {number:,}: {names[columns[0]]} and {names[columns[1]]} must be texts")
        source, target = (one_line(str(value or "")) for value in values)
        yield source, target


def languages_of(path: Path) -> list[str]:
    """Return the languages that are keys of the first object."""
    _, texts = next(_objects(path), (0, {}))
    return codes_among(key for key, value in texts.items() if isinstance(value, str))


def _objects(path: Path) -> Iterator[tuple[int, dict[str, object]]]:
    for number, line in lines_of(path):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8", "surrogateescape"))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path}, line {number:,}: not JSON: {error}") from None
        texts = record.get(NESTED, record) if isinstance(record, dict) else None
        if not isinstance(texts, dict):
            raise UserError(f'{path}, line {number:,}: not an object such as {{"en": "…", "de": "…"}}')
        yield number, texts
