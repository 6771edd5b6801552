"""XLIFF files: units of version 1.x, segments of version 2.x."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from multihead.data.readers.language_codes import find_languages, no_such_languages
from multihead.data.readers.opening import TextPair, one_line
from multihead.data.readers.xml import END, START, Element, elements, visible_text

UNITS = frozenset(("trans-unit", "segment"))
TAGS = ("xliff", "file", "body", "group", "unit", *sorted(UNITS))
SOURCE_ATTRIBUTES = ("source-language", "srcLang")
TARGET_ATTRIBUTES = ("target-language", "trgLang")


def read_pairs(path: Path, languages: Sequence[str]) -> Iterator[TextPair]:
    """Yield the translated units, without those that still need work."""
    wanted, seen, n_matching = tuple(languages), set[str](), 0
    codes = ("", "")
    for event, element in elements(path, TAGS, (START, END)):
        if event == START:
            codes = _languages(element, codes)
            continue
        target = _target(element)
        if target is None:
            continue
        # A file without a target language has the one that the user asks for.
        known = (codes[0] or wanted[0], codes[1] or wanted[-1])
        if positions := find_languages(known, wanted):
            n_matching += 1
            texts = [one_line(visible_text(side)) for side in (next(element.iterchildren("{*}source")), target)]
            yield texts[positions[0]], texts[positions[1]]
        else:
            seen.update(codes)
    if not n_matching and seen:
        raise no_such_languages(path, languages, seen)


def languages_of(path: Path) -> list[str]:
    """Return the source and target language of the first file."""
    codes = ("", "")
    for event, element in elements(path, TAGS, (START, END)):
        codes = _languages(element, codes)
        if all(codes) or event == END:
            break
    return [code for code in codes if code]


def _languages(element: Element, codes: tuple[str, str]) -> tuple[str, str]:
    source, target = (
        next((value for name in names if (value := element.get(name))), "")
        for names in (SOURCE_ATTRIBUTES, TARGET_ATTRIBUTES)
    )
    return source or codes[0], target or codes[1]


def _target(element: Element) -> Element | None:
    """Return the target of a unit that is translated and finished."""
    if element.tag.rpartition("}")[2] not in UNITS or element.get("translate") == "no":
        return None
    target = next(element.iterchildren("{*}target"), None)
    if target is None or next(element.iterchildren("{*}source"), None) is None:
        return None
    state = target.get("state") or element.get("state") or ""
    return None if state in ("new", "initial") or state.startswith("needs-") else target
