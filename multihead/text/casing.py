"""Text in capitals and in title case: how to recognize it, and how languages change the case."""

import re

MIN_LETTERS, MIN_WORDS = 6, 2  # of a text in capitals; a shorter one may be an acronym or a name: NATO, BMW AG
_DOTTED_I = frozenset("tr az crh".split())  # languages in which i and \u0131 are different letters
_WORD = re.compile(r"[^\W\d_]+(?:['\u2019][^\W\d_]+)*")


def is_in_capitals(text: str) -> bool:
    """Return whether a text of several words has capital letters only; False in scripts without capitals."""
    letters = [character for character in text if character.isalpha()]
    return len(letters) >= MIN_LETTERS and len(_WORD.findall(text)) >= MIN_WORDS and all(map(str.isupper, letters))


def is_in_title_case(text: str) -> bool:
    """Return whether each of several words begins with a capital letter, and no letter after it is one."""
    words = _WORD.findall(text)
    return len(words) >= MIN_WORDS and all(word[0].isupper() and word[1:].islower() for word in words if word[1:])


def sentence_case(text: str, language: str = "") -> str:
    """Return a text in lower case except for its first letter, which is how models know sentences."""
    lowered = _lower(text, language)
    if _base(language) == "en":
        lowered = re.sub(r"\bi\b", "I", lowered)
    return re.sub(r"[^\W\d_]", lambda letter: upper(letter[0], language), lowered, count=1)


def upper(text: str, language: str = "") -> str:
    """Return a text in capitals."""
    return (text.replace("i", "\u0130") if _base(language) in _DOTTED_I else text).upper()


def title_case(text: str, language: str = "") -> str:
    """Return a text in which each word begins with a capital letter."""
    return _WORD.sub(lambda word: upper(word[0][0], language) + word[0][1:], text)


def _lower(text: str, language: str) -> str:
    if _base(language) in _DOTTED_I:
        text = text.replace("I", "\u0131").replace("\u0130", "i")
    return text.lower()


def _base(language: str) -> str:
    return re.split("[-_]", language.lower())[0]
