"""What every head looks at, recorded by forward hooks: the model carries no flag for it.

Shapes: L layers, H heads, S source length, T target length, both with their control symbol.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from multihead.text.pieces import group_words


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionMaps:
    """The weights of one sentence and its translation; a row is a query, and sums to 1.

    A piece that begins a word begins with a space. The query at row t of the decoder has read `target_tokens[: t + 1]`
    and predicts `target_tokens[t + 1]`; the last one predicts the end symbol.
    """

    source_tokens: list[str]  # the pieces, then the end symbol
    target_tokens: list[str]  # the start symbol, then the pieces
    encoder: Tensor  # L H S S; no layer if something else than attention mixes the places there, as a convolution
    decoder: Tensor  # L H T T; the same
    cross: Tensor  # L H T S


# Alignment of words


def word_alignment(maps: AttentionMaps) -> list[tuple[int, int, float]]:
    """For each target word its best source word: (source word, target word, weight); words are those of `words`."""
    matrix = alignment_matrix(maps)
    if not matrix.numel():
        return []
    weights, sources = matrix.max(dim=1)
    return [(int(source), target, float(weights[target])) for target, source in enumerate(sources)]


def alignment_matrix(maps: AttentionMaps) -> Tensor:
    """How much of each target word (row) comes from each source word (column); rows sum to 1.

    The row of a target piece is that of the query which predicts it, in the layer of `alignment_layer`, averaged over
    heads. A source word is the sum of its pieces, a target word the mean of its own.
    """
    sources, targets = group_words(maps.source_tokens[:-1]), group_words(maps.target_tokens[1:])
    if not sources or not targets:
        return torch.zeros(len(targets), len(sources))
    pieces = _between_pieces(maps)[alignment_layer(maps)]
    columns = torch.stack([pieces[:, word].sum(dim=1) for word in sources], dim=1)
    return torch.stack([columns[word].mean(dim=0) for word in targets])


def alignment_layer(maps: AttentionMaps) -> int:
    """The layer that aligns best: where the row tells most of the column, by mutual information.

    Its rows are sharp, and they differ; a layer in which all look at the same full stop is sharp and tells nothing.
    """
    rows = _between_pieces(maps)  # L T S
    if not rows.numel():
        return len(rows) - 1
    information = _entropy(rows.mean(dim=1)) - _entropy(rows).mean(dim=1)  # L
    return int(information.argmax())


def _between_pieces(maps: AttentionMaps) -> Tensor:
    """Cross-attention averaged over heads, without the control symbols: L T-1 S-1, rows sum to 1."""
    rows = maps.cross.mean(dim=1)[:, :-1, :-1]
    return rows / rows.sum(dim=-1, keepdim=True).clamp_min(1e-12)


def _entropy(rows: Tensor) -> Tensor:
    return -torch.xlogy(rows, rows).sum(dim=-1)
