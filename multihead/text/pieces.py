"""Words of a text, and pieces put together to words again.

A word ends at a space. In scripts that put no spaces between words, each character counts as a word, together with its
accents and vowel signs.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate, pairwise

from multihead.text.tokenizer import CLOSE, OPEN

# Thai, Lao, Tibetan, Burmese, Khmer, Tai, Javanese; kana, Bopomofo, Chinese characters and full-width forms.
_UNSPACED = re.compile(
    "["
    "\u0e00-\u0eff\u0f00-\u109f\u1780-\u17ff\u1950-\u19df\u1a20-\u1aaf\ua980-\ua9df"
    "\u2e80-\u30ff\u3105-\u312f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\ua4cf\uf900-\ufaff\uff00-\uffef"
    "\U00020000-\U0003ffff]"
)
_LEADING_VOWELS = (
    "\u0e40\u0e41\u0e42\u0e43\u0e44\u0ec0\u0ec1\u0ec2\u0ec3\u0ec4"  # Thai and Lao; written before their consonant
)
_TRAILING_VOWELS = "\u0e30\u0e32\u0e33\u0eb0\u0eb2\u0eb3"  # letters that belong to the consonant before
_BYTES = re.compile(f"(?:{OPEN}[0-9A-F]{{2}}{CLOSE})+")


def word_spans(text: str) -> list[tuple[int, int]]:
    """Return where each word of a text starts and ends."""
    return [span for run in re.finditer(r"\S+", text) for span in _spans_of_run(text, *run.span())]


def _spans_of_run(text: str, start: int, end: int) -> list[tuple[int, int]]:
    """Return the words between two spaces."""
    starts = [at for at in range(start + 1, end) if _starts_word(text[at - 1], text[at])]
    return list(pairwise([start, *starts, end]))


def _starts_word(before: str, character: str) -> bool:
    """Return whether a word starts between two characters that are not white space."""
    if unicodedata.category(character)[0] == "M" or before in _LEADING_VOWELS or character in _TRAILING_VOWELS:
        return False
    return bool(_UNSPACED.match(character) or _UNSPACED.match(before))


def word_texts(pieces: Sequence[str]) -> list[str]:
    """Return the words that pieces make up; a character that was split between two pieces is restored."""
    return [text for text, _ in _words(pieces)]


def group_words(pieces: Sequence[str]) -> list[list[int]]:
    """Return the positions of each word's pieces; a piece of several characters may belong to several words."""
    return [positions for _, positions in _words(pieces)]


def owners(pieces: Sequence[str], words: Sequence[str]) -> list[int] | None:
    """Return the index of the word that each piece begins in; None if the pieces do not spell the words.

    White space and case do not count. The pieces may end before the words do, where a sentence was cut.
    """
    raw = [b"".join(_to_bytes(piece).split()) for piece in pieces]
    spelled, expected = b"".join(raw).decode(errors="replace"), "".join(words)
    if not spelled or spelled.lower() != expected[: len(spelled)].lower():
        return None
    ends = list(accumulate(len(word.encode()) for word in words))
    starts = [0, *accumulate(map(len, raw))][:-1]
    return [min(bisect_right(ends, start), len(words) - 1) for start in starts]


def join_pieces(pieces: Sequence[str]) -> str:
    """Return the text of readable pieces."""
    return b"".join(map(_to_bytes, pieces)).decode(errors="replace").strip()


def _words(pieces: Sequence[str]) -> list[tuple[str, list[int]]]:
    """Return each word's text and the positions of its pieces; a piece that starts with a space starts a word."""
    runs: list[list[int]] = []
    for index, piece in enumerate(pieces):
        if not runs or piece.startswith(" "):
            runs.append([])
        runs[-1].append(index)
    return [word for run in runs for word in _words_of_run(pieces, run)]


def _words_of_run(pieces: Sequence[str], run: list[int]) -> list[tuple[str, list[int]]]:
    """Return the words of pieces that no space separates, and the pieces that each word shares bytes with."""
    raw = [_to_bytes(pieces[index]) for index in run]
    text = b"".join(raw).decode(errors="surrogateescape")
    spans = word_spans(text)
    if len(spans) < 2 or not _UNSPACED.search(text):
        return [(join_pieces([pieces[index] for index in run]), run)]
    # Words end at these bytes; the first one includes the space before it.
    ends = [len(text[:end].encode(errors="surrogateescape")) for _, end in spans]
    piece_ends = list(accumulate(map(len, raw)))
    words = []
    for (start, end), first, last in zip(spans, [0, *ends], ends, strict=False):
        shared = zip(run, [0, *piece_ends], piece_ends, strict=False)
        positions = [index for index, piece_start, piece_end in shared if piece_start < last and piece_end > first]
        words.append((text[start:end].encode(errors="surrogateescape").decode(errors="replace"), positions))
    return words


def _to_bytes(piece: str) -> bytes:
    """Return the bytes of a readable piece, in which incomplete characters are numbers."""
    raw, at = b"", 0
    for found in _BYTES.finditer(piece):
        raw += piece[at : found.start()].encode() + bytes.fromhex(re.sub(r"\W", "", found[0]))
        at = found.end()
    return raw + piece[at:].encode()
