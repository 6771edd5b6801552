"""Split text into sentences, in any script, and join their translations.

`sentencex` knows the abbreviations and marks of some 300 languages. This module adds the sentence marks of scripts that
it has no rules for, and undoes boundaries that it sets inside a sentence.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise, zip_longest

from sentencex import segment

# Characters with Unicode's property Sentence_Terminal, without those of ASCII, which sentencex decides about, and
# without the Burmese U+104A, which separates clauses.
_TERMINALS = (
    "\u0589\u061d-\u061f\u06d4\u0700-\u0702\u07f9\u0837\u0839\u083d\u083e\u0964\u0965\u104b\u1362\u1367\u1368\u166e"
    "\u1735\u1736\u17d4\u17d5\u1803\u1809\u1944\u1945\u1aa8-\u1aab\u1b4e\u1b4f\u1b5a\u1b5b\u1b5e\u1b5f\u1b7d-\u1b7f"
    "\u1c3b\u1c3c\u1c7e\u1c7f\u203c\u203d\u2047-\u2049\u2cf9-\u2cfb\u2e2e\u2e3c\u2e53\u2e54\u2e60\u2e61\u3002\ua4ff"
    "\ua60e\ua60f\ua6f3\ua6f7\ua876\ua877\ua8ce\ua8cf\ua92f\ua9c8\ua9c9\uaa5d-\uaa5f\uaaf0\uaaf1\uabeb\ufe12\ufe15"
    "\ufe16\ufe52\ufe56\ufe57\uff01\uff0e\uff1f\uff61"
    "\U00010a56\U00010a57\U00010f55-\U00010f59\U00010f86-\U00010f89\U00011047\U00011048\U000110be-\U000110c1"
    "\U00011141-\U00011143\U000111c5\U000111c6\U000111cd\U000111de\U000111df\U00011238\U00011239\U0001123b\U0001123c"
    "\U000112a9\U000113d4\U000113d5\U0001144b\U0001144c\U000115c2\U000115c3\U000115c9-\U000115d7\U00011641\U00011642"
    "\U0001173c-\U0001173e\U00011944\U00011946\U00011a42\U00011a43\U00011a9b\U00011a9c\U00011c41\U00011c42\U00011ef7"
    "\U00011ef8\U00011f43\U00011f44\U00016a6e\U00016a6f\U00016af5\U00016b37\U00016b38\U00016b44\U00016d6e\U00016d6f"
    "\U00016e98\U0001bc9f\U0001da88"
)
_CLOSERS = "\"'»”’“)\\]」』）】》〉"  # noqa: RUF001  # typographic and full-width marks are meant
_UNSEEN = re.compile('["«»“”„‟()\\[\\]\ud800-\udfff]')
_OPENERS_AT_END = re.compile(r"(?<=\s)(?:[«„“‟(\[]\s*|\")+$")
_FURTHER_END = re.compile(rf"[{_TERMINALS}]+[{_CLOSERS}]*\s*|…+[{_CLOSERS}]*\s+|(?<=\bI)\.\s+")
NEAR = 60  # characters around a boundary that are examined
LINE_BREAKS = re.compile("[\n\r\v\f\x1c-\x1e\x85\u2028\u2029]+")
_SENTENCE_MARK = re.compile(rf"[.!?…{_TERMINALS}](?=[{_CLOSERS}\s]*$)")
# Sentences that end in one of these are written without a space between them.
_FULL_WIDTH_END = re.compile(f"[。！？｡．][{_CLOSERS}]*(?:</[^<>]*>)*$")  # noqa: RUF001  # full-width marks are meant

# Abbreviations that sentencex lacks, in lower case; words that also end sentences ("no", "max") do not belong here.
_ABBREVIATIONS = frozenset("mr mrs ms mx dr vol approx est mme mlle frl hrn bspw inkl evtl abs bd".split())
# Languages that write ordinals as a number and a period: "im 18. Jahrhundert".
_ORDINALS = frozenset("bs cs da de et fi fo hr hu is lb lv nb nn no pl sk sl sr tr".split())


def split_sentences(text: str, language: str = "") -> tuple[list[str], list[str]]:
    """Return the sentences of a text, and the white space around them: one gap more than sentences.

    A line break always ends a sentence. `language` is a code such as "de", or "" if it is not known.
    """
    sentences: list[str] = []
    gaps = [""]
    for part in _parts(text, language):
        sentence = part.strip()
        before, after = part.split(sentence, 1) if sentence else (part, "")
        gaps[-1] += before
        if sentence:
            sentences.append(sentence)
            gaps.append(after)
    return sentences, gaps


def as_one_sentence(text: str) -> tuple[list[str], list[str]]:
    """Return the text as one sentence, with the white space before and after it; no sentence for white space alone."""
    body = text.strip()
    if not body:
        return [], [text]
    before, after = text.split(body, 1)
    return [body], [before, after]


def join_sentences(sentences: Iterable[str], gaps: Iterable[str]) -> str:
    """Return the text of sentences and gaps: the inverse of `split_sentences`."""
    return "".join(gap + sentence for gap, sentence in zip_longest(gaps, sentences, fillvalue=""))


def join_translations(translations: list[str], gaps: list[str]) -> str:
    """Return the translations of sentences as one text, with the gaps that are usual in their language.

    Chinese and Japanese put no space after a full-width mark; other languages need one. Line breaks are kept, and so
    are gaps that contain markup.
    """
    inner = [_fitting_gap(before, gap) for before, gap in zip(translations[:-1], gaps[1:-1], strict=True)]
    return join_sentences(translations, [*gaps[:1], *inner, *gaps[1:][-1:]])


def _fitting_gap(before: str, gap: str) -> str:
    if gap.strip() or LINE_BREAKS.search(gap):
        return gap
    if _FULL_WIDTH_END.search(before):
        return ""
    return gap or " "


def _parts(text: str, language: str) -> Iterator[str]:
    """Yield consecutive parts that add up to the text, one for each sentence."""
    start = 0
    for match in LINE_BREAKS.finditer(text):
        yield from _parts_of_line(text[start : match.start()], language)
        yield match[0]
        start = match.end()
    yield from _parts_of_line(text[start:], language)


def _parts_of_line(line: str, language: str) -> Iterator[str]:
    start, checked, has_letters = 0, 0, False
    is_cased = line != line.lower()
    for end in _boundaries(line, language):
        has_letters = has_letters or any(character.isalpha() for character in line[checked:end])
        checked = end
        # Only a few characters on either side are examined, so that a long line takes linear time.
        before, after = line[max(start, end - NEAR) : end], line[end : end + NEAR]
        if has_letters and not _is_inside(before, after, language, is_cased):
            yield line[start:end]
            start, has_letters = end, False
    yield line[start:]


def _boundaries(line: str, language: str) -> list[int]:
    # sentencex never ends a sentence inside quotation marks or brackets, and fails on halves of surrogate pairs: hide
    # these characters from it.
    bare = _UNSEEN.sub(" ", line)
    boundaries = {match.end() for match in _FURTHER_END.finditer(line)}
    end = 0
    for part in segment(language.partition("-")[0].lower(), bare):
        end += len(part)
        near = line[max(0, end - NEAR) : end]
        boundaries.add(end - len(near) + len(_OPENERS_AT_END.sub("", near)))
    return sorted(boundaries - {0, len(line)})


def _is_inside(before: str, after: str, language: str, is_cased: bool) -> bool:
    """Return whether the boundary between these two is inside a sentence after all."""
    following = after.lstrip().lstrip("\"'«»“”„‟‘’([{¿¡—–- ")  # noqa: RUF001  # typographic marks are meant
    if not any(character.isalnum() for character in following) or following[0] in ",;)":
        return True  # "The end. ***", or: "Never (...)", he said.
    mark = _SENTENCE_MARK.search(before)
    if mark is None or mark[0] not in ".!?…":
        return False
    if mark[0] == "." and mark.end() == len(before):
        return True  # no space follows, as in "Example.com"
    closed = bool(before[mark.end() :].strip())  # "Really?" he asked.
    if following[0].islower() and is_cased and (mark[0] in ".…" or closed):
        return True
    word = before[: mark.start()].rpartition(" ")[2].lstrip("\"'(«„“‘[")  # noqa: RUF001  # typographic quotes are meant
    return mark[0] == "." and not closed and _takes_period(word, language)


def _takes_period(word: str, language: str) -> bool:
    """Return whether a period after this word belongs to it: an abbreviation, an initial, an ordinal."""
    is_ordinal = word.isdigit() and len(word) <= 2 and language.partition("-")[0].lower() in _ORDINALS
    is_initial = len(word) == 1 and word.isupper() and word != "I"
    return is_ordinal or is_initial or word.lower() in _ABBREVIATIONS


# Sentences that are too long for a model

_CLAUSE_END = re.compile("[,;:，、；：،؛၊།—–](?!\\d)[\"'»”’)\\]]*\\s*")  # noqa: RUF001  # marks of several scripts are meant
_SPACE = re.compile(r"\s+")


def split_to_fit(text: str, size_of: Callable[[str], int], max_size: int, language: str = "") -> Iterator[str]:
    """Yield consecutive pieces of a long text whose size is at most `max_size`; they add up to the text.

    Splits at sentence ends if possible, else after clauses, else at spaces, and as a last resort anywhere.
    """
    yield from _packed(text, size_of, max_size, [lambda text: list(_parts(text, language)), _clauses, _words, _halves])


def _packed(
    text: str, size_of: Callable[[str], int], max_size: int, cutters: list[Callable[[str], list[str]]]
) -> Iterator[str]:
    """Join as many consecutive parts as fit; a part that is too large by itself is split by the next cutter."""
    waiting, size = "", 0
    cutter, *finer = cutters
    for part in cutter(text):
        part_size = size_of(part)
        if waiting and size + part_size > max_size:
            yield waiting
            waiting, size = "", 0
        if part_size <= max_size or len(part) <= 1:
            waiting, size = waiting + part, size + part_size
        else:
            yield from _packed(part, size_of, max_size, finer or cutters)
    if waiting:
        yield waiting


def _clauses(text: str) -> list[str]:
    return _cut_after(_CLAUSE_END, text)


def _words(text: str) -> list[str]:
    return _cut_after(_SPACE, text)


def _halves(text: str) -> list[str]:
    middle = len(text) // 2
    return [text[:middle], text[middle:]]


def _cut_after(pattern: re.Pattern[str], text: str) -> list[str]:
    ends = [0, *(match.end() for match in pattern.finditer(text)), len(text)]
    return [text[start:end] for start, end in pairwise(ends) if start < end]
