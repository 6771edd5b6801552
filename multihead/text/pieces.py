"""TODO."""

import re
from collections.abc import Sequence

from multihead.text.tokenizer import CLOSE, OPEN, show_bytes


def word_texts(pieces: Sequence[str]) -> list[str]:
    """The words themselves; a character that was cut between two pieces is whole again."""
    return [_join("".join(pieces[at] for at in word)) for word in group_words(pieces)]


def group_words(pieces: Sequence[str]) -> list[list[int]]:
    """The positions of each word's pieces; a word begins where a piece begins with a space."""
    groups: list[list[int]] = []
    for at, piece in enumerate(pieces):
        if not groups or piece.startswith(" "):
            groups.append([])
        groups[-1].append(at)
    return groups


def _join(pieces: str) -> str:
    numbers = f"(?:{OPEN}[0-9A-F]{{2}}{CLOSE})+"
    return re.sub(numbers, lambda found: show_bytes(bytes.fromhex(re.sub(r"\W", "", found[0]))), pieces).strip()
