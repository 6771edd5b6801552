"""What each attention head does over many sentences: the shares of its weight on the previous word, the end symbol …

A share is a mean over the rows of all sentences, so long sentences count more. Shapes: L layers, H heads, T rows, S
columns.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multihead.inspection.attention_maps import Array, AttentionMaps

SIDES = ("encoder", "decoder", "cross")
Columns = NDArray[np.intp]  # of each row, the column that a role is about; -1 where there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadRole:
    """One head: the share of its weight that each role gets, and how large the largest weight of a row is on average.

    Roles of self-attention: `same`, `previous` and `next` position (the decoder has no next one), and `end`, the end
    symbol of the source, or `start`, the start symbol of the target. Roles of cross-attention: `aligned`, the source
    position of the written piece; `read`, that of the piece before it; and `end`. A row can count for two roles: the
    position before the second one is the start symbol.
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


def head_roles(maps: Iterable[AttentionMaps]) -> list[HeadRole]:
    """Return the roles of all heads over some sentences, in the order encoder, decoder, cross, layer, head."""
    totals: dict[str, dict[str, Array]] = {side: {} for side in SIDES}
    n_rows = dict.fromkeys(SIDES, 0)
    for sentence in maps:
        for side in SIDES:
            weights: Array = getattr(sentence, side)  # L H T S
            if not weights.size:
                continue
            n_rows[side] += weights.shape[2]
            for name, columns in _columns(side, sentence).items():
                _add(totals[side], name, _on(weights, columns).sum(axis=2))
            _add(totals[side], "peak", weights.max(axis=3).sum(axis=2))
    return [role for side in SIDES for role in _heads(side, totals[side], n_rows[side])]


def _columns(side: str, sentence: AttentionMaps) -> dict[str, Columns]:
    if side == "cross":
        aligned = sentence.cross[sentence.alignment_layer].mean(axis=0)[:, :-1].argmax(axis=1)  # the end symbol aside
        read = np.concatenate([[-1], aligned[:-1]])
        return {"aligned": aligned, "read": read, "end": np.full(len(aligned), sentence.cross.shape[3] - 1)}
    n_rows, n_columns = getattr(sentence, side).shape[2:]
    row = np.arange(n_rows)
    neighbors = {"same": row, "previous": row - 1}
    if side == "decoder":
        return {**neighbors, "start": np.zeros_like(row)}
    after = np.where(row + 1 < n_columns, row + 1, -1)
    return {**neighbors, "next": after, "end": np.full(n_rows, n_columns - 1)}


def _on(weights: Array, columns: Columns) -> Array:
    """Return the weight of each row on its column (L H T); 0 where it has none."""
    at = np.broadcast_to(columns.clip(min=0)[:, None], (*weights.shape[:3], 1))
    picked: Array = np.take_along_axis(weights, at, axis=3)[..., 0] * (columns >= 0)
    return picked


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
