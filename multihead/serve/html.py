"""Split an HTML fragment into sentences, and put it together again around their translations.

Elements inside a sentence (<b>, <a>, ...) are placed around the translated words that the attention of the model aligns
with theirs. All other markup stays as it is. Parsing takes linear time for any input and never fails: a construct that
is never closed is text.
"""

import html
import re
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multihead.text import sentences
from multihead.text.pieces import word_spans
from multihead.text.sentences import join_translations

Cut = Callable[[str], tuple[list[str], list[str]]]  # splits a text into sentences and gaps
Alignment = NDArray[np.floating[Any]]  # target words (rows) by source words; a row sums to 1

_INLINE = frozenset(
    "a abbr b bdi bdo big cite data del dfn em font i img ins kbd label mark q s samp small span strike strong sub sup "
    "time tt u var wbr".split()
)
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_VERBATIM = frozenset("script style pre code textarea svg math template noscript title iframe xmp".split())
_RAW_TEXT = frozenset("script style textarea title iframe xmp".split())  # only their closing tag is markup
MAX_NESTED = 20  # inline elements; deeper ones are dropped, since each sentence repeats the elements around it

# The quantifiers are possessive: without backtracking, each character is read once. A quoted value may contain ">".
_MARKUP = re.compile(
    r"""
      (?P<other> <!--(?: -?> | .*?(?: --!?> | \Z )) | (?: <[!?] | </(?![a-zA-Z]) )[^>]*+> )
    | <(?P<slash>/?)(?P<name>[a-zA-Z][^\s/>]*+)(?P<rest>(?: [^>=]++ | =\s*+(?: "[^"]*+" | '[^']*+' )?+ )*+)>
    """,
    re.DOTALL | re.VERBOSE,
)
_ATTRIBUTE = re.compile(r"""([^\s=/]++)(?:\s*+=\s*+("[^"]*+"|'[^']*+'|[^\s"']++))?+""")


@dataclass(frozen=True, slots=True)
class Element:
    """An inline element around some characters of a sentence; `start == end` if it is empty."""

    start: int
    end: int
    opening: str
    closing: str
    tags: tuple[int, int]  # numbers of its opening and closing tag, which order adjacent empty elements


@dataclass(frozen=True, slots=True)
class Sentence:
    """Text without tags, and its elements, outer ones first."""

    text: str
    elements: tuple[Element, ...] = ()

    def needs_alignment(self) -> bool:
        """True if an element is around only a part of the sentence."""
        return any((element.start, element.end) != (0, len(self.text)) for element in self.elements)


@dataclass(slots=True)
class Fragment:
    """The sentences, and the markup before, between and after them."""

    sentences: list[Sentence] = field(default_factory=list)
    between: list[str] = field(default_factory=lambda: [""])

    def join(self, translated: list[str]) -> str:
        """Return the fragment with its sentences replaced by their translations."""
        return join_translations(translated, self.between)


def parse(markup: str, cut: Cut = sentences.split_sentences) -> Fragment:
    """Split a fragment, using `cut` for its text; plain text is a fragment too."""
    parser = _Parser(cut)
    parser.feed(markup)
    parser.end_block()
    return parser.fragment


def place_tags(sentence: Sentence, translation: str, alignment: Alignment | None) -> str:
    """Return the translation as markup, with the elements of the sentence around the aligned words."""
    spans = word_spans(translation)
    with_content = [element for element in sentence.elements if element.start < element.end]
    empty: dict[int, str] = {}  # empty elements by the word that follows them
    source = word_spans(sentence.text)
    if alignment is None or alignment.shape != (len(spans), len(source)) or not spans:
        around = [with_content] * len(spans)
        for element in sentence.elements:
            if element.start == element.end:
                at = len(spans) if element.start else 0
                empty[at] = empty.get(at, "") + element.opening + element.closing
        return "".join(_write(translation, spans, around, empty))
    around = [[] for _ in spans]
    for element in sentence.elements:
        chosen = _aligned_words(element, source, alignment)
        if element.start == element.end:
            empty[chosen.start] = empty.get(chosen.start, "") + element.opening + element.closing
        for word in chosen:
            around[word].append(element)
    return "".join(_write(translation, spans, around, empty))


