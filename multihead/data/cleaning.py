"""TODO."""

import hashlib
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from multihead.config.schema import DataConfig
from multihead.data.parallel_text import Pair, RawPair
from multihead.text.encoding import normalize
from multihead.text.lines import MAX_LINE_BYTES

Item = TypeVar("Item")
CHUNK = 20_000  # pairs handled at a time
RATIO_SAMPLE = 20_000  # pairs from which a corpus's typical ratio of lengths is taken
RATIO_SLACK = 3  # characters added to both sides before their lengths are compared: short sentences vary more

DROP_REASONS = {
    "bad_utf8": "not valid UTF-8",
    "control": "contains a NUL character",
    "empty": "one side is empty",
    "too_long": "one side is too long",
    "ratio": "one side is much longer than usual for the other",
    "copy": "both sides are the same",
    "duplicate": "the pair came before",
}


# Cleaning


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedChunk:
    """What the rules leave of a chunk."""

    text: bytes  # source and target on alternate lines
    n_read: int
    dropped: Counter[str]
    fingerprints: NDArray[np.uint64]  # of each pair
    source_fingerprints: NDArray[np.uint64]


@dataclass(slots=True, kw_only=True)
class CleaningReport:
    """What cleaning read, kept and dropped, rule by rule."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, kept: CleanedChunk) -> None:
        self.read += kept.n_read
        self.kept += len(kept.fingerprints)
        self.dropped += kept.dropped

    def drop(self, rule: str, count: int) -> None:
        """So many of those that were kept break a rule after all."""
        self.kept -= count
        self.dropped[rule] += count

    def lines(self) -> list[str]:
        """The report in words."""
        share = f" ({self.kept / self.read:.1%})" if self.read else ""
        reasons = [f"dropped {self.dropped[rule]:,}: {why}" for rule, why in DROP_REASONS.items() if self.dropped[rule]]
        return [f"read {self.read:,} pairs, kept {self.kept:,}{share}", *reasons]


def clean_chunk(chunk: list[RawPair], config: DataConfig, typical: float) -> CleanedChunk:
    """Return the pairs of a chunk that pass every rule; `typical` is the corpus's typical ratio.

    Duplicates are found later, among the fingerprints of all chunks.
    """
    pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    for raw in chunk:
        pair, rule = decode_pair(*raw, config.unicode)
        if not rule and config.clean:
            rule = find_defect(_without_tree(pair, config), config.max_ratio, typical)
        if rule:
            dropped[rule] += 1
        else:
            pairs.append(pair)
    return CleanedChunk(
        text="".join(f"{source}\n{target}\n" for source, target in pairs).encode(),
        n_read=len(chunk),
        dropped=dropped,
        fingerprints=np.array([fingerprint("\n".join(pair)) for pair in pairs], dtype=np.uint64),
        source_fingerprints=np.array([fingerprint(source) for source, _ in pairs], dtype=np.uint64),
    )


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK)):
        yield chunk


def decode_pair(source: bytes, target: bytes, form: str) -> tuple[Pair, str]:
    """Return the pair as normalized text, and the rule it breaks if it cannot be trained on ("" if none)."""
    nothing = ("", "")
    if max(len(source), len(target)) > MAX_LINE_BYTES:
        return nothing, "too_long"
    try:
        pair = normalize(source.decode(), form).strip(), normalize(target.decode(), form).strip()
    except UnicodeDecodeError:
        return nothing, "bad_utf8"
    if "\0" in pair[0] or "\0" in pair[1]:
        return nothing, "control"
    if max(len(side.encode()) for side in pair) > MAX_LINE_BYTES:  # a few characters grow by normalization
        return nothing, "too_long"
    return pair, "" if all(pair) else "empty"


def typical_ratio(sample: Iterable[RawPair], config: DataConfig) -> float:
    """Return the median of target length / source length in characters over a sample of a corpus.

    Scripts differ: a Chinese sentence has a third of the characters of an English one, a Burmese one more than it.
    """
    decoded = (decode_pair(*raw, config.unicode) for raw in sample)
    pairs = (_without_tree(pair, config) for pair, rule in decoded if not rule and pair[0] != pair[1])
    return statistics.median([len(target) / max(1, len(source)) for source, target in pairs] or [1.0])


def _without_tree(pair: Pair, config: DataConfig) -> Pair:
    return (pair[0].partition("\t")[0], pair[1]) if config.tree else pair


def find_defect(pair: Pair, max_ratio: float, typical: float) -> str:
    """Return the rule by which a readable pair is probably no translation ("" if it may be one)."""
    scale = math.sqrt(typical)  # half of the difference to each side, so that the direction does not matter
    lengths = len(pair[0]) * scale, len(pair[1]) / scale
    short, long = sorted(length + RATIO_SLACK for length in lengths)
    if long > max_ratio * short:
        return "ratio"
    return "copy" if pair[0] == pair[1] else ""


def fingerprint(text: str) -> int:
    """64 bits that stand for a text: among 36 million, two are alike by chance in one corpus of 30,000."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
