"""The order of training batches: a function of (seed, epoch), so that a run resumes exactly.

A large corpus is shuffled in two steps, so that no list of all its pairs is ever in memory: blocks of consecutive pairs
are shuffled and grouped into windows, and the pairs of a window are shuffled among themselves. A corpus of up to a
million pairs is one window.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, islice

import numpy as np
from numpy.typing import NDArray

from multihead.data.bucketing import PairIndices, cut_batches, length_order
from multihead.data.shards import Shards

BLOCK = 1 << 16  # consecutive pairs that stay together when blocks are shuffled
WINDOW = 16  # blocks whose pairs are shuffled among themselves
BLOCK_ORDER_STREAM = (1 << 32) - 1  # reserved window number that seeds the order of blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """A position in the stream of batches: the next batch to read."""

    epoch: int = 0
    window: int = 0  # of the epoch
    batch: int = 0  # of the window


def plan_window(
    lengths: NDArray[np.int32], batch_tokens: int, seed: int, epoch: int, window: int = 0
) -> list[PairIndices]:
    """Return the batches of a window: every pair once, neither side of a batch over `batch_tokens` with padding."""
    rng = np.random.default_rng([seed, epoch, window])
    order = rng.permutation(np.arange(len(lengths), dtype=np.int32))  # int32 halves the memory
    batches = list(cut_batches(order[length_order(lengths[order])], lengths, batch_tokens))
    return [batches[index] for index in rng.permutation(len(batches))]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """The pairs of a batch, not read yet."""

    pairs: PairIndices
    cursor: Cursor
    contributes_loss: bool = True  # False for a dummy batch that keeps ranks in step but adds no loss


@dataclass(frozen=True, slots=True)
class Window:
    """Blocks whose pairs are shuffled among themselves; a block is a range of pairs (first, end)."""

    blocks: list[tuple[int, int]]  # ascending; a block that is used twice is listed twice

    def read(self, shards: Shards) -> tuple[PairIndices, NDArray[np.int32]]:
        """Return the indices of all pairs, and their lengths, shape (N, 2)."""
        pairs = np.concatenate([np.arange(first, end) for first, end in self.blocks])
        return pairs, np.concatenate([shards.lengths(first, end) for first, end in self.blocks])


def shuffled_windows(shards: Shards, seed: int, epoch: int) -> list[Window]:
    """Return the windows of an epoch in order; a pair occurs as often as the weight of its corpus says."""
    sizes = [(part.pairs, part.weight) for part in shards.parts] or [(len(shards), 1.0)]
    starts = accumulate((size for size, _ in sizes), initial=0)
    blocks = [
        (first, min(first + BLOCK, start + size), weight)
        for start, (size, weight) in zip(starts, sizes, strict=False)
        for first in range(start, start + size, BLOCK)
    ]
    rng = np.random.default_rng([seed, epoch, BLOCK_ORDER_STREAM])
    # A weight of 1.5 means once or twice, drawn for each block and epoch.
    times = np.floor(np.array([weight for *_, weight in blocks]) + rng.random(len(blocks))).astype(np.int64)
    order = rng.permutation(np.repeat(np.arange(len(blocks)), times))
    n_pairs = sum(blocks[index][1] - blocks[index][0] for index in order)  # few pairs of a large weight are one window
    parts = np.array_split(order, max(1, math.ceil(n_pairs / (WINDOW * BLOCK))))
    return [Window([blocks[index][:2] for index in sorted(part.tolist())]) for part in parts if len(part)]


def batch_plans(shards: Shards, batch_tokens: int, seed: int, cursor: Cursor) -> Iterator[tuple[BatchPlan, Cursor]]:
    """Yield training batches without end, each with the cursor of the next one; a function of its arguments alone."""
    while True:
        windows = shuffled_windows(shards, seed, cursor.epoch)
        if cursor.window >= len(windows):  # small weights may leave an epoch without any pair
            cursor = Cursor(epoch=cursor.epoch + 1)
            continue
        pairs, lengths = windows[cursor.window].read(shards)
        batches = plan_window(lengths, batch_tokens, seed, cursor.epoch, cursor.window)
        if cursor.batch >= len(batches):  # of a version that formed other batches
            cursor = _next_cursor(cursor, len(batches), len(windows))
            continue
        for batch in batches[cursor.batch :]:
            current, cursor = cursor, _next_cursor(cursor, len(batches), len(windows))
            yield BatchPlan(pairs=pairs[batch], cursor=current), cursor


def _next_cursor(cursor: Cursor, n_batches: int, n_windows: int) -> Cursor:
    if cursor.batch + 1 < n_batches:
        return replace(cursor, batch=cursor.batch + 1)
    if cursor.window + 1 < n_windows:
        return Cursor(epoch=cursor.epoch, window=cursor.window + 1)
    return Cursor(epoch=cursor.epoch + 1)


def in_groups(plans: Iterable[tuple[BatchPlan, Cursor]], size: int) -> Iterator[list[tuple[BatchPlan, Cursor]]]:
    """Yield the plans of one step after the other, `size` at a time."""
    iterator = iter(plans)
    while group := list(islice(iterator, size)):
        yield group


StepPosition = tuple[int, ...]  # index of a batch in its step, and of the rank if the batch is split


def split_step(step: Sequence[BatchPlan], rank: int, world_size: int) -> list[tuple[StepPosition, BatchPlan]]:
    """Return the share of a step's batches that a rank computes; every rank gets the same number of batches.

    Ranks take whole batches as long as there is one for each. The remaining batches are split: a rank takes every
    n-th pair, and since the pairs of a batch are ordered by length, the shares differ by less than a sentence.
    """
    n_whole = len(step) // world_size * world_size
    whole = [((index,), step[index]) for index in range(rank, n_whole, world_size)]
    return whole + [((index, rank), _every_nth(step[index], rank, world_size)) for index in range(n_whole, len(step))]


def _every_nth(batch: BatchPlan, rank: int, world_size: int) -> BatchPlan:
    mine = batch.pairs[rank::world_size]
    return replace(batch, pairs=mine) if len(mine) else replace(batch, pairs=batch.pairs[:1], contributes_loss=False)
