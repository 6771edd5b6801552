"""The attention weights of a sentence and its translation, and the word alignment that follows from them.

Shapes: L layers, H heads, S source length, T target length, both including their special token. An alignment is made
from cross-attention between pieces: the mean of the heads of one layer, without special tokens.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from multihead.text.pieces import group_words

Array = NDArray[np.float32]
WordLink = tuple[int, int, float]  # source word, target word, weight


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
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
    alignment_layer: int  # of the decoder: the layer that aligns words best
    # T: of the token that each row predicts, given those before it; empty if it was not recorded
    probabilities: Array = field(default_factory=lambda: np.zeros(0, dtype=np.float32))

    def __repr__(self) -> str:
        layers, heads = self.cross.shape[:2]
        n_tokens = f"{len(self.source_tokens)} source tokens, {len(self.target_tokens)} target tokens"
        return f"AttentionMaps({n_tokens}, {layers} decoder layers, {heads} heads)"

    def _repr_html_(self) -> str:
        from multihead.inspection.page import render_frame

        return render_frame(self)

    def alignment(self) -> Array:
        """Return how much of each target word (row) comes from each source word (column); rows sum to 1."""
        pieces = between_pieces(self.cross[self.alignment_layer].mean(axis=0)[:-1, :-1])
        return word_weights(self.source_tokens[:-1], self.target_tokens[1:], pieces)

    def word_probabilities(self) -> list[float]:
        """Return the probability of each target word, given the words before it: the product over its pieces."""
        if not self.probabilities.size:
            return []
        pieces = self.probabilities.astype(np.float64)
        return [float(pieces[word].prod()) for word in group_words(self.target_tokens[1:])]


def between_pieces(weights: Array) -> Array:
    """Return attention between pieces (… T S) with rows that sum to 1 again after special tokens were left out."""
    normalized: Array = weights / weights.sum(axis=-1, keepdims=True).clip(min=1e-12)
    return normalized


def word_weights(sources: Sequence[str], targets: Sequence[str], pieces: Array) -> Array:
    """Return how much of each target word (row) comes from each source word (column); rows sum to 1.

    `pieces` is the attention between the pieces of both sides. The row of a target piece is that of the query that
    predicts it. Columns of the pieces of a source word are summed, rows of the pieces of a target word averaged. The
    column of a piece that belongs to several words is divided among them.
    """
    source_words, target_words = group_words(sources), group_words(targets)
    if not source_words or not target_words:
        return np.zeros((len(target_words), len(source_words)), dtype=np.float32)
    shares = pieces / np.bincount(np.concatenate(source_words), minlength=pieces.shape[1]).clip(min=1)
    columns = np.stack([shares[:, word].sum(axis=1) for word in source_words], axis=1)
    return np.stack([columns[word].mean(axis=0) for word in target_words])


def word_links(weights: Array) -> list[WordLink]:
    """Return (source word, target word, weight) for each target word and the source word that it attends to most."""
    if not weights.size:
        return []
    return [(int(row.argmax()), target, float(row.max())) for target, row in enumerate(weights)]


def best_alignment_layer(cross: Iterable[Array]) -> int:
    """Return the layer that aligns words best, given the cross-attention (L H T S) of some sentences.

    It is the one whose rows and columns have the largest mutual information: its rows are sharp and differ from each
    other. A layer in which every row attends to the full stop is sharp, too, but tells nothing.
    """
    by_sentence = [_mutual_information(between_pieces(maps.mean(axis=1)[:, :-1, :-1])) for maps in cross]
    return int(np.sum(by_sentence, axis=0).argmax())


def _mutual_information(rows: Array) -> Array:
    """Return the mutual information of rows and columns in each layer (L), given attention between pieces (L T S)."""
    if not rows.size:
        return np.zeros(len(rows), dtype=np.float32)
    information: Array = _entropy(rows.mean(axis=1)) - _entropy(rows).mean(axis=1)
    return information


def _entropy(rows: Array) -> Array:
    logs = np.log(rows, out=np.zeros_like(rows), where=rows > 0)  # 0 log 0 is 0
    entropy: Array = -(rows * logs).sum(axis=-1)
    return entropy
