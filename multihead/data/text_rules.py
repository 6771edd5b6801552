"""Rules that look at the characters of a pair: signs in place of text, another script, broken encodings, numbers.

They are cautious: on clean text they drop next to nothing.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

from multihead.config.schema import DataConfig

Scripts = tuple[frozenset[str], ...]  # the usual scripts of each side

USUAL_SHARE = 0.15  # of the letters of a side in a script that is usual there
MAX_OTHER_SCRIPT = 0.5  # share of the letters of a text in scripts that are not
CLEARLY_TEXT = 0.5  # share of letters of a side beside which one without letters is suspicious

# UTF-8 that was read as Windows-1252 or Latin-1, and characters that were lost.
_MOJIBAKE = re.compile(
    "[\xc3\xc2][\x80-\xbf\u0152\u0153\u0160\u0161\u0178\u017d\u017e\u0192\u02c6\u02dc\u2013-\u203a\u20ac\u2122]"
    "|\xe2\u20ac|\xe2\x80[\x80-\xbf]|[\xd0\xd1][\x80-\x9f]|\ufffd"
)
_DIGITS = re.compile(r"\d+")
_EAST_ASIAN = dict.fromkeys("CJK HIRAGANA KATAKANA KATAKANA-HIRAGANA HALFWIDTH HANGUL IDEOGRAPHIC".split(), "CJK")


def lacks_letters(one: str, other: str, min_share: float) -> bool:
    """Return whether a side has hardly any letters, while the other one is text."""
    fewer, more = sorted((_letter_share(one), _letter_share(other)))
    return fewer < min_share and more > CLEARLY_TEXT


def _letter_share(text: str) -> float:
    characters = "".join(text.split())
    n_letters = sum(map(str.isalpha, characters))
    if n_letters < len(characters) / 2:  # marks above and below letters are parts of words
        n_letters += sum(unicodedata.category(character)[0] == "M" for character in characters)
    return n_letters / max(1, len(characters))


def has_long_word(text: str, max_length: int) -> bool:
    """Return whether a text in a script with spaces has a longer word."""
    return len(text) > max_length and bool(_long_word(max_length).search(text))


@lru_cache
def _long_word(max_length: int) -> re.Pattern[str]:
    return re.compile(f"[!-~\xa1-\u05ff]{{{max_length + 1}}}")  # Latin to Hebrew


def is_mojibake(text: str) -> bool:
    """Return whether a text was decoded with the wrong encoding."""
    return not text.isascii() and bool(_MOJIBAKE.search(text))


def numbers_differ(one: str, other: str) -> bool:
    """Return whether a number of two digits or more is on one side only; separators and parts of dates do not count."""
    numbers = [[_ascii(number) for number in _DIGITS.findall(text)] for text in (one, other)]
    joined = ["".join(side) for side in numbers]
    return any(
        len(number) > 1 and number not in joined[1 - side] for side, found in enumerate(numbers) for number in found
    )


def _ascii(number: str) -> str:
    return number if number.isascii() else "".join(str(unicodedata.digit(digit)) for digit in number)


def usual_scripts(pairs: Iterable[Sequence[str]]) -> Scripts:
    """Return the scripts that are usual on each side of a corpus."""
    counts = (Counter[str](), Counter[str]())
    for pair in pairs:
        for count, text in zip(counts, pair, strict=True):
            count.update(_scripts(text))
    return tuple(
        frozenset(script for script, n in count.items() if n >= USUAL_SHARE * count.total()) for count in counts
    )


def in_other_script(text: str, usual: frozenset[str]) -> bool:
    """Return whether most letters are in scripts that are not usual."""
    if not usual or (text.isascii() and "LATIN" in usual):
        return False
    found = _scripts(text)
    n_other = sum(n for script, n in found.items() if script not in usual)
    return n_other > MAX_OTHER_SCRIPT * found.total()


def _scripts(text: str) -> Counter[str]:
    found = Counter[str]()
    for character, n in Counter(text).items():
        if script := _script(character):
            found[script] += n
    return found


@lru_cache(maxsize=1 << 16)
def _script(character: str) -> str:
    """Return the first word of the Unicode name of a letter, which is its script; empty for other characters."""
    if not character.isalpha():
        return ""
    name = unicodedata.name(character, "").split(" ")[0]
    return _EAST_ASIAN.get(name, name)


def find_text_defect(pair: tuple[str, str], config: DataConfig, scripts: Scripts) -> str | None:
    """Return the first rule that a pair breaks, by the name of its reason."""
    if config.min_letters and lacks_letters(*pair, config.min_letters):
        return "letters"
    if config.max_word and any(has_long_word(text, config.max_word) for text in pair):
        return "long_word"
    if config.drop_mojibake and any(map(is_mojibake, pair)):
        return "mojibake"
    if config.drop_script and any(map(in_other_script, pair, scripts)):
        return "script"
    return "numbers" if config.drop_numbers and numbers_differ(*pair) else None
