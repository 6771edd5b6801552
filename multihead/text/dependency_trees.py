"""Dependency trees of source sentences: how they are written in a file, and how they follow tokens into a model.

A source line with a tree is its words, a tab, and for each word the number of its head, 0 for the root:

    A man rides a bike .<TAB>2 3 0 5 3 3

Words are separated by spaces. The first token of a word hangs from the first token of the head's word, and the other
tokens of a word from its first one. The root, and every word of a sentence without a tree, hangs from the end symbol.
"""

from collections.abc import Sequence

from multihead.errors import UserError
from multihead.text.tokenizer import SubwordTokenizer

SEPARATOR = "\t"
NO_HEAD = -1  # of a token that hangs from the end symbol


def strip_tree(line: str) -> str:
    """Return a line without its tree."""
    return line.partition(SEPARATOR)[0].strip()


def parse_heads(line: str) -> list[int]:
    """Return the heads of a line's words, or an empty list if it has no tree; raise UserError if they form no tree."""
    text, _, heads = line.partition(SEPARATOR)
    if not heads.strip():
        return []
    if not all(head.isascii() and head.isdigit() for head in heads.split()):
        raise UserError(f"'{heads[:60]}' is not a dependency tree: write one number per word, 0 for the root")
    parents = [int(head) for head in heads.split()]
    n_words = len(text.split())
    if len(parents) != n_words:
        raise UserError(f"the dependency tree has {len(parents)} heads for {n_words} words: '{text[:60]}'")
    if max(parents) > n_words:
        raise UserError(f"the dependency tree names word {max(parents)}, but '{text[:60]}' has {n_words} words")
    if not all(_reaches_root(word, parents) for word in range(1, n_words + 1)):
        raise UserError(f"'{heads[:60]}' is not a dependency tree: it has a cycle")
    return parents


def _reaches_root(word: int, parents: list[int]) -> bool:
    for _ in parents:
        word = parents[word - 1]
        if word == 0:
            return True
    return False


def encode_with_heads(tokenizer: SubwordTokenizer, lines: Sequence[str]) -> list[tuple[list[int], list[int]]]:
    """Return the ids of each source line, and for each token the index of its head, or NO_HEAD."""
    batch = tokenizer.encode_batch([" ".join(strip_tree(line).split()) for line in lines])
    return [
        (ids, _token_heads(tokenizer.word_starts(ids), parse_heads(line)))
        for ids, line in zip(batch, lines, strict=True)
    ]


def _token_heads(word_starts: list[bool], parents: list[int]) -> list[int]:
    """Return the head of each token, given which tokens begin a word and the parents of the words."""
    if not parents:
        return [NO_HEAD] * len(word_starts)
    firsts = [index for index, begins in enumerate(word_starts) if begins]  # the first token of each word
    heads, word = [], 0  # words are counted from 1
    for begins in word_starts:
        word += begins
        parent = parents[word - 1] if begins else word
        heads.append(firsts[parent - 1] if parent else NO_HEAD)
    return heads
