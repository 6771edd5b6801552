"""Words as a treebank has them: splitting a sentence into words, and signatures in place of rare words.

A parser needs to know of a rare word how it is written and how it ends rather than which word it is. Words outside of
the vocabulary are therefore replaced by a signature, so that every word of a source is one token (in the angle marks
that OPEN and CLOSE are, so that no word is a signature):

    unbelievably → <x·bly>      Sokolov → <Xx·ov>      1,873 → <0·>
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from multihead.text.tokenizer import CLOSE, OPEN

MIN_COUNT, MIN_SIGNATURE_COUNT = 4, 10  # in the training text; rarer words and signatures are not in the vocabulary
MAX_SUFFIX = 3  # letters

# Longer words end where a clitic begins: did n't, she 's.
_CLITIC = r"(?:n['’]t|['’](?:s|S|m|d|re|ve|ll))"  # noqa: RUF001  # the typographic apostrophe is meant
_WORD = re.compile(
    rf"""
    \d[\d.,:/]*\d(?=\W|$|_)             # numbers, dates and times
    | (?:[A-Z]\.){{2,}}                 # U.S.
    | (?:Mr|Mrs|Ms|Dr|Prof|St|vs|etc|e\.g|i\.e)\.
    | \w+?(?={_CLITIC}\b) | {_CLITIC}\b
    | \w+                               # words; the parts of well-known are words, as in newer treebanks
    | \.{{2,}} | -{{2,}} | \S
    """,
    re.VERBOSE,
)


def split_words(text: str) -> list[str]:
    """Return the words and marks of a sentence."""
    return _WORD.findall(text)


def signatures(word: str) -> list[str]:
    """Return the signatures of a word, the most specific one first."""
    shape = _shape(word)
    lengths = range(min(MAX_SUFFIX, len(word) - 2), 0, -1)
    endings = [word.lower()[-length:] for length in lengths]
    return [f"{OPEN}{shape}·{ending}{CLOSE}" for ending in [*(one for one in endings if one.isalpha()), ""]]


def _shape(word: str) -> str:
    """Return whether a word is in capitals (XX), capitalized (Xx) or not (x), with 0 for digits, or not a word (.)."""
    has_digits = any(character.isdigit() for character in word)
    if not any(character.isalpha() for character in word):
        return "0" if has_digits else "."
    shape = "XX" if word.isupper() and len(word) > 1 else "Xx" if word[0].isupper() else "x"
    return shape + "0" * has_digits + "-" * ("-" in word)


def vocabulary_of(sentences: Iterable[Sequence[str]]) -> set[str]:
    """Return the words of training sentences that occur often, and the signatures of the others."""
    counts = Counter(word for sentence in sentences for word in sentence)
    words = {word for word, count in counts.items() if count >= MIN_COUNT}
    found: Counter[str] = Counter()
    for word, count in counts.items():
        for signature in signatures(word) if word not in words else ():
            found[signature] += count
    return words | {signature for signature, count in found.items() if count >= MIN_SIGNATURE_COUNT}


def replace_rare(words: Sequence[str], is_known: Callable[[str], bool]) -> list[str]:
    """Return the words, with the first known signature in place of each unknown word."""
    return [
        word if is_known(word) else next((one for one in signatures(word) if is_known(one)), word) for word in words
    ]
