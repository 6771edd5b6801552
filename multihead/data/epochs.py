"""TODO."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from multihead.data.bucketing import PairIndices, cut_batches, length_order
from multihead.data.shards import Shards

BLOCK = 1 << 16  # pairs that stay together when a corpus is shuffled
WINDOW = 16  # blocks whose pairs are shuffled among themselves
BLOCK_ORDER_STREAM = (1 << 32) - 1  # stands for no window where the order of blocks is drawn


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The place in the stream of batches: the next one to be taken."""

    epoch: int = 0
    window: int = 0  # of the epoch
    batch: int = 0  # of the window


def plan_window(
    lengths: NDArray[np.int32], batch_tokens: int, seed: int, epoch: int, window: int = 0
) -> list[PairIndices]:
    """The batches of a window: every pair once, no side of a batch over `batch_tokens`, padding counted."""
    rng = np.random.default_rng([seed, epoch, window])
    order = rng.permutation(np.arange(len(lengths), dtype=np.int32))  # half the memory of the usual indices
    batches = list(cut_batches(order[length_order(lengths[order])], lengths, batch_tokens))
    return [batches[at] for at in rng.permutation(len(batches))]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """A batch that is not read yet."""

    pairs: PairIndices
    cursor: Cursor  # its place
    contributes_loss: bool = True  # False where a process has nothing to do, and does something for company


@dataclass(frozen=True, slots=True)
class Window:
    """Blocks whose pairs are shuffled among themselves; a block is the pairs from its first to before its end."""

    blocks: list[tuple[int, int]]  # rising; one that comes twice is here twice

    def read(self, shards: Shards) -> tuple[PairIndices, NDArray[np.int32]]:
        """The indices of all pairs, and their lengths."""
        pairs = np.concatenate([np.arange(first, end) for first, end in self.blocks])
        return pairs, np.concatenate([shards.lengths(first, end) for first, end in self.blocks])


def windows_of(shards: Shards, seed: int, epoch: int) -> list[Window]:
    """The windows of an epoch in their order: every pair, as often as its corpus weighs."""
    sizes = [(part.pairs, part.weight) for part in shards.parts] or [(len(shards), 1.0)]
    starts = accumulate((size for size, _ in sizes), initial=0)
    blocks = [
        (first, min(first + BLOCK, start + size), weight)
        for start, (size, weight) in zip(starts, sizes, strict=False)
        for first in range(start, start + size, BLOCK)
    ]
    rng = np.random.default_rng([seed, epoch, BLOCK_ORDER_STREAM])
    # A weight of 1.5 is once or twice: it is drawn for each block and epoch.
    times = np.floor(np.array([weight for *_, weight in blocks]) + rng.random(len(blocks))).astype(np.int64)
    order = rng.permutation(np.repeat(np.arange(len(blocks)), times))
    parts = np.array_split(order, max(1, math.ceil(len(order) / WINDOW)))
    return [Window([blocks[at][:2] for at in sorted(part.tolist())]) for part in parts if len(part)]


def batch_plans(shards: Shards, batch_tokens: int, seed: int, cursor: Cursor) -> Iterator[tuple[BatchPlan, Cursor]]:
    """Training batches without end, each with the cursor behind it; what comes depends on these arguments alone."""
    while True:
        windows = windows_of(shards, seed, cursor.epoch)
        if cursor.window >= len(windows):  # small weights may leave an epoch with nothing at all
            cursor = Cursor(epoch=cursor.epoch + 1)
            continue
        pairs, lengths = windows[cursor.window].read(shards)
        batches = plan_window(lengths, batch_tokens, seed, cursor.epoch, cursor.window)
        if cursor.batch >= len(batches):  # of a version that cut them otherwise
            cursor = _next_cursor(cursor, len(batches), len(windows))
            continue
        for batch in batches[cursor.batch :]:
            place, cursor = cursor, _next_cursor(cursor, len(batches), len(windows))
            yield BatchPlan(pairs=pairs[batch], cursor=place), cursor


def _next_cursor(cursor: Cursor, n_batches: int, n_windows: int) -> Cursor:
    if cursor.batch + 1 < n_batches:
        return replace(cursor, batch=cursor.batch + 1)
    if cursor.window + 1 < n_windows:
        return Cursor(epoch=cursor.epoch, window=cursor.window + 1)
    return Cursor(epoch=cursor.epoch + 1)


StepPosition = tuple[int, ...]  # of a batch in its step, and of a process in its batch


def split_step(step: Sequence[BatchPlan], rank: int, world_size: int) -> list[tuple[StepPosition, BatchPlan]]:
    """What one of several processes does of the batches of a step: as many batches as every other one.

    There are whole ones while there is one for everybody, and of the rest every n-th pair: a batch is in the order of
    length, so that shares differ by less than a sentence. All of them together are the step, however many share it.
    """
    n_whole = len(step) // world_size * world_size
    whole = [((at,), step[at]) for at in range(rank, n_whole, world_size)]
    return whole + [((at, rank), _every_nth(step[at], rank, world_size)) for at in range(n_whole, len(step))]


def _every_nth(batch: BatchPlan, rank: int, world_size: int) -> BatchPlan:
    mine = batch.pairs[rank::world_size]
    return replace(batch, pairs=mine) if len(mine) else replace(batch, pairs=batch.pairs[:1], contributes_loss=False)
