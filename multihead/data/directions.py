"""Corpora of several directions: which way their pairs are trained, how often, and which are validated.

The pairs of a corpus are cleaned once. Each way of training them has shards of its own, with the piece of the target
language at the start of every source.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import numpy as np

from multihead.config.directions import Languages, direction_of
from multihead.data.shards import CorpusPart, Shards, ShardWriter, labels_file
from multihead.errors import UserError
from multihead.text.language import find_code
from multihead.text.target_languages import target_ids, target_piece
from multihead.text.tokenizer import SubwordTokenizer

Side = TypeVar("Side", str, bytes)


@dataclass(frozen=True, slots=True)
class Way:
    """A way of training the pairs of a corpus; without a direction, as in a model of one pair of languages."""

    corpus: int
    direction: str = ""
    target: str = ""  # its language
    is_reversed: bool = False


def ways_of(n_corpora: int, languages: Sequence[Languages], both_ways: bool, one_way: Container[int] = ()) -> list[Way]:
    """Return the ways of training all corpora, whose languages are given for a model of several directions.

    Corpora in `one_way`, such as back-translated text, are not turned around.
    """
    if not languages:
        return [Way(corpus) for corpus in range(n_corpora)]
    forward = [Way(n, direction_of(pair), pair[1]) for n, pair in enumerate(languages)]
    if not both_ways:
        return forward
    backward = [Way(n, direction_of(pair[::-1]), pair[0], True) for n, pair in enumerate(languages)]
    return [*forward, *(way for way in backward if way.corpus not in one_way)]


def prefix_of(way: Way, tokenizer: SubwordTokenizer) -> list[int]:
    """Return the ids at the start of each source."""
    if not way.direction:
        return []
    ids = target_ids(tokenizer)
    if not (code := find_code(way.target, ids)):
        raise UserError(f"the vocabulary has no piece {target_piece(way.target)} for the direction {way.direction}")
    return [ids[code]]


def balanced(parts: Sequence[CorpusPart], balance: float) -> list[CorpusPart]:
    """Return parts with weights that sample a direction of n pairs in proportion to n^(1/balance).

    The pairs of the largest direction come once in an epoch, those of smaller ones more often.
    """
    sizes: dict[str, float] = {}
    for part in parts:
        sizes[part.direction] = sizes.get(part.direction, 0.0) + part.weight * part.pairs
    largest = max(sizes.values(), default=1.0)
    return [
        replace(part, weight=part.weight * (largest / max(1.0, sizes[part.direction])) ** (1 - 1 / balance))
        for part in parts
    ]


def mix_directions(folder: Path, split: str, labels: Sequence[int], vocab_size: int) -> None:
    """Write the pairs of a split again, each direction spread evenly, with the number of the direction of each pair.

    BLEU during training is measured on the first pairs.
    """
    shards = Shards(folder, split)
    pairs = [tuple(side.tolist() for side in shards[pair]) for pair in range(len(shards))]
    for file in folder.glob(f"{split}-*.npy"):
        file.unlink()
    order = _spread(labels)
    with ShardWriter(folder, split, vocab_size) as writer:
        for pair in order:
            writer.add(*pairs[pair])
    np.save(labels_file(folder, split), np.array([labels[pair] for pair in order], dtype=np.int32))


def _spread(labels: Sequence[int]) -> list[int]:
    """Return the positions of all pairs in an order in which the pairs with a label are evenly spread."""
    counts = np.bincount(labels, minlength=1)
    seen = np.zeros(len(counts))
    places = []
    for position, label in enumerate(labels):
        places.append(((seen[label] + 0.5) / counts[label], label, position))
        seen[label] += 1
    return [position for *_, position in sorted(places)]


def turned(pairs: Iterable[tuple[Side, Side]], is_reversed: bool) -> Iterator[tuple[Side, Side]]:
    """Yield pairs, the target first if they are to be reversed."""
    return ((target, source) if is_reversed else (source, target) for source, target in pairs)
