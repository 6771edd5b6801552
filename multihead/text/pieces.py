"""Pieces of words put together again, for people to read."""

import re
from collections.abc import Sequence

from multihead.text.tokenizer import CLOSE, OPEN, show_bytes


def word_texts(pieces: Sequence[str]) -> list[str]:
    """Return the words that pieces make up; a character that was split between two pieces is restored."""
    return [_join("".join(pieces[index] for index in word)) for word in group_words(pieces)]


def group_words(pieces: Sequence[str]) -> list[list[int]]:
    """Return the positions of each word's pieces; a word starts where a piece starts with a space."""
    groups: list[list[int]] = []
    for index, piece in enumerate(pieces):
        if not groups or piece.startswith(" "):
            groups.append([])
        groups[-1].append(index)
    return groups


def _join(pieces: str) -> str:
    numbers = f"(?:{OPEN}[0-9A-F]{{2}}{CLOSE})+"
    return re.sub(numbers, lambda match: show_bytes(bytes.fromhex(re.sub(r"\W", "", match[0]))), pieces).strip()
