"""Dependency trees beside the words of a source: how they are written, how they travel, and what a model asks of them.

A source line with a tree is its words, a tab, and for each word the number of its head, 0 for the root:

    A man rides a bike .<TAB>2 3 0 5 3 3

Words are what stands between spaces. The pieces of a word hang from its first one, and roots hang from the end symbol.
A tree travels with the ids: a token is its id, plus PLACE times one more than the place of what it hangs from; so a
token of a source without a tree, which hangs from the end symbol, is its id.
"""

from collections.abc import Sequence

from multihead.errors import UserError
from multihead.text.tokenizer import PLACE, SubwordTokenizer

SEPARATOR = "\t"


def strip_tree(line: str) -> str:
    """A line without its tree."""
    return line.partition(SEPARATOR)[0].strip()


def parse_heads(line: str) -> list[int]:
    """The heads of a line's words; none if it has no tree. What is no tree is refused in words."""
    text, _, heads = line.partition(SEPARATOR)
    if not heads.strip():
        return []
    if not all(head.isascii() and head.isdigit() for head in heads.split()):
        raise UserError(f"'{heads[:60]}' should be a number for each word: that of its head, 0 for the root")
    found = [int(head) for head in heads.split()]
    n_words = len(text.split())
    if len(found) != n_words:
        raise UserError(f"{n_words} words have {len(found)} heads: '{text[:60]}' and '{heads[:60]}'")
    for word in range(1, n_words + 1):
        for _ in range(n_words + 1):
            if word > n_words:
                raise UserError(f"there is no word {word} that could be a head: '{text[:60]}' has {n_words}")
            if word == 0:
                break
            word = found[word - 1]  # up to the root
        else:
            raise UserError(f"'{heads[:60]}' is no tree: its words are each other's heads, and none is the root")
    return found


def encode_tree(tokenizer: SubwordTokenizer, lines: Sequence[str]) -> list[list[int]]:
    """The tokens of source lines, with their trees."""
    batch = tokenizer.encode_batch([" ".join(strip_tree(line).split()) for line in lines])
    trees = [parse_heads(line) for line in lines]
    return [_with_tree(ids, tokenizer.word_starts(ids), heads) for ids, heads in zip(batch, trees, strict=True)]


def _with_tree(ids: list[int], word_starts: list[bool], heads: list[int]) -> list[int]:
    if not heads:
        return ids
    first = [place for place, begins in enumerate(word_starts) if begins]  # of each word
    tokens, word = [], -1
    for id, begins in zip(ids, word_starts, strict=True):
        word += begins
        above = heads[word] if begins else word + 1  # the word that it hangs from, counted from 1
        tokens.append(id + PLACE * (first[above - 1] + 1 if above else 0))
    return tokens
