"""Batches: padded tensors from pairs of token ids.

Shapes: B batch, S source length, T target length.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from multihead.data.augment import Augment
from multihead.data.bucketing import PairIndices, length_buckets
from multihead.data.epochs import BatchPlan, Cursor, batch_plans
from multihead.data.shards import Ids, Shards
from multihead.text.dependency_trees import NO_HEAD
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

Heads = NDArray[np.int32]  # of each source token in a dependency tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Padded token ids; masks are derived from them."""

    source: Tensor  # B S, with EOS at the end
    target_in: Tensor  # B T, with BOS at the start
    target_out: Tensor  # B T, with EOS at the end
    real: Tensor  # N: where target_out, row by row, is not padding; a mask instead would make the CPU wait for a GPU
    n_tokens: int  # of target_out without padding; 0 for a batch that adds no loss
    source_heads: Tensor | None = None  # B S, with dependency trees; NO_HEAD for EOS and padding

    def to(self, device: torch.device) -> "Batch":
        """Return the batch on a device; a copy from pinned memory takes place while the program goes on."""
        return self._map(lambda tensor: tensor.to(device, non_blocking=True))

    def pin_memory(self) -> "Batch":
        """Return the batch in pinned memory, from which a GPU copies without waiting for the CPU."""
        return self._map(Tensor.pin_memory)

    def _map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        return Batch(
            source=function(self.source),
            target_in=function(self.target_in),
            target_out=function(self.target_out),
            real=function(self.real),
            n_tokens=self.n_tokens,
            source_heads=None if self.source_heads is None else function(self.source_heads),
        )


def collate(pairs: list[tuple[Ids, Ids]], heads: Sequence[Heads | None] = ()) -> Batch:
    """Pad the sources and the targets to one length each, and add BOS and EOS.

    `heads` are those of each source; None or nothing without dependency trees.
    """
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
        real=torch.from_numpy(np.flatnonzero(target_out != PAD_ID)),
        n_tokens=sum(len(target) + 1 for _, target in pairs),
        source_heads=_pad_heads(heads, n_source),
    )


def _pad_heads(heads: Sequence[Heads | None], n_source: int) -> Tensor | None:
    rows = [row for row in heads if row is not None]
    if not rows:
        return None
    padded = np.full((len(rows), n_source), NO_HEAD, dtype=np.int64)
    for number, row in enumerate(rows):
        padded[number, : len(row)] = row
    return torch.from_numpy(padded)


def read_batch(shards: Shards, batch: BatchPlan, seed: int, augment: Augment | None = None) -> Batch:
    """Read and augment the pairs of a batch."""
    pairs = [shards[int(pair)] for pair in batch.pairs]
    if augment:
        generators = [_generator(seed, batch.cursor, int(index)) for index in batch.pairs]
        pairs = [augment(pair, generator) for pair, generator in zip(pairs, generators, strict=True)]
    collated = collate(pairs, [shards.source_heads(int(pair)) for pair in batch.pairs])
    return collated if batch.contributes_loss else replace(collated, n_tokens=0)


def _generator(seed: int, cursor: Cursor, pair: int) -> random.Random:
    """Return the generator for one pair in one batch, the same on any rank and after any interruption.

    The key is text, as it always was: another key would augment a run otherwise after it is resumed with a newer
    version. It costs 17 µs, an integer 14 µs; NumPy's Philox takes 26 µs, and its draws take 36 times as long.
    """
    return random.Random(f"{seed} {cursor.epoch} {cursor.window} {cursor.batch} {pair}")


def stream_batches(
    shards: Shards, batch_tokens: int, seed: int, cursor: Cursor, augment: Augment | None = None
) -> Iterator[tuple[Batch, Cursor]]:
    """Yield the batches that `batch_plans` plans, each with the cursor of the next one."""
    for batch, following in batch_plans(shards, batch_tokens, seed, cursor):
        yield read_batch(shards, batch, seed, augment), following


def validation_batches(
    shards: Shards, batch_tokens: int, n_pairs: int | None = None
) -> Iterator[tuple[PairIndices, Batch]]:
    """Yield batches of the first `n_pairs` pairs, each once and sorted by length, with the indices of the pairs."""
    lengths = shards.lengths()[:n_pairs]
    for pairs in length_buckets(lengths, batch_tokens):
        yield pairs, collate([shards[int(pair)] for pair in pairs], [shards.source_heads(int(pair)) for pair in pairs])