def _aligned_words(element: Element, source: list[tuple[int, int]], alignment: Alignment) -> range:
    """Return the target words aligned with the words of an element, from the first to the last.

    For an empty element: an empty range that starts at the word that it precedes.
    """
    if element.start == element.end:
        before = bisect_left(source, element.start, key=lambda word: word[0])
        at = int(alignment[:, before].argmax()) if before < len(source) else len(alignment)
        return range(at, at)
    first = bisect_right(source, element.start, key=lambda word: word[1])
    last = bisect_left(source, element.end, key=lambda word: word[0])
    shares = alignment[:, first:last].sum(axis=1)
    words = np.flatnonzero(shares > 0.5).tolist() or [int(shares.argmax())]
    return range(words[0], words[-1] + 1)


def _write(
    text: str, spans: list[tuple[int, int]], around: list[list[Element]], empty: dict[int, str]
) -> Iterator[str]:
    """Yield words with their elements; an element that continues at the next word is not closed in between."""
    opened: list[Element] = []
    at = 0
    for word, (start, end) in enumerate(spans):
        n_open = _n_common(opened, around[word])
        yield "".join(element.closing for element in reversed(opened[n_open:]))
        yield html.escape(text[at:start], quote=False) + empty.get(word, "")
        yield "".join(element.opening for element in around[word][n_open:])
        yield html.escape(text[start:end], quote=False)
        opened, at = around[word], end
    yield "".join(element.closing for element in reversed(opened))
    yield html.escape(text[at:], quote=False) + empty.get(len(spans), "")


def _n_common(one: list[Element], other: list[Element]) -> int:
    """Return how many elements both lists start with."""
    if one is other:
        return len(one)
    is_same = [left is right for left, right in zip(one, other, strict=False)]
    return [*is_same, False].index(False)


# Parsing


@dataclass(frozen=True, slots=True)
class _Tag:
    at: int  # number of characters of text before it
    name: str
    raw: str
    kind: str  # "open", "close" or "void"


class _Parser:
    """Collects text and inline tags until other markup ends the block."""

    def __init__(self, cut: Cut) -> None:
        self.fragment = Fragment()
        self._cut = cut
        self._text: list[str] = []
        self._n_characters = 0  # of the text
        self._tags: list[_Tag] = []
        self._verbatim = ""  # name of the outermost element whose content is not translated
        self._depth = 0  # number of open elements of that name

    def feed(self, markup: str) -> None:
        at = 0
        while (start := markup.find("<", at)) >= 0:
            self._add_text(markup[at:start])
            found = _MARKUP.match(markup, start)
            if found:
                at = self._add_markup(found)
            elif re.match(r"[!?/a-zA-Z]", markup[start + 1 : start + 2]):  # never closed, so the rest is text
                at = start
                break
            else:
                self._add_text("<")
                at = start + 1
        self._add_text(markup[at:])

    def _add_markup(self, found: re.Match[str]) -> int:
        """Add a tag, comment or declaration; return its end, including the content of elements such as <script>."""
        raw, name = found[0], (found["name"] or "").lower()
        if found["other"]:
            self._add_verbatim(raw)
        elif found["slash"]:
            self._close(raw, name)
        elif self._open(raw, name, found["rest"]) and name in _RAW_TEXT:
            closing = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(found.string, found.end())
            end = closing.start() if closing else len(found.string)
            self._add_verbatim(found.string[found.end() : end])
            return end
        return found.end()

    def _open(self, raw: str, name: str, rest: str) -> bool:
        """Add an opening tag; return True if its element has content."""
        has_content = name not in _VOID and not rest.endswith("/")
        if not self._verbatim and name in _INLINE and not _is_not_translatable(rest):
            self._tags.append(_Tag(self._n_characters, name, raw, "open" if has_content else "void"))
            return has_content
        if has_content and not self._verbatim and (name in _VERBATIM or _is_not_translatable(rest)):
            self._verbatim = name
        if has_content and self._verbatim == name:
            self._depth += 1
        self._add_verbatim(raw)
        return has_content

    def _close(self, raw: str, name: str) -> None:
        if not self._verbatim and name in _INLINE:
            self._tags.append(_Tag(self._n_characters, name, raw, "close"))
            return
        if self._verbatim == name:
            self._depth -= 1
            self._verbatim = name if self._depth else ""
        self._add_verbatim(raw)

    def _add_text(self, raw: str) -> None:
        if self._verbatim:
            self._add_verbatim(raw)
        elif raw:
            self._text.append(_unescape(raw))
            self._n_characters += len(self._text[-1])

    def _add_verbatim(self, raw: str) -> None:
        self.end_block()
        self.fragment.between[-1] += raw

    def end_block(self) -> None:
        """Split the collected text into sentences; an element around several of them is repeated around each."""
        text, tags = "".join(self._text), self._tags
        self._text, self._n_characters, self._tags = [], 0, []
        elements = _elements(tags, len(text))
        touching = _touching(elements)
        sentences, gaps = self._cut(text)
        start = 0
        for gap, sentence in zip(gaps, [*sentences, ""], strict=True):
            self._add_gap(start, start + len(gap), text, touching(start, start + len(gap)))
            start += len(gap)
            if sentence:
                end = start + len(sentence)
                parts = [part for element in touching(start, end) if (part := _part(element, start, end))]
                self.fragment.sentences.append(Sentence(sentence, tuple(parts)))
                self.fragment.between.append("")
                start = end

    def _add_gap(self, start: int, end: int, text: str, elements: list[Element]) -> None:
        """Add white space, and the elements that contain nothing else."""
        inside = [element for element in elements if start <= element.start and element.end <= end]
        tags = [(element.start, element.tags[0], 0, element.opening) for element in inside]
        # Inner elements close first.
        tags += [(element.end, element.tags[1], -element.tags[0], element.closing) for element in inside]
        for position, *_, raw in sorted(tags):
            self.fragment.between[-1] += text[start:position] + raw
            start = position
        self.fragment.between[-1] += text[start:end]


