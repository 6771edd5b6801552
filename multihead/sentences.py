"""Where a sentence ends; a text cut there and put together again, white space and all."""

import re
from collections.abc import Iterable
from itertools import zip_longest

# Marks that end a sentence, what closes around them, and the space behind; in Chinese and Japanese no space follows.
_END = re.compile(r"[.!?…]+[\"'»”’)\]]*(\s+)|[。！？]+[」』”]*(\s*)|(\s*\n\s*)")  # noqa: RUF001  # the full-width marks are meant
# What a full stop follows inside of a sentence, in small letters.
_ABBREVIATIONS = frozenset(
    "mr mrs ms dr prof st jr sr vs etc e.g i.e a.m p.m no vol fig approx inc ltd co dept est jan feb aug sept oct nov "
    "dec hr fr frl hrn nr str bzw ca usw z.b d.h u.a s.o s.u evtl ggf bspw inkl vgl max min mio mrd tel "
    "m mme mlle p.ex c.-à-d av".split()
)


def cut(text: str) -> tuple[list[str], list[str]]:
    """The sentences of a text, and what stands before, between and behind them: one gap more than sentences.

    Lines are never joined: a line break ends a sentence too.
    """
    body = text.strip()
    if not body:
        return [], [text]
    start = text.index(body)
    last = start + len(body)
    sentences, gaps = [], [text[:start]]
    for match in _END.finditer(text, start, last):
        space = match.lastindex or 1
        end, after = match.span(space)
        inside = space == 1 and "\n" not in match[1] and _goes_on(text, start, match.start(), after)
        if after < last and not inside:
            sentences.append(text[start:end])
            gaps.append(text[end:after])
            start = after
    return [*sentences, text[start:last]], [*gaps, text[last:]]


def join(sentences: Iterable[str], gaps: Iterable[str]) -> str:
    """`cut` undone, whatever became of the sentences."""
    return "".join(gap + sentence for gap, sentence in zip_longest(gaps, sentences, fillvalue=""))


def _goes_on(text: str, start: int, mark: int, after: int) -> bool:
    """Whether the full stop belongs to an abbreviation, an initial or a number, or no sentence begins behind it."""
    if text[mark] in "!?":
        return text[after].islower() and text[mark:after].rstrip()[-1] not in "!?"  # "Really?" he asked.
    if text[mark] == "…" or text[mark : mark + 2] == "..":
        return text[after].islower()
    word = text[start:mark].rpartition(" ")[2].lstrip("\"'(«„“‘[")  # noqa: RUF001  # typographic quotes are meant
    is_ordinal = word.isdigit() and len(word) <= 2  # as in German dates
    is_initial = len(word) == 1 and word.isupper() and word != "I"
    return text[after].islower() or is_initial or is_ordinal or word.lower() in _ABBREVIATIONS
