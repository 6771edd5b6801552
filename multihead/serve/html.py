"""Split an HTML fragment into sentences, and put it together again around their translations.

Elements inside a sentence (<b>, <a>, ...) go around the translated words that come from theirs, as the attention of the
model aligns them. All other markup is returned as it was. Reading takes linear time for any input, and never fails:
a construct that never ends is text.
"""

import html
import re
from bisect import bisect_left, bisect_right
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from torch import Tensor

from multihead.text import sentences
from multihead.text.sentences import join_translations

Cut = Callable[[str], tuple[list[str], list[str]]]  # a text into sentences and gaps

_INLINE = frozenset(
    "a abbr b bdi bdo big cite data del dfn em font i img ins kbd label mark q s samp small span strike strong sub sup "
    "time tt u var wbr".split()
)
_VOID = frozenset("area base br col embed hr img input link meta param source track wbr".split())
_VERBATIM = frozenset("script style pre code textarea svg math template noscript title iframe xmp".split())
_RAW_TEXT = frozenset("script style textarea title iframe xmp".split())  # in which only the closing tag is markup
MAX_NESTED = 20  # inline elements; deeper ones are dropped, because each sentence repeats those that are around it

# The quantifiers are possessive: without backtracking, each character is read once. As in HTML, a quoted value may
# contain ">".
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
        """The fragment with these translations in the place of its sentences."""
        return join_translations(translated, self.between)


def parse(markup: str, cut: Cut = sentences.split_sentences) -> Fragment:
    """Split a fragment, its text by `cut`; plain text is a fragment too."""
    reader = _Reader(cut)
    reader.read(markup)
    reader.end_block()
    return reader.fragment


def place_tags(sentence: Sentence, translation: str, alignment: Tensor | None) -> str:
    """The translation as markup; `alignment` says how much of each target word (row) comes from each source word."""
    spans = _words(translation)
    with_content = [element for element in sentence.elements if element.start < element.end]
    alone: dict[int, str] = {}  # elements without content, by the word that follows them
    source = _words(sentence.text)
    if alignment is None or alignment.shape != (len(spans), len(source)) or not spans:
        around = [with_content] * len(spans)
        for element in sentence.elements:
            if element.start == element.end:
                at = len(spans) if element.start else 0
                alone[at] = alone.get(at, "") + element.opening + element.closing
        return "".join(_write(translation, spans, around, alone))
    around = [[] for _ in spans]
    for element in sentence.elements:
        chosen = _aligned_words(element, source, alignment)
        if element.start == element.end:
            alone[chosen.start] = alone.get(chosen.start, "") + element.opening + element.closing
        for word in chosen:
            around[word].append(element)
    return "".join(_write(translation, spans, around, alone))


def _words(text: str) -> list[tuple[int, int]]:
    return [match.span() for match in re.finditer(r"\S+", text)]


def _aligned_words(element: Element, source: list[tuple[int, int]], alignment: Tensor) -> range:
    """The target words from the first to the last of those that mostly come from the words of an element.

    For an element without content, an empty range that starts at the word that it stands before.
    """
    if element.start == element.end:
        before = bisect_left(source, element.start, key=lambda word: word[0])
        at = int(alignment[:, before].argmax()) if before < len(source) else len(alignment)
        return range(at, at)
    first = bisect_right(source, element.start, key=lambda word: word[1])
    last = bisect_left(source, element.end, key=lambda word: word[0])
    shares = alignment[:, first:last].sum(dim=1)
    found: list[int] = (shares > 0.5).nonzero().flatten().tolist() or [int(shares.argmax())]
    return range(found[0], found[-1] + 1)


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
    if one is other:
        return len(one)
    same = [mine is theirs for mine, theirs in zip(one, other, strict=False)]
    return [*same, False].index(False)


# Reading


@dataclass(frozen=True, slots=True)
class _Tag:
    at: int  # characters of text before it
    name: str
    raw: str
    kind: str  # "open", "close" or "void"


