"""TODO."""

import hashlib
import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multihead.concurrency import map_in_processes
from multihead.config.fit import vocab_size_for
from multihead.config.schema import DataConfig
from multihead.console import Log
from multihead.data.cleaning import (
    RATIO_SAMPLE,
    CleaningReport,
    chunks,
    clean_chunk,
    decode_pair,
    fingerprint,
    typical_ratio,
)
from multihead.data.deduplicate import DuplicateFinder
from multihead.data.parallel_text import Pair, ParallelText, RawPair
from multihead.data.shards import CorpusPart, CorpusSummary, ShardWriter
from multihead.data.spool import Spool, SpoolSegment
from multihead.errors import UserError
from multihead.storage.files import atomic_directory
from multihead.text.dependency_trees import encode_tree, strip_tree
from multihead.text.tokenizer import PLACE, SubwordTokenizer, check_trainable

LEARNING_SAMPLE = 1_000_000  # pairs that the tokenizer is learned from, spread evenly over the corpus
MAX_HELD_OUT_PAIRS = 1000  # most pairs taken for validation when the user gives none
HELD_OUT_FRACTION = 20  # and at most one pair in so many
# Fields of DataConfig that leave no trace in a corpus.
TRAINING_ONLY_FIELDS = {"license", "bpe_dropout", "casing_noise", "batch_tokens"}


def prepare(
    text: ParallelText,
    folder: Path,
    config: DataConfig,
    vocabulary: int | SubwordTokenizer | None = None,
    log: Log = lambda line: None,
) -> CorpusSummary:
    """Clean `text`, learn the tokenizer and write `folder`, which appears whole or not at all.

    `vocabulary` is how many pieces to learn, or a tokenizer that knows them already.
    A process for each core works on it once the text is large, and no step holds more than some millions of pairs.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} is there already and is not empty: choose another folder, or remove it")
    if not isinstance(vocabulary, SubwordTokenizer):
        check_trainable(config.tokenizer)
    report = CleaningReport()
    with atomic_directory(folder) as aside:
        with Spool(aside / "clean") as spool:
            held_out = _clean_into(spool, text, config, report)
            tokenizer = _tokenizer(vocabulary, spool, report.kept, config)
            (aside / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
            encoder = _Encoder(folder=aside, config=config, held_out=held_out)
            parts = _encode(encoder, spool, report, [weight for _, weight in text.corpora()])
        n_valid = encoder.add_valid(text.valid or (), tokenizer, len(spool.segments))
        summary = CorpusSummary(
            source_lang=config.source_lang,
            target_lang=config.target_lang,
            tokenizer=config.tokenizer,
            vocab_size=tokenizer.vocab_size,
            max_length=config.max_length,
            train_pairs=sum(part.pairs for part in parts),
            valid_pairs=n_valid + report.kept - sum(part.pairs for part in parts),
            cleaning={"read": report.read, "kept": report.kept, **report.dropped},
            file_sizes=text.sizes,
            description=text.description,
            parts=parts,
            file_sums=text.sums,
            settings=preparation_settings(config),
            asked_vocabulary=requested_vocabulary(vocabulary),
        )
        _refuse_empty(summary)
        (aside / "corpus.json").write_text(json.dumps(asdict(summary), indent=2) + "\n", encoding="utf-8")
    for line in [*report.lines(), *summary.lines()]:
        log(line)
    return summary


def preparation_settings(config: DataConfig) -> dict[str, object]:
    """Return the fields that decide what is in a prepared corpus."""
    return {name: value for name, value in asdict(config).items() if name not in TRAINING_ONLY_FIELDS}


def requested_vocabulary(vocabulary: int | SubwordTokenizer | None) -> str:
    """Describe the `vocabulary` of `prepare`: a size, the sum of a tokenizer, or a size that fits the text."""
    if isinstance(vocabulary, SubwordTokenizer):
        return hashlib.sha256(vocabulary.to_json().encode()).hexdigest()
    return str(vocabulary) if vocabulary else "automatic"


def _clean_into(spool: Spool, text: ParallelText, config: DataConfig, report: CleaningReport) -> set[int]:
    """Write what passes the rules; returns the fingerprints of the sources to hold out for validation."""
    smallest = _SmallestFingerprints(MAX_HELD_OUT_PAIRS if text.valid is None else 0)
    duplicates = DuplicateFinder(spool.folder)
    for number, (pairs, _) in enumerate(text.corpora()):
        typical, pairs = _with_typical_ratio(pairs, config)
        for kept in map_in_processes(partial(clean_chunk, config=config, typical=typical), chunks(pairs), min_items=5):
            report.add(kept)
            spool.write(kept.text, len(kept.fingerprints), number)
            smallest.add(kept.source_fingerprints)
            if config.clean:
                duplicates.add(kept.fingerprints)
    report.drop("duplicate", duplicates.write(spool.repeated))
    if not report.kept:
        raise UserError("; ".join(["nothing is left to train on", *report.lines()]))
    return smallest.at_most(max(1, report.kept // HELD_OUT_FRACTION))


def _with_typical_ratio(pairs: Iterable[RawPair], config: DataConfig) -> tuple[float, Iterator[RawPair]]:
    """Return the typical ratio of a corpus, and all of its pairs; they may come from a pipe and be read only once."""
    rest = iter(pairs)
    sample = list(islice(rest, RATIO_SAMPLE))
    return typical_ratio(sample, config), chain(sample, rest)


def _refuse_empty(summary: CorpusSummary) -> None:
    for n_pairs, purpose in ((summary.train_pairs, "train on"), (summary.valid_pairs, "validate with")):
        if not n_pairs:
            raise UserError(f"no pair is left to {purpose}: the text is too small, or every line is too long")


class _SmallestFingerprints:
    """The sources with the smallest fingerprints: a fair sample that depends on the text alone, not on its order.

    Choosing sources, not pairs, keeps all translations of a sentence on one side of the split.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._smallest = np.zeros(0, dtype=np.uint64)  # rising

    def add(self, sources: NDArray[np.uint64]) -> None:
        if self._most and len(self._smallest) == self._most:
            sources = sources[sources < self._smallest[-1]]
        self._smallest = np.union1d(self._smallest, sources)[: self._most]

    def at_most(self, n_sources: int) -> set[int]:
        return set(self._smallest[:n_sources].tolist())


