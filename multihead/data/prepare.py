"""Raw parallel text to a prepared corpus: the pipeline of `multihead prepare`.

    first pass     read → clean → store               chunks of pairs, into the spool
    between        flag duplicates, learn the tokenizer
    second pass    read the spool → encode → write    segments of pairs, into shards

Each stage is a generator that draws on the one before it. Once the text is large, the pairs of a stage are processed by
one process per core; no stage holds more than a few million pairs.
"""

import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import NamedTuple

from multihead.concurrency import map_in_processes
from multihead.config.directions import Languages, direction_of
from multihead.config.fit import vocab_size_for
from multihead.config.schema import DataConfig
from multihead.console import Log, Progress
from multihead.data.cleaning import (
    EXAMPLES,
    RATIO_SAMPLE,
    CleanedChunk,
    CleaningReport,
    DropReason,
    chunks,
    clean_chunk,
    decoded_pairs,
    scripts_of,
    typical_ratio,
)
from multihead.data.directions import Way, balanced, mix_directions, prefix_of, turned, ways_of
from multihead.data.fingerprints import DuplicateFinder, HeldOutSources, fingerprint
from multihead.data.language_rule import flag_wrong_languages, learn_detector, learn_detector_of_several
from multihead.data.marks import MarkedCorpus, limit_synthetic, mark_ids, mark_pieces, take_off_marks
from multihead.data.parallel_text import Pair, ParallelText, RawPair
from multihead.data.rehearsal import Rehearsal, add_rehearsal
from multihead.data.shards import CorpusPart, CorpusSummary, ShardWriter, record_checksums
from multihead.data.spool import Spool, SpoolSegment
from multihead.errors import UserError
from multihead.storage.files import atomic_directory, check_writable
from multihead.storage.language_detector import save_detector
from multihead.text.dependency_trees import encode_with_heads, strip_tree
from multihead.text.target_languages import target_pieces
from multihead.text.tokenizer import SubwordTokenizer, check_trainable

LEARNING_SAMPLE = 1_000_000  # pairs that the tokenizer is learned from, spread evenly over the corpus
MAX_HELD_OUT_SOURCES = 1000  # sources held out for validation if the user gives no validation text ...
HELD_OUT_FRACTION = 20  # ... and at most one pair in 20
MIN_HELD_OUT_SOURCES = 200  # of each pair of languages, if there are several
# Fields of DataConfig that leave no trace in a corpus, or one of their own (`rehearsal`).
DIRECTION_FIELDS = {"directions", "balance"}  # of a model of several directions
TRAINING_ONLY_FIELDS = {"license", "task", "bpe_dropout", "casing_noise", "batch_tokens", "rehearse"}


