"""Batches of pairs of similar length under a budget of tokens (§5.1)."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

MIN_FILL = 0.9  # of the largest batch that fits; a smaller one may have less padding
SIGNIFICANT_BITS = 5  # of the number of pairs in a batch; the other bits are zero

PairIndices = NDArray[np.signedinteger]  # indices of the pairs of one batch


def length_buckets(lengths: NDArray[np.int32], batch_tokens: int) -> Iterator[PairIndices]:
    """Yield batches of similar length, the shortest first."""
    return cut_batches(length_order(lengths), lengths, batch_tokens)


def length_order(lengths: NDArray[np.int32]) -> PairIndices:
    """Sort pairs by their longer side, which fills the budget, then by the difference, alternately up and down."""
    longer, difference = lengths.max(axis=1), lengths[:, 0] - lengths[:, 1]
    difference[longer % 2 == 0] *= -1
    return np.argsort((longer << 16) + difference, kind="stable")  # one key for both: lengths are far below 2^15


def cut_batches(order: PairIndices, lengths: NDArray[np.int32], batch_tokens: int) -> Iterator[PairIndices]:
    """Cut a sequence of pairs into batches, each at the round size near its largest where there is least padding."""
    start = 0
    while start < len(order):
        # An upper bound: all pairs as short as the first. The end symbol counts.
        fitting = max(1, batch_tokens // (1 + int(lengths[order[start]].max())))
        window = lengths[order[start : start + fitting]] + 1
        longest = np.maximum.accumulate(window, axis=0)
        counts = np.arange(1, len(window) + 1)
        most = max(1, int(np.searchsorted(longest.max(axis=1) * counts, batch_tokens, side="right")))
        sizes = counts[most - 1 : most] if start + most == len(order) else _round_sizes(most)
        padded_share = longest[sizes - 1].sum(axis=1) * sizes / np.cumsum(window.sum(axis=1))[sizes - 1]
        end = start + int(sizes[np.argmin(padded_share)])
        yield order[start:end]
        start = end


def _round_sizes(most: int) -> NDArray[np.int64]:
    """Return the sizes of a nearly full batch that have few significant bits.

    Few distinct shapes keep oneDNN's cache of bfloat16 kernels (1,000 entries) from thrashing.
    """
    unit = 1 << max(0, most.bit_length() - SIGNIFICANT_BITS)
    return np.arange(most // unit * unit, math.ceil(MIN_FILL * most) - 1, -unit)
