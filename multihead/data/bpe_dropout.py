"""BPE-dropout (Provilkov et al., 2020): other segmentations of the same text, made by skipping merges at random.

The `tokenizers` library has this too, but its generator cannot be seeded, and a resumed run must see the pieces that
an uninterrupted run sees.
"""

import random
from collections.abc import Iterator, Sequence
from itertools import pairwise

from multihead.text.tokenizer import SPACE, SPECIAL_TOKENS, SubwordTokenizer


class BpeDropout:
    """Segments encoded text differently; the result is a function of the generator passed to the call."""

    def __init__(self, tokenizer: SubwordTokenizer) -> None:
        ids = {piece: id for id, piece in enumerate(tokenizer.pieces())}
        self._merges: dict[tuple[int, int], tuple[int, int]] = {}  # pair of ids -> (rank, id of the merged piece)
        for rank, (left, right) in enumerate(tokenizer.merges()):
            self._merges[ids[left], ids[right]] = (rank, ids[left + right])
        reserved = set(tokenizer.reserved.values())
        texts = {piece: id for piece, id in ids.items() if id >= len(SPECIAL_TOKENS) and id not in reserved}
        self._bytes = {id: [ids[byte] for byte in piece] for piece, id in texts.items()} | {id: [id] for id in reserved}
        self._word_starts = {id for piece, id in ids.items() if piece.startswith(SPACE)}

    def __call__(self, ids: Sequence[int], dropout: float, rng: random.Random) -> list[int]:
        """Return ids of the same text, where each merge is skipped with probability `dropout`."""
        result: list[int] = []
        for word in self._words(ids):
            result += self._merge(word, dropout, rng)
        return result

    def _words(self, ids: Sequence[int]) -> Iterator[list[int]]:
        """Yield the bytes of each word; merges never cross the space that starts the next word."""
        word: list[int] = []
        for id in ids:
            if id in self._word_starts and word:
                yield word
                word = []
            word += self._bytes[id]
        yield word

    def _merge(self, word: list[int], dropout: float, rng: random.Random) -> list[int]:
        merges = self._merges
        while True:
            candidates = [
                (*merges[pair], index)
                for index, pair in enumerate(pairwise(word))
                if pair in merges and rng.random() >= dropout
            ]
            if not candidates:
                return word
            _, merged, index = min(candidates)
            word[index : index + 2] = [merged]
