"""An HTML fragment cut into sentences, and put together again around their translations.

Elements inside of a sentence (<b>, <a>, ...) go around the translated words that come from theirs; the attention of the
model says which those are. Everything else stays where it was.
"""

import html
import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser

from torch import Tensor

from multihead.sentences import cut

_INLINE = frozenset(
    "a abbr b bdi bdo big cite data del dfn em font i img ins kbd label mark q s samp small span strike strong sub sup "
    "time tt u var wbr".split()
)
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_VERBATIM = frozenset("script style pre code textarea svg math template noscript title iframe".split())
_RAW_TEXT = frozenset({"script", "style"})  # in which & and < stand for themselves


@dataclass(frozen=True, slots=True)
class Element:
    """An inline element around some characters of a sentence; one without content has `start == end`."""

    start: int
    end: int
    opening: str
    closing: str
    tags: tuple[int, int]  # numbers of those that open and close it: what tells neighbours without content apart


@dataclass(frozen=True, slots=True)
class Sentence:
    """Text without tags, and the elements in it, outer ones first."""

    text: str
    elements: tuple[Element, ...] = ()

    def needs_alignment(self) -> bool:
        """Whether some element is around a part of the sentence only."""
        return any((element.start, element.end) != (0, len(self.text)) for element in self.elements)


@dataclass(slots=True)
class Fragment:
    """The sentences, and the markup that stays around them: one piece more than sentences."""

    sentences: list[Sentence] = field(default_factory=list)
    between: list[str] = field(default_factory=lambda: [""])

    def join(self, translated: list[str]) -> str:
        """The fragment with this markup in the place of its sentences."""
        rest = (sentence + after for sentence, after in zip(translated, self.between[1:], strict=True))
        return self.between[0] + "".join(rest)


def read(markup: str) -> Fragment:
    """Cut a fragment; what is no markup at all is a fragment too."""
    reader = _Reader()
    reader.feed(markup)
    reader.close()
    reader.end_block()
    return reader.fragment


def place(sentence: Sentence, translation: str, alignment: Tensor | None) -> str:
    """The translation as markup; `alignment` says how much of each target word (row) comes from each source word."""
    spans = [match.span() for match in re.finditer(r"\S+", translation)]
    around: list[list[Element]] = [[] for _ in spans]
    alone: dict[int, str] = {}  # what has no content, by the word that it stands before
    for element in sentence.elements:
        chosen = _words_of(element, sentence.text, len(spans), alignment)
        if element.start == element.end:
            alone[chosen.start] = alone.get(chosen.start, "") + element.opening + element.closing
        else:
            for word in chosen:
                around[word].append(element)
    return "".join(_write(translation, spans, around, alone))


def _words_of(element: Element, text: str, n_words: int, alignment: Tensor | None) -> range:
    """The target words from the first to the last of those that mostly come from the words of an element."""
    words = [match.span() for match in re.finditer(r"\S+", text)]
    inside = [at for at, (start, end) in enumerate(words) if start < element.end and end > element.start]
    if alignment is None or alignment.shape != (n_words, len(words)) or not n_words:
        return range(n_words) if element.start < element.end else range(n_words if element.start else 0, n_words)
    if element.start == element.end:
        before = [at for at, (start, _) in enumerate(words) if start >= element.start]
        at = int(alignment[:, before[0]].argmax()) if before else n_words
        return range(at, at)
    shares = alignment[:, inside].sum(dim=1)
    found = [word for word in range(n_words) if shares[word] > 0.5] or [int(shares.argmax())]
    return range(min(found), max(found) + 1)


def _write(
    text: str, spans: list[tuple[int, int]], around: list[list[Element]], alone: dict[int, str]
) -> Iterator[str]:
    """Words with their elements; one that goes on at the next word is not closed in between."""
    opened: list[Element] = []
    at = 0
    for word, (start, end) in enumerate(spans):
        kept = _common(opened, around[word])
        yield "".join(element.closing for element in reversed(opened[kept:]))
        yield html.escape(text[at:start], quote=False) + alone.get(word, "")
        yield "".join(element.opening for element in around[word][kept:])
        yield html.escape(text[start:end], quote=False)
        opened, at = around[word], end
    yield "".join(element.closing for element in reversed(opened))
    yield html.escape(text[at:], quote=False) + alone.get(len(spans), "")


def _common(one: list[Element], other: list[Element]) -> int:
    """How many elements both begin with."""
    same = [mine is theirs for mine, theirs in zip(one, other, strict=False)]
    return [*same, False].index(False)


# Reading


