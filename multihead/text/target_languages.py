"""Pieces at the start of a source that say which language to translate it into, such as ">>de<<" (as in OPUS-MT)."""

import re
from collections.abc import Iterable

from multihead.text.tokenizer import SubwordTokenizer

_PIECE = re.compile(r">>([\w-]+)<<")


def target_piece(language: str) -> str:
    """Return the piece of a language."""
    return f">>{language.replace('-', '_')}<<"


def target_pieces(languages: Iterable[str]) -> list[str]:
    """Return the pieces that a vocabulary for these target languages has, in an order that depends on them only."""
    return sorted({target_piece(language) for language in languages})


def target_ids(tokenizer: SubwordTokenizer) -> dict[str, int]:
    """Return the target languages that a vocabulary has pieces for, by their codes, with the ids of the pieces."""
    found = {name: _PIECE.fullmatch(name) for name in tokenizer.reserved}
    return {match[1]: tokenizer.reserved[name] for name, match in found.items() if match}