class _Reader:
    """Collects text and inline tags until markup comes that ends a sentence."""

    def __init__(self, cut: Cut) -> None:
        self.fragment = Fragment()
        self._cut = cut
        self._text: list[str] = []
        self._n_characters = 0  # of the text
        self._tags: list[_Tag] = []
        self._verbatim = ""  # name of the outermost element in which nothing is translated
        self._depth = 0  # how many elements of that name are open

    def read(self, markup: str) -> None:
        at = 0
        while (start := markup.find("<", at)) >= 0:
            self._add_text(markup[at:start])
            found = _MARKUP.match(markup, start)
            if found:
                at = self._add_markup(found)
            elif re.match(r"[!?/a-zA-Z]", markup[start + 1 : start + 2]):  # it never ends, and so the rest is text
                at = start
                break
            else:
                self._add_text("<")
                at = start + 1
        self._add_text(markup[at:])

    def _add_markup(self, found: re.Match[str]) -> int:
        """Add a tag, comment or declaration; return where it ends, with the content of elements like <script>."""
        raw, name = found[0], (found["name"] or "").lower()
        if found["other"]:
            self._keep(raw)
        elif found["slash"]:
            self._close(raw, name)
        elif self._open(raw, name, found["rest"]) and name in _RAW_TEXT:
            closing = re.compile(rf"</{name}(?=[\s/>])", re.IGNORECASE).search(found.string, found.end())
            end = closing.start() if closing else len(found.string)
            self._keep(found.string[found.end() : end])
            return end
        return found.end()

    def _open(self, raw: str, name: str, rest: str) -> bool:
        """Add an opening tag; return whether its element has content."""
        has_content = name not in _VOID and not rest.endswith("/")
        if not self._verbatim and name in _INLINE and not _is_untouchable(rest):
            self._tags.append(_Tag(self._n_characters, name, raw, "open" if has_content else "void"))
            return has_content
        if has_content and not self._verbatim and (name in _VERBATIM or _is_untouchable(rest)):
            self._verbatim = name
        if has_content and self._verbatim == name:
            self._depth += 1
        self._keep(raw)
        return has_content

    def _close(self, raw: str, name: str) -> None:
        if not self._verbatim and name in _INLINE:
            self._tags.append(_Tag(self._n_characters, name, raw, "close"))
            return
        if self._verbatim == name:
            self._depth -= 1
            self._verbatim = name if self._depth else ""
        self._keep(raw)

    def _add_text(self, raw: str) -> None:
        if self._verbatim:
            self._keep(raw)
        elif raw:
            self._text.append(_unescape(raw))
            self._n_characters += len(self._text[-1])

    def _keep(self, raw: str) -> None:
        self.end_block()
        self.fragment.between[-1] += raw

    def end_block(self) -> None:
        """Split the text collected so far into sentences; an element around several of them is around each."""
        text, tags = "".join(self._text), self._tags
        self._text, self._n_characters, self._tags = [], 0, []
        elements = _elements(tags, len(text))
        near = _window(elements)
        found, gaps = self._cut(text)
        at = 0
        for gap, sentence in zip(gaps, [*found, ""], strict=True):
            self._add_gap(gap, at, text, near(at, at + len(gap)))
            at += len(gap)
            if sentence:
                around = near(at, at + len(sentence))
                inside = [part for element in around if (part := _part(element, at, at + len(sentence)))]
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


def _unescape(raw: str) -> str:
    try:
        return html.unescape(raw)
    except ValueError:  # a reference such as &#999...; with more digits than Python converts
        return raw


def _elements(tags: list[_Tag], end: int) -> list[Element]:
    """Inline elements, outer ones first. One that is not closed ends with the text; a stray closing tag is dropped."""
    found: list[Element] = []
    opened: list[tuple[int, _Tag]] = []  # with the place of its element in `found`
    names: Counter[str] = Counter()  # of those
    for number, tag in enumerate(tags):
        if tag.kind == "void":
            found.append(Element(tag.at, tag.at, tag.raw, "", (number, number)))
        elif tag.kind == "open" and len(opened) < MAX_NESTED:
            opened.append((len(found), tag))
            names[tag.name] += 1
            found.append(Element(tag.at, end, tag.raw, f"</{tag.name}>", (number, len(tags))))
        while tag.kind == "close" and names[tag.name]:
            place, other = opened.pop()
            names[other.name] -= 1
            found[place] = replace(found[place], end=tag.at, tags=(found[place].tags[0], number))
            if other.name == tag.name:
                break
    return found


def _window(elements: list[Element]) -> Callable[[int, int], list[Element]]:
    """A function that returns the elements that touch a span of the text, for spans from left to right."""
    ahead, near = deque(elements), list[Element]()

    def touching(start: int, end: int) -> list[Element]:
        while ahead and ahead[0].start <= end:
            near.append(ahead.popleft())
        near[:] = [element for element in near if element.end >= start]
        return near

    return touching


def _part(element: Element, start: int, end: int) -> Element | None:
    """The part of an element that is inside of a sentence, if any is."""
    first, last = max(element.start, start), min(element.end, end)
    if first < last or start < element.start == element.end < end:
        return replace(element, start=first - start, end=last - start)
    return None


def _is_untouchable(rest: str) -> bool:
    """Whether the attributes in this part of a tag forbid to translate its element."""
    if "translate" not in rest.lower():
        return False
    named = {name.lower(): value.strip("\"'") for name, value in _ATTRIBUTE.findall(rest)}
    return named.get("translate", "").lower() == "no" or "notranslate" in named.get("class", "").split()
