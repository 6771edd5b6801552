"""What each attention head does over many sentences: the shares of its weight on the previous word, the end symbol …

A share is a mean over the rows of all sentences, so long sentences count more. Shapes: L layers, H heads, T rows, S
columns.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from multihead.inspection.attention_maps import Array, AttentionMaps

SIDES = ("encoder", "decoder", "cross")
Marks = NDArray[np.bool_]  # T S: in each row, the columns that a role is about


class Head(NamedTuple):
    """A head by its place; layer and number are counted from 0."""

    side: str  # encoder, decoder or cross
    layer: int
    number: int

    def __str__(self) -> str:
        """Return the place as it is shown, counted from 1: `cross 2.4`."""
        return f"{self.side} {self.layer + 1}.{self.number + 1}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRole:
    """One head: the share of its weight that each role gets, and how large the largest weight of a row is on average.

    Roles of self-attention: `same`, `previous` and `next` position (the decoder has no next one), and `end`, the end
    symbol of the source, or `start`, the start symbol of the target; with trees, in the encoder also `syntax`, the word
    that a word depends on. Roles of cross-attention: `aligned`, the source position of the written piece; `read`, that
    of the piece before it; and `end`. A row can count for two roles: the position before the second one is the start
    symbol.
    """

    side: str  # encoder, decoder or cross
    layer: int
    head: int
    shares: Mapping[str, float]
    peak: float

    @property
    def role(self) -> str:
        """Return the role with the largest share."""
        return max(self.shares, key=lambda name: self.shares[name])

    @property
    def place(self) -> Head:
        return Head(self.side, self.layer, self.head)


def head_roles(
    maps: Iterable[AttentionMaps], syntax: Iterable[Sequence[Sequence[int]] | None] | None = None
) -> list[HeadRole]:
    """Return the roles of all heads over some sentences, in the order encoder, decoder, cross, layer, head.

    `syntax` has for each sentence, and for each of its source tokens, the positions of the word that it depends on.
    """
    totals: dict[str, dict[str, Array]] = {side: {} for side in SIDES}
    n_rows = dict.fromkeys(SIDES, 0)
    for sentence, governors in zip(maps, repeat(None) if syntax is None else syntax, strict=syntax is not None):
        for side in SIDES:
            weights: Array = getattr(sentence, side)  # L H T S
            if not weights.size:
                continue
            n_rows[side] += weights.shape[2]
            marks = _marks(side, sentence)
            if side == "encoder" and governors is not None:
                marks["syntax"] = _of_positions(governors, weights.shape[3])
            for name, marked in marks.items():
                _add(totals[side], name, np.einsum("lhts,ts->lh", weights, marked))
            _add(totals[side], "peak", weights.max(axis=3).sum(axis=2))
    return [role for side in SIDES for role in _heads(side, totals[side], n_rows[side])]


def _marks(side: str, sentence: AttentionMaps) -> dict[str, Marks]:
    n_rows, n_columns = getattr(sentence, side).shape[2:]
    if side == "cross":
        aligned = sentence.cross[sentence.alignment_layer].mean(axis=0)[:, :-1].argmax(axis=1)  # the end symbol aside
        roles = {"aligned": aligned, "read": np.concatenate([[-1], aligned[:-1]])}
        columns = {**roles, "end": np.full(n_rows, n_columns - 1)}
    else:
        row = np.arange(n_rows)
        columns = {"same": row, "previous": row - 1}
        if side == "decoder":
            columns["start"] = np.zeros_like(row)
        else:
            columns |= {"next": row + 1, "end": np.full(n_rows, n_columns - 1)}
    return {name: np.equal.outer(column, np.arange(n_columns)) for name, column in columns.items()}


def _of_positions(positions: Sequence[Sequence[int]], n_columns: int) -> Marks:
    marks = np.zeros((n_columns, n_columns), dtype=bool)
    for row, columns in enumerate(positions):
        marks[row, list(columns)] = True
    return marks


def _add(totals: dict[str, Array], name: str, sums: Array) -> None:
    totals[name] = totals[name] + sums if name in totals else sums


def _heads(side: str, totals: Mapping[str, Array], n_rows: int) -> Iterator[HeadRole]:
    if not totals:
        return
    means = {name: total / n_rows for name, total in totals.items()}
    for layer, head in np.ndindex(totals["peak"].shape):
        shares = {name: float(mean[layer, head]) for name, mean in means.items()}
        peak = shares.pop("peak")
        yield HeadRole(side=side, layer=layer, head=head, shares=shares, peak=peak)