def _unescape(raw: str) -> str:
    try:
        return html.unescape(raw)
    except ValueError:  # a reference such as &#999...; with more digits than Python converts
        return raw


def _elements(tags: list[_Tag], end: int) -> list[Element]:
    """Match inline tags, outer ones first. An unclosed element ends with the text; stray closing tags are dropped."""
    elements: list[Element] = []
    opened: list[tuple[int, _Tag]] = []  # open tags with the index of their element
    names: Counter[str] = Counter()  # of open tags
    for number, tag in enumerate(tags):
        if tag.kind == "void":
            elements.append(Element(tag.at, tag.at, tag.raw, "", (number, number)))
        elif tag.kind == "open" and len(opened) < MAX_NESTED:
            opened.append((len(elements), tag))
            names[tag.name] += 1
            elements.append(Element(tag.at, end, tag.raw, f"</{tag.name}>", (number, len(tags))))
        while tag.kind == "close" and names[tag.name]:
            index, other = opened.pop()
            names[other.name] -= 1
            elements[index] = replace(elements[index], end=tag.at, tags=(elements[index].tags[0], number))
            if other.name == tag.name:
                break
    return elements


def _touching(elements: list[Element]) -> Callable[[int, int], list[Element]]:
    """Return a function that finds the elements which touch a span; spans must come from left to right."""
    upcoming, current = deque(elements), list[Element]()

    def touching(start: int, end: int) -> list[Element]:
        while upcoming and upcoming[0].start <= end:
            current.append(upcoming.popleft())
        current[:] = [element for element in current if element.end >= start]
        return current

    return touching


def _part(element: Element, start: int, end: int) -> Element | None:
    """Return the part of an element inside a sentence, if there is one."""
    first, last = max(element.start, start), min(element.end, end)
    if first < last or start < element.start == element.end < end:
        return replace(element, start=first - start, end=last - start)
    return None


def _is_not_translatable(rest: str) -> bool:
    """Return True if the attributes in this part of a tag exclude its element from translation."""
    if "translate" not in rest.lower():
        return False
    named = {name.lower(): value.strip("\"'") for name, value in _ATTRIBUTE.findall(rest)}
    return named.get("translate", "").lower() == "no" or "notranslate" in named.get("class", "").split()
