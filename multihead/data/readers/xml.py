"""Elements of an XML file as a stream: bounded memory, no network, no entities."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from multihead.data.readers.opening import BLOCK, MAX_UNIT_BYTES, open_bytes
from multihead.errors import UserError

Element = Any  # lxml has no types

START, END = "start", "end"
HIDDEN = frozenset("bpt ept it ut ph x bx ex sc ec sub".split())  # inline elements that contain markup, not text
STANDALONE = frozenset(("ph", "x"))  # those that stand for something between two words


def elements(path: Path, tags: Sequence[str], events: Sequence[str] = (END,)) -> Iterator[tuple[str, Element]]:
    """Yield events of the elements with these names, in any namespace; an element is emptied after its end.

    The elements must follow each other closely: a file with more than MAX_UNIT_BYTES between two events is refused.
    """
    from lxml import etree

    parser = etree.XMLPullParser(
        events,
        tag=[f"{{*}}{tag}" for tag in tags],
        **{"resolve_entities": False, "no_network": True, "load_dtd": False, "huge_tree": False},
        **{"remove_comments": True, "remove_pis": True},
    )
    with open_bytes(path) as file:
        try:
            yield from _events(parser, file, path)
        except etree.XMLSyntaxError as error:
            raise UserError(f"{path}, line {max(1, error.lineno):,}: {error.msg}") from None


def _events(parser: Any, file: Any, path: Path) -> Iterator[tuple[str, Element]]:
    n_bytes, line = 0, 1  # since the last event, and where that was
    is_checked = False
    while block := file.read(BLOCK):
        parser.feed(block)
        if faults := parser.feed_error_log.filter_from_errors():  # not all of them are raised
            raise UserError(f"{path}, line {faults[0].line:,}: {faults[0].message}")
        n_bytes += len(block)
        for event, element in parser.read_events():
            n_bytes, line = 0, element.sourceline
            if not is_checked:
                _refuse_entities(element, path)
                is_checked = True
            yield event, element
            if event == END:
                _forget(element)
        if n_bytes > MAX_UNIT_BYTES:
            raise UserError(
                f"{path}, line {line:,}: more than {MAX_UNIT_BYTES:,} bytes from here on without the end of a unit, "
                "which is too much for a sentence pair"
            )
    parser.close()


def _refuse_entities(element: Element, path: Path) -> None:
    """Refuse a document that declares entities: corpora need none, and attacks do."""
    declarations = element.getroottree().docinfo.internalDTD
    if declarations is not None and any(True for _ in declarations.iterentities()):
        raise UserError(f"{path} declares XML entities, which are not read; replace them by their text")


def _forget(element: Element) -> None:
    """Free the memory of an element and of all elements before it."""
    element.clear()
    parent = element.getparent()
    while element.getprevious() is not None:
        del parent[0]


def visible_text(element: Element) -> str:
    """Return the text of a segment without the code of its inline tags."""
    if not len(element):
        return element.text or ""
    parts = [element.text or ""]
    for child in element:
        name = child.tag.rpartition("}")[2] if isinstance(child.tag, str) else ""
        if name in STANDALONE:
            parts.append(" ")
        elif name and name not in HIDDEN:
            parts.append(visible_text(child))
        parts.append(child.tail or "")
    return "".join(parts)
