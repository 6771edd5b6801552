"""Rules that drop pairs that cannot be trained on or are not translations, and the report of what was dropped."""

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import NamedTuple, TypeVar

import numpy as np

from multihead.config.schema import DataConfig
from multihead.data.fingerprints import Fingerprints, fingerprint
from multihead.data.parallel_text import Pair, RawPair
from multihead.data.text_rules import Scripts, find_text_defect, usual_scripts
from multihead.text.encoding import normalize
from multihead.text.lines import MAX_LINE_BYTES

Item = TypeVar("Item")
CHUNK_PAIRS = 20_000  # pairs that are handled at a time
RATIO_SAMPLE = 20_000  # pairs from which the typical length ratio of a corpus is measured
MAX_EXAMPLES = 20  # of each reason, in dropped.tsv
EXAMPLE_CHARACTERS = 300
EXAMPLES = "dropped.tsv"
RATIO_SLACK = 3  # characters added to both sides before lengths are compared, because short sentences vary more


class DropReason(StrEnum):
    """Why a pair is dropped; the values are the keys of `cleaning` in corpus.json."""

    BAD_UTF8 = "bad_utf8"
    CONTROL = "control"
    EMPTY = "empty"
    TOO_LONG = "too_long"
    RATIO = "ratio"
    COPY = "copy"
    LETTERS = "letters"
    LONG_WORD = "long_word"
    MOJIBAKE = "mojibake"
    SCRIPT = "script"
    NUMBERS = "numbers"
    LANGUAGE = "language"
    DUPLICATE = "duplicate"


