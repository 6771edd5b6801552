"""Batches of like length under a budget of tokens (§5.1), in an order that is a function of (seed, epoch).

A large corpus is shuffled in two steps, so that nobody has to hold a list of all its pairs: blocks of pairs that follow
each other are shuffled and laid into windows, and the pairs of a window are shuffled among themselves. A corpus of up
to a million pairs is one window.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.augment import Augment
from multihead.corpus import Ids, Shards
from multihead.tokenizer import BOS_ID, EOS_ID, PAD_ID

FULL_ENOUGH = 0.9  # of the largest batch that fits; what is smaller may have less padding
DIGITS = 5  # binary ones, of the number of pairs in a batch; after them come zeros
BLOCK = 1 << 16  # pairs that stay together when a corpus is shuffled
WINDOW = 16  # blocks whose pairs are shuffled among themselves
OF_BLOCKS = (1 << 32) - 1  # stands for no window where the order of blocks is drawn

Pairs = NDArray[np.signedinteger]  # indices of the pairs of one batch


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Padded ids; masks are derived from them, never carried."""

    source: Tensor  # B S, ends in the end symbol
    target_in: Tensor  # B T, begins with the start symbol
    target_out: Tensor  # B T, ends in the end symbol
    n_tokens: int  # of target_out without padding

    def to(self, device: torch.device) -> "Batch":
        return Batch(
            source=self.source.to(device, non_blocking=True),
            target_in=self.target_in.to(device, non_blocking=True),
            target_out=self.target_out.to(device, non_blocking=True),
            n_tokens=self.n_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """The place in the stream of batches: the next one to be taken."""

    epoch: int = 0
    window: int = 0  # of the epoch
    batch: int = 0  # of the window


def plan(lengths: NDArray[np.int32], batch_tokens: int, seed: int, epoch: int, window: int = 0) -> list[Pairs]:
    """The batches of a window: every pair once, no side of a batch over `batch_tokens`, padding counted."""
    rng = np.random.default_rng([seed, epoch, window])
    order = rng.permutation(np.arange(len(lengths), dtype=np.int32))  # half the memory of the usual indices
    batches = list(_cut(order[_along_length(lengths[order])], lengths, batch_tokens))
    return [batches[at] for at in rng.permutation(len(batches))]


def cut_by_length(lengths: NDArray[np.int32], batch_tokens: int) -> Iterator[Pairs]:
    """Batches of like length in a fixed order, the shortest first."""
    return _cut(_along_length(lengths), lengths, batch_tokens)


def _along_length(lengths: NDArray[np.int32]) -> Pairs:
    """Pairs by their longer side, which fills the budget; then by the difference, now rising, now falling."""
    longer, difference = lengths.max(axis=1), lengths[:, 0] - lengths[:, 1]
    difference[longer % 2 == 0] *= -1
    return np.argsort((longer << 16) + difference, kind="stable")  # one key of both: lengths are far below 2^15


def _cut(order: Pairs, lengths: NDArray[np.int32], batch_tokens: int) -> Iterator[Pairs]:
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
    unit = 1 << max(0, most.bit_length() - DIGITS)
    return np.arange(most // unit * unit, math.ceil(FULL_ENOUGH * most) - 1, -unit)


def collate(pairs: list[tuple[Ids, Ids]]) -> Batch:
    """Pad pairs of ids to one rectangle a side, and add the control symbols."""
    n_source = 1 + max(len(source) for source, _ in pairs)
    n_target = 1 + max(len(target) for _, target in pairs)
    source_ids = np.full((len(pairs), n_source), PAD_ID, dtype=np.int64)
    target_in, target_out = (np.full((len(pairs), n_target), PAD_ID, dtype=np.int64) for _ in range(2))
    for row, (source, target) in enumerate(pairs):
        source_ids[row, : len(source)], source_ids[row, len(source)] = source, EOS_ID
        target_in[row, 0], target_in[row, 1 : len(target) + 1] = BOS_ID, target
        target_out[row, : len(target)], target_out[row, len(target)] = target, EOS_ID
    return Batch(
        source=torch.from_numpy(source_ids),
        target_in=torch.from_numpy(target_in),
        target_out=torch.from_numpy(target_out),
        n_tokens=sum(len(target) + 1 for _, target in pairs),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A batch that is not read yet."""

    pairs: Pairs
    cursor: Cursor  # its place
    counts: bool = True  # False where a process has nothing to do, and does something for company


@dataclass(frozen=True, slots=True)
class Window:
    """Blocks whose pairs are shuffled among themselves; a block is the pairs from its first to before its end."""

    blocks: list[tuple[int, int]]  # rising; one that comes twice is here twice

    def read(self, shards: Shards) -> tuple[Pairs, NDArray[np.int32]]:
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
    rng = np.random.default_rng([seed, epoch, OF_BLOCKS])
    # A weight of 1.5 is once or twice: it is drawn for each block and epoch.
    times = np.floor(np.array([weight for *_, weight in blocks]) + rng.random(len(blocks))).astype(np.int64)
    order = rng.permutation(np.repeat(np.arange(len(blocks)), times))
    parts = np.array_split(order, max(1, math.ceil(len(order) / WINDOW)))
    return [Window([blocks[at][:2] for at in sorted(part.tolist())]) for part in parts if len(part)]


def planned(shards: Shards, batch_tokens: int, seed: int, cursor: Cursor) -> Iterator[tuple[Planned, Cursor]]:
    """Training batches without end, each with the cursor behind it; what comes depends on these arguments alone."""
    while True:
        windows = windows_of(shards, seed, cursor.epoch)
        if cursor.window >= len(windows):  # small weights may leave an epoch with nothing at all
            cursor = Cursor(epoch=cursor.epoch + 1)
            continue
        pairs, lengths = windows[cursor.window].read(shards)
        batches = plan(lengths, batch_tokens, seed, cursor.epoch, cursor.window)
        if cursor.batch >= len(batches):  # of a version that cut them otherwise
            cursor = _behind(cursor, len(batches), len(windows))
            continue
        for batch in batches[cursor.batch :]:
            place, cursor = cursor, _behind(cursor, len(batches), len(windows))
            yield Planned(pairs=pairs[batch], cursor=place), cursor


def _behind(cursor: Cursor, n_batches: int, n_windows: int) -> Cursor:
    if cursor.batch + 1 < n_batches:
        return replace(cursor, batch=cursor.batch + 1)
    if cursor.window + 1 < n_windows:
        return Cursor(epoch=cursor.epoch, window=cursor.window + 1)
    return Cursor(epoch=cursor.epoch + 1)


def read(shards: Shards, batch: Planned, seed: int, augment: Augment | None = None) -> Batch:
    """The ids of a batch; what is done to a sentence depends on the seed and its place, whoever reads it."""
    pairs = [shards[int(pair)] for pair in batch.pairs]
    if augment:
        at = batch.cursor
        chances = (f"{seed} {at.epoch} {at.window} {at.batch} {pair}" for pair in batch.pairs)
        pairs = [augment(pair, random.Random(chance)) for pair, chance in zip(pairs, chances, strict=True)]
    return collate(pairs) if batch.counts else replace(collate(pairs), n_tokens=0)


def stream(
    shards: Shards, batch_tokens: int, seed: int, cursor: Cursor, augment: Augment | None = None
) -> Iterator[tuple[Batch, Cursor]]:
    """All batches of `planned`, read."""
    return ((read(shards, batch, seed, augment), at) for batch, at in planned(shards, batch_tokens, seed, cursor))


Place = tuple[int, ...]  # of a batch in its step, and of a process in its batch


def shared_out(step: Sequence[Planned], rank: int, n_ranks: int) -> list[tuple[Place, Planned]]:
    """What one of several processes does of the batches of a step: as many batches as every other one.

    There are whole ones while there is one for everybody, and of the rest every n-th pair: a batch is in the order of
    length, so that shares differ by less than a sentence. All of them together are the step, however many share it.
    """
    n_whole = len(step) // n_ranks * n_ranks
    whole = [((at,), step[at]) for at in range(rank, n_whole, n_ranks)]
    return whole + [((at, rank), _every_nth(step[at], rank, n_ranks)) for at in range(n_whole, len(step))]


def _every_nth(batch: Planned, rank: int, n_ranks: int) -> Planned:
    mine = batch.pairs[rank::n_ranks]
    return replace(batch, pairs=mine) if len(mine) else replace(batch, pairs=batch.pairs[:1], counts=False)


def in_order(shards: Shards, batch_tokens: int, most: int | None = None) -> Iterator[tuple[Pairs, Batch]]:
    """The first `most` pairs once, by length and not shuffled, for validation; with the indices of each batch."""
    lengths = shards.lengths()[:most]
    for pairs in cut_by_length(lengths, batch_tokens):
        yield pairs, collate([shards[int(pair)] for pair in pairs])
