"""Translation memories (TMX 1.1 to 1.4)."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from multihead.data.readers.language_codes import find_languages, no_such_languages
from multihead.data.readers.opening import TextPair, one_line
from multihead.data.readers.xml import Element, elements, visible_text

XML_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"
SAMPLE = 100  # units that show which languages a memory has


def read_pairs(path: Path, languages: Sequence[str]) -> Iterator[TextPair]:
    """Yield the pairs of the units that have all of the languages; the first variant of each language counts."""
    wanted, seen, n_pairs = tuple(languages), set[str](), 0
    for _, unit in elements(path, ["tu"]):
        codes, segments = _variants(unit)
        if positions := find_languages(codes, wanted):
            source, target = (one_line(visible_text(segments[position])) for position in positions)
            n_pairs += 1
            yield source, target
        elif not n_pairs:
            seen.update(codes)
    if not n_pairs:
        raise no_such_languages(path, languages, seen)


def languages_of(path: Path) -> list[str]:
    """Return the languages of the first units, that of the sources first if the header names it."""
    source, found = "", dict[str, None]()
    for _, element in islice(elements(path, ["header", "tu"]), SAMPLE):
        source = source or element.get("srclang", "")
        found.update(dict.fromkeys(_variants(element)[0]))
    return sorted(found, key=lambda code: code.lower() != source.lower())


def _variants(unit: Element) -> tuple[tuple[str, ...], list[Element]]:
    """Return the languages of a unit, and the segment of each."""
    segments = list(unit.iter("{*}seg"))
    variants = [segment.getparent() for segment in segments]
    return tuple([variant.get(XML_LANGUAGE) or variant.get("lang") or "" for variant in variants]), segments
