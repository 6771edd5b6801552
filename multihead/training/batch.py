"""TODO."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from multihead.data.augment import Augment
from multihead.data.bucketing import PairIndices, length_buckets
from multihead.data.epochs import BatchPlan, Cursor, batch_plans
from multihead.data.shards import Ids, Shards
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID


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


def read_batch(shards: Shards, batch: BatchPlan, seed: int, augment: Augment | None = None) -> Batch:
    """The ids of a batch; what is done to a sentence depends on the seed and its place, whoever reads it."""
    pairs = [shards[int(pair)] for pair in batch.pairs]
    if augment:
        at = batch.cursor
        chances = (f"{seed} {at.epoch} {at.window} {at.batch} {pair}" for pair in batch.pairs)
        pairs = [augment(pair, random.Random(chance)) for pair, chance in zip(pairs, chances, strict=True)]
    return collate(pairs) if batch.contributes_loss else replace(collate(pairs), n_tokens=0)


def stream_batches(
    shards: Shards, batch_tokens: int, seed: int, cursor: Cursor, augment: Augment | None = None
) -> Iterator[tuple[Batch, Cursor]]:
    """All batches of `planned`, read."""
    return (
        (read_batch(shards, batch, seed, augment), at) for batch, at in batch_plans(shards, batch_tokens, seed, cursor)
    )


def validation_batches(
    shards: Shards, batch_tokens: int, most: int | None = None
) -> Iterator[tuple[PairIndices, Batch]]:
    """The first `most` pairs once, by length and not shuffled, for validation; with the indices of each batch."""
    lengths = shards.lengths()[:most]
    for pairs in length_buckets(lengths, batch_tokens):
        yield pairs, collate([shards[int(pair)] for pair in pairs])