@dataclass(frozen=True, slots=True)
class _Tag:
    at: int  # characters of text before it
    name: str
    raw: str
    kind: str  # "open", "close" or "void"


class _Reader(HTMLParser):
    """Collects text and inline tags until something comes that ends a sentence."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.fragment = Fragment()
        self._text = ""
        self._tags: list[_Tag] = []
        self._verbatim: list[str] = []  # open elements in which nothing is translated

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or ""
        untouched = bool(self._verbatim) or tag in _VERBATIM or _is_untouchable(attrs)
        if untouched or tag not in _INLINE:
            self._keep(raw)
            if untouched and tag not in _VOID:
                self._verbatim.append(tag)
        else:
            self._tags.append(_Tag(len(self._text), tag, raw, "void" if tag in _VOID else "open"))

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        raw = self.get_starttag_text() or ""
        if self._verbatim or tag not in _INLINE:
            self._keep(raw)
        else:
            self._tags.append(_Tag(len(self._text), tag, raw, "void"))

    def handle_endtag(self, tag: str) -> None:
        raw = f"</{tag}>"
        if not self._verbatim and tag in _INLINE:
            self._tags.append(_Tag(len(self._text), tag, raw, "close"))
            return
        if tag in self._verbatim:
            del self._verbatim[self._verbatim.index(tag) :]
        self._keep(raw)

    def handle_data(self, data: str) -> None:
        if not self._verbatim:
            self._text += data
        elif self._verbatim[-1] in _RAW_TEXT:
            self._keep(data)
        else:
            self._keep(html.escape(data, quote=False))

    def handle_comment(self, data: str) -> None:
        self._keep(f"<!--{data}-->")

    def handle_decl(self, decl: str) -> None:
        self._keep(f"<!{decl}>")

    def handle_pi(self, data: str) -> None:
        self._keep(f"<?{data}>")

    def unknown_decl(self, data: str) -> None:
        self._keep(f"<![{data}]>")

    def _keep(self, raw: str) -> None:
        self.end_block()
        self.fragment.between[-1] += raw

    def end_block(self) -> None:
        """Cut what was collected into sentences; an element that spans several of them is in each."""
        text, tags = self._text, self._tags
        self._text, self._tags = "", []
        elements = _elements(tags, len(text))
        sentences, gaps = cut(text)
        at = 0
        for gap, sentence in zip(gaps, [*sentences, ""], strict=True):
            self._add_gap(gap, at, text, elements)
            at += len(gap)
            if sentence:
                inside = [part for element in elements if (part := _part(element, at, at + len(sentence)))]
                self.fragment.sentences.append(Sentence(sentence, tuple(inside)))
                self.fragment.between.append("")
                at += len(sentence)

    def _add_gap(self, gap: str, at: int, text: str, elements: list[Element]) -> None:
        """White space, and the elements that have nothing else in them."""
        here = [one for one in elements if at <= one.start and one.end <= at + len(gap)]
        marks = [(one.start, one.tags[0], 0, one.opening) for one in here]
        marks += [(one.end, one.tags[1], -one.tags[0], one.closing) for one in here]  # inner ones close first
        for end, *_, raw in sorted(marks):
            self.fragment.between[-1] += text[at:end] + raw
            gap, at = gap[end - at :], end
        self.fragment.between[-1] += gap


def _elements(tags: list[_Tag], end: int) -> list[Element]:
    """Inline elements, outer ones first. One that is not closed ends with the text; a stray closing tag is dropped."""
    found: list[Element] = []
    opened: list[tuple[int, _Tag]] = []  # with the place of its element in `found`
    for number, tag in enumerate(tags):
        if tag.kind == "void":
            found.append(Element(tag.at, tag.at, tag.raw, "", (number, number)))
        elif tag.kind == "open":
            opened.append((len(found), tag))
            found.append(Element(tag.at, end, tag.raw, f"</{tag.name}>", (number, len(tags))))
        elif any(tag.name == other.name for _, other in opened):
            while True:
                place, other = opened.pop()
                found[place] = replace(found[place], end=tag.at, tags=(found[place].tags[0], number))
                if other.name == tag.name:
                    break
    return found


def _part(element: Element, start: int, end: int) -> Element | None:
    """The part of an element that is inside of a sentence, if any is."""
    first, last = max(element.start, start), min(element.end, end)
    if first < last or start < element.start == element.end < end:
        return replace(element, start=first - start, end=last - start)
    return None


def _is_untouchable(attrs: list[tuple[str, str | None]]) -> bool:
    named = dict(attrs)
    return named.get("translate") == "no" or "notranslate" in (named.get("class") or "").split()
