"""Batches of like length under a budget of tokens (§5.1), in an order that is a function of (seed, epoch).

A large corpus is shuffled in two steps, so that nobody has to hold a list of all its pairs: blocks of pairs that follow
each other are shuffled and laid into windows, and the pairs of a window are shuffled among themselves. A corpus of up
to a million pairs is one window.
"""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

MIN_FILL = 0.9  # of the largest batch that fits; what is smaller may have less padding
SIGNIFICANT_BITS = 5  # binary ones, of the number of pairs in a batch; after them come zeros

PairIndices = NDArray[np.signedinteger]  # indices of the pairs of one batch


def length_buckets(lengths: NDArray[np.int32], batch_tokens: int) -> Iterator[PairIndices]:
    """Batches of like length in a fixed order, the shortest first."""
    return cut_batches(length_order(lengths), lengths, batch_tokens)


def length_order(lengths: NDArray[np.int32]) -> PairIndices:
    """Pairs by their longer side, which fills the budget; then by the difference, now rising, now falling."""
    longer, difference = lengths.max(axis=1), lengths[:, 0] - lengths[:, 1]
    difference[longer % 2 == 0] *= -1
    return np.argsort((longer << 16) + difference, kind="stable")  # one key of both: lengths are far below 2^15


def cut_batches(order: PairIndices, lengths: NDArray[np.int32], batch_tokens: int) -> Iterator[PairIndices]:
    """Cut a sequence of pairs into batches: of the round places in the last tenth, where there is least padding."""
    start = 0
    while start < len(order):
        # No more pairs fit than if all were as short as the first; the end symbol counts.
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
    """Sizes of a batch that is nearly full, of a few binary digits and then zeros.

    So the same shapes come again and again. CPUs compile a product in bfloat16 for each shape, and keep a thousand.
    """
    unit = 1 << max(0, most.bit_length() - SIGNIFICANT_BITS)
    return np.arange(most // unit * unit, math.ceil(MIN_FILL * most) - 1, -unit)