def _tokenizer(
    vocabulary: int | SubwordTokenizer | None, spool: Spool, n_pairs: int, config: DataConfig
) -> SubwordTokenizer:
    if isinstance(vocabulary, SubwordTokenizer):
        return vocabulary
    from_each = -(-LEARNING_SAMPLE // len(spool.segments))
    sides = (side for segment in spool.segments for pair in islice(spool.read(segment), from_each) for side in pair)
    texts = map(strip_tree, sides) if config.tree else sides
    tokenizer = SubwordTokenizer.learn(texts, vocabulary or vocab_size_for(n_pairs), config.tokenizer)
    if vocabulary and tokenizer.vocab_size < vocabulary:
        raise UserError(
            f"this corpus gives a vocabulary of {tokenizer.vocab_size:,} pieces, not {vocabulary:,}: "
            f"ask for {tokenizer.vocab_size} or fewer, or name no size and it will be chosen"
        )
    return tokenizer


def _encode(encoder: "_Encoder", spool: Spool, report: CleaningReport, weights: list[float]) -> list[CorpusPart]:
    """Write the shards of train and of what is held out; what the corpora have come to."""
    parts = [CorpusPart(pairs=0, target_tokens=0, weight=weight) for weight in weights]
    all_encoded = map_in_processes(partial(encoder.encode, spool), spool.segments, min_items=2)
    for segment, encoded in zip(spool.segments, all_encoded, strict=True):
        part = parts[segment.corpus]
        parts[segment.corpus] = replace(
            part, pairs=part.pairs + encoded.n_pairs, target_tokens=part.target_tokens + encoded.target_tokens
        )
        report.drop("too_long", encoded.too_long)
    return parts


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoded:
    """What has become of a segment."""

    n_pairs: int
    target_tokens: int
    too_long: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoder:
    """Encodes pairs into the shards of train and valid; what has a side of over `max_length` tokens is left out."""

    folder: Path
    config: DataConfig
    held_out: set[int]

    def encode(self, spool: Spool, segment: SpoolSegment) -> _Encoded:
        """Training pairs, but for those whose source is held out: a shard for a segment."""
        tokenizer = SubwordTokenizer.load(self.folder / "tokenizer.json")
        too_long = 0
        with (
            self._writer("train", tokenizer, segment.number) as train,
            self._writer("valid", tokenizer, segment.number) as valid,
        ):
            for source, ids in _ids(spool.read(segment), tokenizer, self.config.tree):
                if max(map(len, ids)) > self.config.max_length:
                    too_long += 1
                else:
                    (valid if fingerprint(source) in self.held_out else train).add(*ids)
        return _Encoded(n_pairs=train.n_pairs, target_tokens=train.target_tokens, too_long=too_long)

    def add_valid(self, pairs: Iterable[RawPair], tokenizer: SubwordTokenizer, number: int) -> int:
        """Write validation pairs, normalized but not cleaned, and return how many there are."""
        decoded = (decode_pair(*raw, self.config.unicode) for raw in pairs)
        readable = (pair for pair, broken in decoded if not broken)
        with self._writer("valid", tokenizer, number) as valid:
            for _, ids in _ids(readable, tokenizer, self.config.tree):
                if max(map(len, ids)) <= self.config.max_length:
                    valid.add(*ids)
        return valid.n_pairs

    def _writer(self, split: str, tokenizer: SubwordTokenizer, number: int) -> "ShardWriter":
        largest = PLACE * (self.config.max_length + 1) if self.config.tree else tokenizer.vocab_size
        return ShardWriter(self.folder, split, largest, number)


def _ids(
    pairs: Iterable[Pair], tokenizer: SubwordTokenizer, has_trees: bool
) -> Iterator[tuple[str, tuple[list[int], list[int]]]]:
    """The source of each pair, and the ids of both sides."""
    encode = partial(encode_tree, tokenizer) if has_trees else tokenizer.encode_batch
    for chunk in chunks(pairs):
        sources, targets = zip(*chunk, strict=True)
        yield from zip(sources, zip(encode(sources), tokenizer.encode_batch(targets), strict=True), strict=True)