DROP_REASONS: dict[str, str] = {
    DropReason.BAD_UTF8: "not valid UTF-8",
    DropReason.CONTROL: "contains a NUL character",
    DropReason.EMPTY: "one side is empty",
    DropReason.TOO_LONG: "one side is too long",
    DropReason.RATIO: "one side is much longer than usual for the other",
    DropReason.COPY: "both sides are the same",
    DropReason.LETTERS: "one side has hardly any letters",
    DropReason.LONG_WORD: "contains a very long word",
    DropReason.MOJIBAKE: "contains wrongly decoded characters",
    DropReason.SCRIPT: "one side is in an unusual script",
    DropReason.NUMBERS: "a number is on one side only",
    DropReason.LANGUAGE: "one side is in the other language",
    DropReason.DUPLICATE: "duplicate of an earlier pair",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanedChunk:
    """The pairs of a chunk that pass every rule."""

    text: bytes  # source and target on alternate lines
    n_read: int
    dropped: Counter[str]
    fingerprints: Fingerprints  # of each pair
    source_fingerprints: Fingerprints
    examples: list["Example"] = field(default_factory=list)  # the first dropped pairs for each reason


class Example(NamedTuple):
    """A dropped pair, cut to a readable length."""

    reason: str
    source: str
    target: str

    def as_row(self) -> str:
        return "\t".join(" ".join(cell.split())[:EXAMPLE_CHARACTERS] for cell in self)


@dataclass(slots=True, kw_only=True)
class CleaningReport:
    """How many pairs were read, kept and dropped for each reason."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    examples: list[Example] = field(default_factory=list)

    def add(self, chunk: CleanedChunk) -> None:
        self.read += chunk.n_read
        self.kept += len(chunk.fingerprints)
        self.dropped += chunk.dropped
        add_examples(self.examples, chunk.examples)

    def drop(self, reason: DropReason, count: int, examples: Iterable[Example] = ()) -> None:
        """Count pairs as dropped that were counted as kept before."""
        self.kept -= count
        self.dropped[reason.value] += count
        add_examples(self.examples, examples)

    def examples_table(self) -> str:
        """Return the content of dropped.tsv."""
        order = list(DROP_REASONS)
        rows = sorted(self.examples, key=lambda example: order.index(example.reason))
        return "".join(f"{example.as_row()}\n" for example in [Example("reason", "source", "target"), *rows])

    def lines(self) -> list[str]:
        """Return the report as lines for the user."""
        share = f" ({self.kept / self.read:.1%})" if self.read else ""
        dropped = [
            f"dropped {self.dropped[reason]:,}: {description}"
            for reason, description in DROP_REASONS.items()
            if self.dropped[reason]
        ]
        return [f"read {self.read:,} pairs, kept {self.kept:,}{share}", *dropped]


def add_examples(examples: list[Example], more: Iterable[Example]) -> None:
    """Append examples of reasons of which there are not enough."""
    known = Counter(example.reason for example in examples)
    for example in more:
        if known[example.reason] < MAX_EXAMPLES:
            known[example.reason] += 1
            examples.append(example)


def clean_chunk(
    chunk: list[RawPair], config: DataConfig, ratio: float, scripts: Scripts = (frozenset(), frozenset())
) -> CleanedChunk:
    """Return the pairs of a chunk that pass every rule.

    `ratio` is the typical length ratio of the corpus, `scripts` are the usual ones of each side. Duplicates and pairs
    in the wrong language are found later, among all chunks.
    """
    pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    examples: list[Example] = []
    for raw in chunk:
        decoded = decode_pair(*raw, config.unicode)
        reason: DropReason | None
        if isinstance(decoded, DropReason):
            reason = decoded
        else:
            reason = _find_any_defect(_without_tree(decoded, config), config, ratio, scripts) if config.clean else None
            if not reason:
                pairs.append(decoded)
                continue
        dropped[reason.value] += 1
        if dropped[reason.value] <= MAX_EXAMPLES:
            texts = (side[: 4 * EXAMPLE_CHARACTERS].decode(errors="replace") for side in raw)
            examples.append(Example(reason.value, *texts))
    return CleanedChunk(
        text="".join(f"{source}\n{target}\n" for source, target in pairs).encode(),
        n_read=len(chunk),
        dropped=dropped,
        fingerprints=np.array([fingerprint("\n".join(pair)) for pair in pairs], dtype=np.uint64),
        source_fingerprints=np.array([fingerprint(source) for source, _ in pairs], dtype=np.uint64),
        examples=examples,
    )


def chunks(items: Iterable[Item]) -> Iterator[list[Item]]:
    """Yield lists of `CHUNK_PAIRS` items."""
    iterator = iter(items)
    while chunk := list(islice(iterator, CHUNK_PAIRS)):
        yield chunk


def decode_pair(source: bytes, target: bytes, form: str) -> Pair | DropReason:
    """Return the pair as normalized text without surrounding white space, or why it cannot be trained on."""
    if max(len(source), len(target)) > MAX_LINE_BYTES:
        return DropReason.TOO_LONG
    try:
        pair = normalize(source.decode(), form).strip(), normalize(target.decode(), form).strip()
    except UnicodeDecodeError:
        return DropReason.BAD_UTF8
    if "\0" in pair[0] or "\0" in pair[1]:
        return DropReason.CONTROL
    if max(len(side.encode()) for side in pair) > MAX_LINE_BYTES:  # normalization makes a few characters longer
        return DropReason.TOO_LONG
    return pair if all(pair) else DropReason.EMPTY


def decoded_pairs(pairs: Iterable[RawPair], form: str) -> Iterator[Pair]:
    """Yield the pairs that can be decoded."""
    for raw in pairs:
        decoded = decode_pair(*raw, form)
        if not isinstance(decoded, DropReason):
            yield decoded


def typical_ratio(sample: Iterable[RawPair], config: DataConfig) -> float:
    """Return the median of target length / source length in characters over a sample of a corpus.

    Scripts differ: a Chinese sentence has a third of the characters of an English one, and a Burmese one has more.
    """
    decoded = decoded_pairs(sample, config.unicode)
    pairs = (_without_tree(pair, config) for pair in decoded if pair[0] != pair[1])
    return statistics.median([len(target) / max(1, len(source)) for source, target in pairs] or [1.0])


def _without_tree(pair: Pair, config: DataConfig) -> Pair:
    return (pair[0].partition("\t")[0], pair[1]) if config.tree else pair


def scripts_of(sample: Iterable[RawPair], config: DataConfig) -> Scripts:
    """Return the usual scripts of each side in a sample of a corpus."""
    return usual_scripts(_without_tree(pair, config) for pair in decoded_pairs(sample, config.unicode))


def _find_any_defect(pair: Pair, config: DataConfig, ratio: float, scripts: Scripts) -> DropReason | None:
    if found := find_defect(pair, config.max_ratio, ratio):
        return found
    reason = find_text_defect(pair, config, scripts)
    return DropReason(reason) if reason else None


def find_defect(pair: Pair, max_ratio: float, ratio: float) -> DropReason | None:
    """Return why a pair is probably not a translation, or None; `ratio` is the typical length ratio."""
    scale = math.sqrt(ratio)  # half of the correction on each side, so that swapping the sides changes nothing
    lengths = len(pair[0]) * scale, len(pair[1]) / scale
    short, long = sorted(length + RATIO_SLACK for length in lengths)
    if long > max_ratio * short:
        return DropReason.RATIO
    return DropReason.COPY if pair[0] == pair[1] else None