def prepare(  # noqa: PLR0913 - what a corpus is made of
    text: ParallelText,
    folder: Path,
    config: DataConfig,
    vocabulary: int | SubwordTokenizer | None = None,
    log: Log = lambda line: None,
    rehearsal: Rehearsal | None = None,
) -> CorpusSummary:
    """Clean `text`, learn the tokenizer and write `folder`, which appears complete or not at all.

    `vocabulary` is the number of pieces to learn, a tokenizer to use, or None for a size that fits the text.
    `rehearsal` is a corpus with the same vocabulary, of which pairs are added.
    """
    check_writable(folder, None, "empty")
    corpora = take_off_marks(text.corpora())
    marks = {number: corpus.mark for number, corpus in enumerate(corpora) if corpus.mark}
    if not isinstance(vocabulary, SubwordTokenizer):
        check_trainable(config.tokenizer)
    with atomic_directory(folder) as temporary:
        with Spool(temporary / "clean") as spool:
            with Progress(log, "reading and cleaning") as progress:
                groups = _held_out_groups(text, set(range(len(corpora))) - marks.keys())
                report, held_out = _store(_clean(corpora, config), spool, config, groups, progress)
            _flag_languages(spool, temporary, config, text.languages, report, log)
            with Progress(log, "learning the vocabulary"):
                n_characters = _characters(spool)
                tokenizer = _tokenizer(vocabulary, spool, n_characters, config, mark_pieces(marks.values()))
            for name, content in tokenizer.files().items():
                (temporary / name).write_text(content, encoding="utf-8")
            ways = ways_of(len(corpora), text.languages, text.both_ways, marks)
            encoder = _Encoder(folder=temporary, config=config, spool=spool, held_out=held_out, ways=ways, marks=marks)
            with Progress(log, f"encoding {report.kept:,} pairs"):
                encoded = list(chain.from_iterable(map_in_processes(encoder.encode_segment, spool.segments)))
        n_valid = encoder.encode_valid(text.valid or ()) + sum(segment.n_valid for segment in encoded)
        report.drop(DropReason.TOO_LONG, sum(one.n_too_long for one in encoded if not one.way.is_reversed))
        parts = [_part(way, corpora[way.corpus].weight, encoded) for way in ways]
        weights = [corpus.weight for corpus in corpora] if rehearsal or marks or text.languages else []
        if text.languages:
            n_valid = encoder.mix_valid(text, encoded)
            parts = parts if text.is_weighted else balanced(parts, config.balance)
        parts = limit_synthetic(parts, marks, config.synthetic_ratio)  # marked corpora have one way: theirs
        if rehearsal and sum(part.pairs for part in parts):
            mixed = add_rehearsal(rehearsal, temporary, parts, number=len(spool.segments))
            parts, n_valid = mixed.parts, mixed.n_valid
        summary = CorpusSummary(
            source_lang=config.source_lang,
            target_lang=config.target_lang,
            tokenizer=config.tokenizer,
            vocab_size=tokenizer.vocab_size,
            max_length=config.max_length,
            train_pairs=sum(part.pairs for part in parts),
            valid_pairs=n_valid,
            cleaning={"read": report.read, "kept": report.kept, **report.dropped},
            file_sizes=text.sizes,
            description=text.description,
            parts=parts,
            file_sums=text.sums,
            settings=preparation_settings(config),
            asked_vocabulary=requested_vocabulary(vocabulary),
            asked_weights=weights,
            rehearsal=rehearsal.identity if rehearsal else "",
            characters=n_characters,
        )
        _check_not_empty(summary)
        (temporary / EXAMPLES).write_text(report.examples_table(), encoding="utf-8")
        (temporary / "corpus.json").write_text(summary.to_json(), encoding="utf-8")
        record_checksums(temporary)
    for line in [*report.lines(), *summary.lines()]:
        log(line)
    return summary


def preparation_settings(config: DataConfig) -> dict[str, object]:
    """Return the settings that decide what a prepared corpus contains."""
    settings = {name: value for name, value in asdict(config).items() if name not in TRAINING_ONLY_FIELDS}
    if not config.directions:
        return {name: value for name, value in settings.items() if name not in DIRECTION_FIELDS}
    return settings | {"directions": list(config.directions)}


def requested_vocabulary(vocabulary: int | SubwordTokenizer | None) -> str:
    """Describe the `vocabulary` of `prepare`: a size, the checksum of a tokenizer, or "automatic"."""
    if isinstance(vocabulary, SubwordTokenizer):
        return hashlib.sha256("".join(vocabulary.files().values()).encode()).hexdigest()
    return str(vocabulary) if vocabulary else "automatic"


def _part(way: Way, weight: float, encoded: list["_EncodedSegment"]) -> CorpusPart:
    segments = [segment for segment in encoded if segment.way == way]
    return CorpusPart(
        pairs=sum(segment.n_train for segment in segments),
        target_tokens=sum(segment.target_tokens for segment in segments),
        weight=weight,
        direction=way.direction,
    )


def _check_not_empty(summary: CorpusSummary) -> None:
    for n_pairs, split in ((summary.train_pairs, "training"), (summary.valid_pairs, "validation")):
        if not n_pairs:
            raise UserError(
                f"no {split} pairs left after cleaning: the corpus is too small, or all of its lines are too long"
            )


# First pass


def _clean(corpora: Iterable[MarkedCorpus], config: DataConfig) -> Iterator[tuple[int, CleanedChunk]]:
    """Yield the clean pairs of every corpus in chunks, each with the number of its corpus."""
    for number, corpus in enumerate(corpora):
        rest = iter(corpus.pairs)  # may come from a pipe and can be read only once
        sample = list(islice(rest, RATIO_SAMPLE))
        clean = partial(
            clean_chunk, config=config, ratio=typical_ratio(sample, config), scripts=scripts_of(sample, config)
        )
        for chunk in map_in_processes(clean, chunks(chain(sample, rest)), min_items=5):
            yield number, chunk


def _held_out_groups(text: ParallelText, corpora: Iterable[int]) -> dict[int, str]:
    """Return which of some corpora sources are held out of, and which of them count together; none if there is
    validation text."""
    if text.has_valid:
        return {}
    return {corpus: direction_of(text.languages[corpus]) if text.languages else "" for corpus in corpora}


