"""Catalogs of gettext (PO): finished translations, plural forms included."""

import codecs
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from multihead.data.readers.language_codes import find_languages, no_such_languages
from multihead.data.readers.opening import MAX_UNIT_BYTES, TextPair, lines_of, one_line
from multihead.errors import UserError

HEADER_LINES = 200
SOURCE_LANGUAGE = "en"  # of nearly all catalogs, which do not name it
_FIELD = re.compile(r'(msgctxt|msgid|msgid_plural|msgstr(?:\[\d+\])?)\s*"(.*)"')
_STRING = re.compile(r'"(.*)"')
_ESCAPE = re.compile(r"\\([0-7]{1,3}|x[0-9A-Fa-f]{1,2}|.)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "a": "", "b": "", "f": "", "v": ""}


@dataclass(slots=True)
class _Entry:
    fields: dict[str, str] = field(default_factory=dict)
    is_fuzzy: bool = False

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Yield the translations: the singular, and the last plural form, which is that of large numbers."""
        forms = [text for name, text in self.fields.items() if name.startswith("msgstr")]
        source, plural = self.fields.get("msgid", ""), self.fields.get("msgid_plural")
        if self.is_fuzzy or not source or not all(forms) or not forms:
            return
        if plural is None or len(forms) > 1:
            yield source, forms[0]
        if plural is not None:
            yield plural, forms[-1]


def read_pairs(path: Path, languages: Sequence[str]) -> Iterator[TextPair]:
    """Yield the finished translations of a catalog."""
    wanted = tuple(languages)
    _, target = _header(path)
    codes = (wanted[0] if not target or find_languages((target,), wanted[1:]) else wanted[-1], target or wanted[-1])
    positions = find_languages(codes, wanted)
    if not positions:
        raise no_such_languages(path, languages, [target])
    for entry in _entries(path):
        for pair in entry.pairs():
            texts = [one_line(text) for text in pair]
            yield texts[positions[0]], texts[positions[1]]


def languages_of(path: Path) -> list[str]:
    """Return English, in which programs are written, and the language that the header names."""
    _, target = _header(path)
    return [SOURCE_LANGUAGE, target] if target else []


def _header(path: Path) -> tuple[str, str]:
    """Return the encoding and the language that the header of a catalog names."""
    head = b"\n".join(line for _, line in islice(lines_of(path), HEADER_LINES)).decode("ascii", "replace")
    charset = re.search(r"charset=([\w-]+)", head)
    language = re.search(r'^"Language: *([\w-]+)', head, re.MULTILINE)
    name = charset[1] if charset and charset[1] != "CHARSET" else "utf-8"
    try:
        codecs.lookup(name)
    except LookupError:
        raise UserError(f"{path}: the header names the encoding {name}, which is not known") from None
    return name, language[1] if language else ""


def _entries(path: Path) -> Iterator[_Entry]:
    encoding, _ = _header(path)
    entry, name, size = _Entry(), "", 0
    for number, raw in lines_of(path):
        line = raw.decode(encoding, "surrogateescape").strip()
        begins = line.startswith(("msgctxt", "msgid ", 'msgid"', "#")) and any(
            key.startswith("msgstr") for key in entry.fields
        )
        if begins or (not line and entry.fields.keys() & {"msgstr", "msgstr[0]"}):
            yield entry
            entry, name, size = _Entry(), "", 0
        if not line or line.startswith("#"):  # "#~" marks obsolete entries
            entry.is_fuzzy |= line.startswith("#,") and "fuzzy" in line
        elif found := _FIELD.fullmatch(line):
            name, text = found[1], found[2]
            entry.fields[name] = _unescaped(text)
        elif name and (found := _STRING.fullmatch(line)):
            entry.fields[name] += _unescaped(found[1])
        else:
            raise UserError(f"{path}, line {number:,}: not a line of a gettext catalog: {line[:60]}")
        size += len(raw)
        if size > MAX_UNIT_BYTES:
            raise UserError(f"{path}, line {number:,}: a message longer than {MAX_UNIT_BYTES:,} bytes")
    yield entry


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(_replacement, text) if "\\" in text else text


def _replacement(match: re.Match[str]) -> str:
    code = match[1]
    if code[0] in "01234567":
        return chr(int(code, 8))
    if code[0] == "x" and len(code) > 1:
        return chr(int(code[1:], 16))
    return _ESCAPES.get(code, code)
