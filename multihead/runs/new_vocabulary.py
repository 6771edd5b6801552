"""Transfer to another vocabulary (`multihead train --from MODEL --new-vocabulary`): the layers know how to translate.

The embeddings of pieces that both vocabularies have are the model's (Zoph et al., 2016; Aji et al., 2020); others begin
at random with the same spread.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multihead.storage.arrays import Array, Arrays
from multihead.text.tokenizer import SPECIAL_TOKENS, SubwordTokenizer

UNKNOWN = -1  # number of a piece that the old vocabulary does not have


def transfer(weights: Arrays, old: SubwordTokenizer, new: SubwordTokenizer, seed: int) -> Arrays:
    """Return the weights of a model with the embeddings and the output layer of a new vocabulary."""
    ids = np.array(shared_ids(old, new))
    generator = np.random.default_rng(seed)
    return {
        name: _transferred(array, ids, generator) if _is_by_piece(name) else array
        for name, array in sorted(weights.items())
    }


def shared_ids(old: SubwordTokenizer, new: SubwordTokenizer) -> list[int]:
    """Return for each piece of the new vocabulary its id in the old one, or UNKNOWN.

    Pieces are compared as text, so that those of imported vocabularies, which mark spaces otherwise, are found as well.
    """
    n_special = len(SPECIAL_TOKENS)
    known: dict[str, int] = {}
    for id, piece in enumerate(_texts(old)[n_special:], start=n_special):
        known.setdefault(piece, id)
    return [*range(n_special), *(known.get(piece, UNKNOWN) for piece in _texts(new)[n_special:])]


def _texts(tokenizer: SubwordTokenizer) -> Sequence[str]:
    return tokenizer.readable(range(tokenizer.vocab_size))


def _is_by_piece(name: str) -> bool:
    return name.endswith("embedding.weight") or name.startswith("output.")


def _transferred(array: Array, ids: NDArray[np.int64], generator: np.random.Generator) -> Array:
    """Return an array with a row for each new piece; a new bias, which says how frequent a piece is, is the mean."""
    is_known = ids != UNKNOWN
    if array.ndim > 1:
        rows = generator.normal(0.0, array.std(), (len(ids), *array.shape[1:])).astype(array.dtype)
    else:
        rows = np.full(len(ids), array.mean(), array.dtype)
    rows[is_known] = array[ids[is_known]]
    return rows