def _store(
    cleaned: Iterable[tuple[int, CleanedChunk]],
    spool: Spool,
    config: DataConfig,
    groups: Mapping[int, str],
    progress: Progress,
) -> tuple[CleaningReport, frozenset[int]]:
    """Write clean pairs to the spool and flag duplicates; return the report and the sources to hold out.

    `groups` has the corpora of which sources may be held out, with the group that each of them counts to.
    """
    report, duplicates = CleaningReport(), DuplicateFinder(spool.folder)
    names = set(groups.values())
    most = max(MIN_HELD_OUT_SOURCES, MAX_HELD_OUT_SOURCES // len(names)) if names else 0
    held_out = {name: HeldOutSources(most) for name in names}
    n_stored: Counter[str] = Counter()
    for corpus, chunk in cleaned:
        report.add(chunk)
        progress.done = report.read
        spool.write(chunk.text, len(chunk.fingerprints), corpus)
        if corpus in groups:
            held_out[groups[corpus]].add(chunk.source_fingerprints)
            n_stored[groups[corpus]] += len(chunk.source_fingerprints)
        if config.clean:
            duplicates.add(chunk.fingerprints)
    report.drop(DropReason.DUPLICATE, duplicates.write_flags(spool.flag_file))
    if not report.kept:
        raise UserError("; ".join(["no training pairs left after cleaning", *report.lines()]))
    share = min(report.kept, n_stored.total()) / max(1, n_stored.total())
    chosen = (held_out[name].at_most(max(1, int(n * share) // HELD_OUT_FRACTION)) for name, n in n_stored.items())
    return report, frozenset(chain.from_iterable(chosen))


# Between the passes


def _flag_languages(  # noqa: PLR0913 - what a corpus is made of
    spool: Spool, folder: Path, config: DataConfig, languages: Sequence[Languages], report: CleaningReport, log: Log
) -> None:
    """Learn the language detector of the corpus, if its languages differ, and drop pairs in the wrong language."""
    with Progress(log, "learning to tell the languages apart"):
        detector = learn_detector_of_several(spool, languages) if languages else learn_detector(spool, config)
    if not detector:
        return
    save_detector(detector, folder)
    if config.clean and config.drop_language:
        with Progress(log, "checking the languages"):
            report.drop(DropReason.LANGUAGE, *flag_wrong_languages(spool, detector, config, languages))


def _characters(spool: Spool) -> int:
    """Return how many characters both sides of all pairs have."""
    pairs = (pair for segment in spool.segments for pair in spool.read(segment))
    return sum(len(source) + len(target) for source, target in pairs)


def _tokenizer(
    vocabulary: int | SubwordTokenizer | None, spool: Spool, n_characters: int, config: DataConfig, marks: Sequence[str]
) -> SubwordTokenizer:
    """Return the tokenizer that was given, or learn one from a sample of every segment."""
    if isinstance(vocabulary, SubwordTokenizer):
        return vocabulary
    per_segment = -(-LEARNING_SAMPLE // len(spool.segments))
    sides = (side for segment in spool.segments for pair in islice(spool.read(segment), per_segment) for side in pair)
    texts = map(strip_tree, sides) if config.tree else sides
    reserved = [*(target_pieces(target for _, target in config.pairs) if config.directions else []), *marks]
    tokenizer = SubwordTokenizer.learn(texts, vocabulary or vocab_size_for(n_characters), config.tokenizer, reserved)
    if vocabulary and tokenizer.vocab_size < vocabulary:
        raise UserError(
            f"the corpus is too small for a vocabulary of {vocabulary:,} pieces: it yields {tokenizer.vocab_size:,}; "
            f"use --vocab-size {tokenizer.vocab_size} or less, or leave the option out"
        )
    return tokenizer


# Second pass


class _EncodedPair(NamedTuple):
    texts: Pair
    source: list[int]
    target: list[int]
    heads: list[int] | None = None  # of the source, with dependency trees

    def fits(self, max_length: int) -> bool:
        return max(len(self.source), len(self.target)) <= max_length

    def with_prefix(self, ids: list[int]) -> "_EncodedPair":
        return self._replace(source=[*ids, *self.source]) if ids else self


@dataclass(frozen=True, slots=True, kw_only=True)
class _EncodedSegment:
    """How many pairs of a segment were written in one way."""

    way: Way
    shard: int
    n_train: int
    n_valid: int
    n_too_long: int
    target_tokens: int  # of training pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class _Encoder:
    """Encodes the pairs of segments and writes them into the shards of train and valid."""

    folder: Path
    config: DataConfig
    spool: Spool
    held_out: frozenset[int]
    ways: Sequence[Way]
    marks: Mapping[int, str]  # of corpora, by their number

    def encode_segment(self, segment: SpoolSegment) -> list[_EncodedSegment]:
        """Write the shards of a segment for every way in which it is trained."""
        tokenizer = self._load_tokenizer()
        return [self._encode_way(segment, way, tokenizer) for way in self.ways if way.corpus == segment.corpus]

    def _encode_way(self, segment: SpoolSegment, way: Way, tokenizer: SubwordTokenizer) -> _EncodedSegment:
        """Write a shard of training pairs, and one of the pairs that are held out."""
        shard = segment.number + (len(self.spool.segments) if way.is_reversed else 0)
        train, valid = (self._writer(split, tokenizer, shard) for split in ("train", "valid"))
        prefix, mark, n_too_long = prefix_of(way, tokenizer), self._mark_ids(segment.corpus, tokenizer), 0
        with train, valid:
            for pair in _encode(turned(self.spool.read(segment), way.is_reversed), tokenizer, self.config):
                marked = pair.with_prefix(mark)
                if not marked.fits(self.config.max_length - len(prefix)):
                    n_too_long += 1
                elif not self._is_held_out(pair, way):
                    train.add(*marked.with_prefix(prefix)[1:])
                elif segment.corpus not in self.marks:  # no synthetic pair is for validation
                    valid.add(*marked.with_prefix(prefix)[1:])
        return _EncodedSegment(
            way=way,
            shard=shard,
            n_train=train.n_pairs,
            n_valid=valid.n_pairs,
            n_too_long=n_too_long,
            target_tokens=train.target_tokens,
        )

    def _is_held_out(self, pair: _EncodedPair, way: Way) -> bool:
        """Return whether the source of a pair is held out; in several directions, whether one of its sides is."""
        return any(fingerprint(text) in self.held_out for text in pair.texts[: 2 if way.direction else 1])

    def encode_valid(self, pairs: Iterable[RawPair], way: Way | None = None, number: int = 0) -> int:
        """Write a shard of validation pairs, normalized but not cleaned, and return how many there are."""
        tokenizer = self._load_tokenizer()
        prefix = prefix_of(way, tokenizer) if way else []
        with self._writer("valid", tokenizer, len(self.spool.segments) + number) as valid:
            for pair in _encode(decoded_pairs(pairs, self.config.unicode), tokenizer, self.config):
                if pair.fits(self.config.max_length - len(prefix)):
                    valid.add(*pair.with_prefix(prefix)[1:])
        return valid.n_pairs

    def _mark_ids(self, corpus: int, tokenizer: SubwordTokenizer) -> list[int]:
        """Return the ids before each source of a corpus; with dependency trees, ids are words, which a mark is not."""
        return [] if self.config.tree else mark_ids(self.marks.get(corpus, ""), tokenizer)

    def mix_valid(self, text: ParallelText, encoded: Iterable[_EncodedSegment]) -> int:
        """Write the validation pairs of all directions, spread evenly, and return how many there are."""
        counts = [(one.way.direction, one.n_valid) for one in sorted(encoded, key=lambda one: one.shard)]
        if text.valid_corpora:
            corpora = [(list(pairs), languages) for pairs, languages in text.valid_corpora]
            ways = ways_of(len(corpora), [languages for _, languages in corpora], text.both_ways)
            counts = [
                (way.direction, self.encode_valid(turned(corpora[way.corpus][0], way.is_reversed), way, number))
                for number, way in enumerate(ways)
            ]
        known = list(self.config.directions)
        labels = [known.index(direction) for direction, n_pairs in counts for _ in range(n_pairs)]
        mix_directions(self.folder, "valid", labels, self._load_tokenizer().vocab_size)
        return len(labels)

    def _load_tokenizer(self) -> SubwordTokenizer:
        return SubwordTokenizer.load(self.folder / "tokenizer.json")

    def _writer(self, split: str, tokenizer: SubwordTokenizer, number: int) -> ShardWriter:
        return ShardWriter(self.folder, split, tokenizer.vocab_size, number)


def _encode(pairs: Iterable[Pair], tokenizer: SubwordTokenizer, config: DataConfig) -> Iterator[_EncodedPair]:
    for chunk in chunks(pairs):
        sources, targets = zip(*chunk, strict=True)
        target_ids = tokenizer.encode_target_batch(targets)
        if config.tree:
            source_ids, heads = zip(*encode_with_heads(tokenizer, sources), strict=True)
            yield from map(_EncodedPair, chunk, source_ids, target_ids, heads)
        else:
            yield from map(_EncodedPair, chunk, tokenizer.encode_batch(sources), target_ids)
