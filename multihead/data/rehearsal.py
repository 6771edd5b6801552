"""Rehearsal: pairs of a base model's own text among the new ones, so that fine-tuning does not make it forget them.

The new corpus contains a sample of the old one, so that it does not depend on it later. Few new pairs come several
times in an epoch, next to a sample that is large enough to stand for the old text.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from multihead.data.shards import CorpusPart, Ids, Shards, ShardWriter, corpus_identity, read_summary

MIN_SAMPLE = 10_000  # old pairs, if there are so many
MIN_VALID = 200  # old validation pairs, likewise

Pairs = list[tuple[list[int], list[int], list[int] | None]]  # ids of both sides, and heads of the source


@dataclass(frozen=True, slots=True)
class Rehearsal:
    """The prepared corpus of a base model, and how much of it is rehearsed."""

    folder: Path
    share: float  # pairs for each new pair

    @property
    def identity(self) -> str:
        """A text that changes with the old corpus and the share."""
        return f"{self.share:g} of {corpus_identity(self.folder)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedParts:
    """The corpora of a folder after old pairs were added."""

    parts: list[CorpusPart]
    n_valid: int


def add_rehearsal(rehearsal: Rehearsal, folder: Path, parts: Sequence[CorpusPart], number: int) -> RehearsedParts:
    """Add old pairs to the shards of a folder that is being written; `number` is that of the new shard."""
    summary = read_summary(rehearsal.folder)
    new_valid = _read(Shards(folder, "valid"))
    n_valid = _add_valid(rehearsal.folder, folder, new_valid, summary.vocab_size)
    old = Shards(rehearsal.folder, "train")
    n_wanted = rehearsal.share * sum(part.weight * part.pairs for part in parts)
    with ShardWriter(folder, "train", summary.vocab_size, number) as writer:
        held_out = {tuple(source) for source, *_ in new_valid}
        for pair in _spread(len(old), max(MIN_SAMPLE, math.ceil(n_wanted))):
            source, target, heads = _pair(old, pair)
            if tuple(source) not in held_out:
                writer.add(source, target, heads)
    repeats = max(1.0, writer.n_pairs / n_wanted)  # of the new pairs
    weight = max(1.0, n_wanted / max(1, writer.n_pairs))
    sample = CorpusPart(pairs=writer.n_pairs, target_tokens=writer.target_tokens, weight=weight)
    return RehearsedParts(
        parts=[*(replace(part, weight=part.weight * repeats) for part in parts), sample],
        n_valid=n_valid,
    )


def _add_valid(old_folder: Path, folder: Path, new: Pairs, vocab_size: int) -> int:
    """Write the validation pairs again, mixed with old ones, and return how many there are."""
    old = Shards(old_folder, "valid")
    sample = [_pair(old, pair) for pair in _spread(len(old), max(MIN_VALID, len(new)))]
    learned = _occurring({tuple(source) for source, *_ in sample}, Shards(folder, "train"))
    sample = [pair for pair in sample if tuple(pair[0]) not in learned]
    # Evenly, since BLEU during training is measured on the first pairs.
    places = [(n + 0.5) / len(pairs) for pairs in (new, sample) for n in range(len(pairs))]
    mixed = [pair for _, pair in sorted(zip(places, [*new, *sample], strict=True), key=lambda item: item[0])]
    for file in folder.glob("valid-*.npy"):
        file.unlink()
    with ShardWriter(folder, "valid", vocab_size) as writer:
        for source, target, heads in mixed:
            writer.add(source, target, heads)
    return len(mixed)


def _occurring(sources: set[tuple[int, ...]], shards: Shards) -> set[tuple[int, ...]]:
    """Return the sources that are also those of pairs."""
    found = (tuple(shards[pair][0].tolist()) for pair in range(len(shards)))
    return sources.intersection(found)


def _spread(n_items: int, at_most: int) -> Iterator[int]:
    """Yield up to so many numbers below `n_items`, evenly spread."""
    n_taken = min(n_items, at_most)
    return (n * n_items // n_taken for n in range(n_taken))


def _read(shards: Shards) -> Pairs:
    return [_pair(shards, pair) for pair in range(len(shards))]


def _pair(shards: Shards, pair: int) -> tuple[list[int], list[int], list[int] | None]:
    heads, (source, target) = shards.source_heads(pair), shards[pair]
    return _listed(source), _listed(target), None if heads is None else _listed(heads)


def _listed(ids: "Ids | np.ndarray[tuple[int, ...], np.dtype[np.int32]]") -> list[int]:
    numbers: list[int] = ids.tolist()
    return numbers
