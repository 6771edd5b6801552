"""The attention weights of a sentence and its translation, and the word alignment that follows from them.

Shapes: L layers, H heads, S source length, T target length, both including their special token.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multihead.text.pieces import group_words

Array = NDArray[np.float32]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AttentionMaps:
    """The attention weights of one sentence and its translation; each row belongs to a query and sums to 1.

    A piece that begins a word begins with a space. The query in row t of the decoder has read `target_tokens[: t + 1]`
    and predicts `target_tokens[t + 1]`; the last one predicts the end symbol.
    """

    source_tokens: list[str]  # the pieces, then the end symbol
    target_tokens: list[str]  # the start symbol, then the pieces
    encoder: Array  # L H S S; no layers if the encoder uses another mixer than attention
    decoder: Array  # L H T T; likewise
    cross: Array  # L H T S


# Word alignment


def word_alignment(maps: AttentionMaps) -> list[tuple[int, int, float]]:
    """Return (source word, target word, weight) for each target word and the source word that it attends to most."""
    matrix = alignment_matrix(maps)
    if not matrix.size:
        return []
    return [(int(row.argmax()), target, float(row.max())) for target, row in enumerate(matrix)]


def alignment_matrix(maps: AttentionMaps) -> Array:
    """Return how much of each target word (row) comes from each source word (column); rows sum to 1.

    The row of a target piece is that of the query that predicts it, in the layer of `alignment_layer`, averaged over
    heads. Columns of the pieces of a source word are summed, rows of the pieces of a target word averaged.
    """
    sources, targets = group_words(maps.source_tokens[:-1]), group_words(maps.target_tokens[1:])
    if not sources or not targets:
        return np.zeros((len(targets), len(sources)), dtype=np.float32)
    pieces = _between_pieces(maps)[alignment_layer(maps)]
    columns = np.stack([pieces[:, word].sum(axis=1) for word in sources], axis=1)
    return np.stack([columns[word].mean(axis=0) for word in targets])


def alignment_layer(maps: AttentionMaps) -> int:
    """Return the layer that aligns best: the one whose rows and columns have the largest mutual information.

    Its rows are sharp and differ from each other. A layer in which every row attends to the full stop is sharp, too,
    but tells nothing.
    """
    rows = _between_pieces(maps)  # L T S
    if not rows.size:
        return len(rows) - 1
    information = _entropy(rows.mean(axis=1)) - _entropy(rows).mean(axis=1)  # L
    return int(information.argmax())


def _between_pieces(maps: AttentionMaps) -> Array:
    """Return cross-attention averaged over heads, without special tokens: L T-1 S-1, rows sum to 1."""
    rows = maps.cross.mean(axis=1)[:, :-1, :-1]
    normalized: Array = rows / rows.sum(axis=-1, keepdims=True).clip(min=1e-12)
    return normalized


def _entropy(rows: Array) -> Array:
    logs = np.log(rows, out=np.zeros_like(rows), where=rows > 0)  # 0 log 0 is 0
    entropy: Array = -(rows * logs).sum(axis=-1)
    return entropy
