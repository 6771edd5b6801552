"""A prepared corpus: a folder with the tokenizer and memory-mapped token shards, made from raw text by `prepare`.

    corpus.json  tokenizer.json  train-00000.tokens.npy  train-00000.ends.npy  ...  valid-00000.tokens.npy  ...

`tokens` holds source and target of every pair, one after the other; row i of `ends` says where its sides end.
"""

import hashlib
import json
import multiprocessing
import os
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from itertools import accumulate, chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multihead import grammar, trees
from multihead.config import ConfigError, DataConfig, Overrides, UserError
from multihead.duplicates import Duplicates
from multihead.files import appearing_whole, content_sum, sha256
from multihead.presets import vocab_size_for
from multihead.processes import side_by_side
from multihead.spool import LARGEST, Segment, Spool
from multihead.text import (
    RATIO_SAMPLE,
    Pair,
    RawPair,
    Report,
    chunks,
    decode_pair,
    file_size,
    fingerprint,
    keep,
    read_pairs,
    typical_ratio,
)
from multihead.tokenizer import PLACE, SubwordTokenizer, check_can_be_learned

Ids = NDArray[np.unsignedinteger]
Talk = Callable[[str], None]
Files = Path | Sequence[Path]  # one corpus, or several

SHARD = LARGEST  # pairs in one file
LEARNING_SAMPLE = 1_000_000  # pairs that the tokenizer is learned from, spread evenly over the corpus
HELD_OUT = 1000  # most pairs taken for validation when the user gives none
NOT_LANGUAGES = {"gz", "xz", "txt", "tsv", "csv", "raw", "src", "tgt", "ref", "tok", "bpe"}  # ends of file names
HELD_OUT_SHARE = 20  # and at most one pair in so many
TRAINING_ONLY = {
    "licence",
    "bpe_dropout",
    "haste",
    "batch_tokens",
}  # fields of DataConfig that leave no trace in a corpus
STANDARD_INPUT = "-"  # cannot be read twice, so nothing but its name identifies it


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelText:
    """Raw text to prepare; without `valid` a slice of `train` is held out."""

    train: Iterable[RawPair]
    weight: float = 1.0  # how often its pairs come in an epoch
    more: Sequence[tuple[Iterable[RawPair], float]] = ()  # further corpora, each with its weight
    valid: Iterable[RawPair] | None = None
    sizes: list[int] = field(default_factory=list)  # of the files
    sums: list[str] = field(default_factory=list)  # of the files, so that a run cannot resume with other text
    description: str = ""

    def corpora(self) -> list[tuple[Iterable[RawPair], float]]:
        return [(self.train, self.weight), *self.more]


def from_files(
    source: Files, target: Files, valid: tuple[Path, Path] | None = None, weights: Sequence[float] = ()
) -> ParallelText:
    """Files as they are named on the command line; a missing one is refused before anything is read."""
    sources, targets = each(source), each(target)
    if len(sources) != len(targets) or len(weights) not in (0, len(sources)):
        raise ConfigError("every --source needs a --target, and a --weight if any of them has one")
    if not all(weight > 0 for weight in weights):
        raise ConfigError("a --weight is larger than 0: 3 for pairs that come three times in an epoch")
    files = [*sources, *targets, *(valid or ())]
    if [str(file) for file in files].count("-") > 1:
        raise UserError("standard input (-) can stand for one file, not for two")
    corpora = zip(map(read_pairs, sources, targets), weights or [1.0] * len(sources), strict=True)
    (train, weight), *more = corpora
    return ParallelText(
        train=train,
        weight=weight,
        more=more,
        valid=read_pairs(*valid) if valid else None,
        sizes=[file_size(file) for file in files],
        sums=[_sum(file) for file in files],
    )


def _sum(file: Path) -> str:
    """Identify a file by its bytes on disk: recompressed, a .gz file is another one."""
    try:
        return STANDARD_INPUT if str(file) == STANDARD_INPUT else content_sum(file)
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror or error}") from None


def each(files: Files) -> list[Path]:
    return [files] if isinstance(files, Path) else list(files)


def embedded() -> ParallelText:
    """The corpus that the package makes by itself, for a machine with no data."""

    def raw(pairs: list[Pair]) -> Iterator[RawPair]:
        return ((source.encode(), target.encode()) for source, target in pairs)

    return ParallelText(
        train=raw(grammar.sentence_pairs("train")),
        valid=raw(grammar.sentence_pairs("valid")),
        description=grammar.DESCRIPTION,
    )


def languages_of(source: Files, target: Files) -> Overrides:
    """What the names of the (first) files say of their languages: a.en.gz is English."""
    found = [re.search(r"\.([a-z]{2,3})(?:\.gz)?$", each(files)[0].name) for files in (source, target)]
    codes = [match[1] if match and match[1] not in NOT_LANGUAGES else "" for match in found]
    return {"data.source_lang": codes[0], "data.target_lang": codes[1]}


EMBEDDED_LANGUAGES: Overrides = {"data.source_lang": "en", "data.target_lang": "de"}


# Preparing


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One of the corpora that a prepared folder holds, one after the other."""

    pairs: int
    target_tokens: int  # with the end symbols
    weight: float  # how often its pairs come in an epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """`corpus.json`: what a prepared folder holds, and how it came about."""

    source_lang: str
    target_lang: str
    tokenizer: str
    vocab_size: int
    max_length: int
    train_pairs: int
    valid_pairs: int
    cleaning: dict[str, int]
    file_sizes: list[int]
    description: str
    parts: list[Part] = field(default_factory=list)
    # Folders made by older versions have none of these.
    file_sums: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)  # fields of DataConfig that it was made with
    asked_vocabulary: str = ""  # how the vocabulary was asked for, see `asked_vocabulary`

    def is_of(self, text: ParallelText) -> bool:
        """Return whether it was made from this text with these weights; older folders know only the files' sizes."""
        weights = [part.weight for part in self.parts]
        same_files = self.file_sums == text.sums if self.file_sums else self.file_sizes == text.sizes
        return same_files and weights in ([], [weight for _, weight in text.corpora()])

    def prepared_with(self) -> dict[str, object]:
        """Return the settings that the corpus was made with, by dotted name, as far as they are known."""
        names = ("source_lang", "target_lang", "tokenizer", "max_length")
        # Older versions did not normalize text, and recorded nothing of it.
        known = {"unicode": "none", **{name: getattr(self, name) for name in names}, **self.settings}
        return {
            "model.vocab_size": self.vocab_size,
            **{f"data.{name}": value for name, value in known.items() if value != ""},  # languages may be unknown
        }

    def lines(self) -> list[str]:
        weighted = [f"{part.pairs:,} pairs with weight {part.weight:g}" for part in self.parts if len(self.parts) > 1]
        return [
            f"{self.train_pairs:,} pairs to train on, {self.valid_pairs:,} to validate with, "
            f"{self.vocab_size:,} pieces in the vocabulary",
            *([f"of {len(weighted)} corpora: {', '.join(weighted)}"] if weighted else []),
        ]


def prepare(
    text: ParallelText,
    folder: Path,
    config: DataConfig,
    vocabulary: int | SubwordTokenizer | None = None,
    talk: Talk = lambda line: None,
) -> Summary:
    """Clean `text`, learn the tokenizer and write `folder`, which appears whole or not at all.

    `vocabulary` is how many pieces to learn, or a tokenizer that knows them already.
    A process for each core works on it once the text is large, and no step holds more than some millions of pairs.
    """
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} is there already and is not empty: choose another folder, or remove it")
    if not isinstance(vocabulary, SubwordTokenizer):
        check_can_be_learned(config.tokenizer)
    report = Report()
    with appearing_whole(folder) as aside:
        with Spool(aside / "clean") as spool:
            held_out = _clean_into(spool, text, config, report)
            tokenizer = _tokenizer(vocabulary, spool, report.kept, config)
            (aside / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
            encoder = _Encoder(folder=aside, config=config, held_out=held_out)
            parts = _encode(encoder, spool, report, [weight for _, weight in text.corpora()])
        n_valid = encoder.add_valid(text.valid or (), tokenizer, len(spool.segments))
        summary = Summary(
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
            asked_vocabulary=asked_vocabulary(vocabulary),
        )
        _refuse_empty(summary)
        (aside / "corpus.json").write_text(json.dumps(asdict(summary), indent=2) + "\n", encoding="utf-8")
    for line in [*report.lines(), *summary.lines()]:
        talk(line)
    return summary


def preparation_settings(config: DataConfig) -> dict[str, object]:
    """Return the fields that decide what is in a prepared corpus."""
    return {name: value for name, value in asdict(config).items() if name not in TRAINING_ONLY}


def asked_vocabulary(vocabulary: int | SubwordTokenizer | None) -> str:
    """Describe the `vocabulary` of `prepare`: a size, the sum of a tokenizer, or a size that fits the text."""
    if isinstance(vocabulary, SubwordTokenizer):
        return hashlib.sha256(vocabulary.to_json().encode()).hexdigest()
    return str(vocabulary) if vocabulary else "automatic"


def _clean_into(spool: Spool, text: ParallelText, config: DataConfig, report: Report) -> set[int]:
    """Write what passes the rules; returns the fingerprints of the sources to hold out for validation."""
    smallest = _SmallestFingerprints(HELD_OUT if text.valid is None else 0)
    duplicates = Duplicates(spool.folder)
    for number, (pairs, _) in enumerate(text.corpora()):
        typical, pairs = _with_typical_ratio(pairs, config)
        for kept in side_by_side(partial(keep, config=config, typical=typical), chunks(pairs), few=4):
            report.add(kept)
            spool.write(kept.text, len(kept.fingerprints), number)
            smallest.add(kept.source_fingerprints)
            if config.clean:
                duplicates.add(kept.fingerprints)
    report.drop("duplicate", duplicates.write(spool.repeated))
    if not report.kept:
        raise UserError("; ".join(["nothing is left to train on", *report.lines()]))
    return smallest.at_most(max(1, report.kept // HELD_OUT_SHARE))


def _with_typical_ratio(pairs: Iterable[RawPair], config: DataConfig) -> tuple[float, Iterator[RawPair]]:
    """Return the typical ratio of a corpus, and all of its pairs; they may come from a pipe and be read only once."""
    rest = iter(pairs)
    sample = list(islice(rest, RATIO_SAMPLE))
    return typical_ratio(sample, config), chain(sample, rest)


def _refuse_empty(summary: Summary) -> None:
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
    texts = map(trees.words_of, sides) if config.tree else sides
    tokenizer = SubwordTokenizer.learn(texts, vocabulary or vocab_size_for(n_pairs), config.tokenizer)
    if vocabulary and tokenizer.vocab_size < vocabulary:
        raise UserError(
            f"this corpus gives a vocabulary of {tokenizer.vocab_size:,} pieces, not {vocabulary:,}: "
            f"ask for {tokenizer.vocab_size} or fewer, or name no size and it will be chosen"
        )
    return tokenizer


def _encode(encoder: "_Encoder", spool: Spool, report: Report, weights: list[float]) -> list[Part]:
    """Write the shards of train and of what is held out; what the corpora have come to."""
    parts = [Part(pairs=0, target_tokens=0, weight=weight) for weight in weights]
    all_encoded = side_by_side(partial(encoder.encode, spool), spool.segments, few=1)
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

    def encode(self, spool: Spool, segment: Segment) -> _Encoded:
        """Training pairs, but for those whose source is held out: a shard for a segment."""
        if multiprocessing.parent_process():
            os.environ["TOKENIZERS_PARALLELISM"] = "false"  # every core has a process of its own
        tokenizer = SubwordTokenizer.load(self.folder / "tokenizer.json")
        train, valid = (self._writer(split, tokenizer, segment.number) for split in ("train", "valid"))
        too_long = 0
        for source, ids in _ids(spool.read(segment), tokenizer, self.config.tree):
            if max(map(len, ids)) > self.config.max_length:
                too_long += 1
            else:
                (valid if fingerprint(source) in self.held_out else train).add(*ids)
        for writer in (train, valid):
            writer.flush()
        return _Encoded(n_pairs=train.n_pairs, target_tokens=train.target_tokens, too_long=too_long)

    def add_valid(self, pairs: Iterable[RawPair], tokenizer: SubwordTokenizer, number: int) -> int:
        """Write validation pairs, normalized but not cleaned, and return how many there are."""
        valid = self._writer("valid", tokenizer, number)
        decoded = (decode_pair(*raw, self.config.unicode) for raw in pairs)
        readable = (pair for pair, broken in decoded if not broken)
        for _, ids in _ids(readable, tokenizer, self.config.tree):
            if max(map(len, ids)) <= self.config.max_length:
                valid.add(*ids)
        valid.flush()
        return valid.n_pairs

    def _writer(self, split: str, tokenizer: SubwordTokenizer, number: int) -> "ShardWriter":
        largest = PLACE * (self.config.max_length + 1) if self.config.tree else tokenizer.vocab_size
        return ShardWriter(self.folder, split, largest, number)


def _ids(
    pairs: Iterable[Pair], tokenizer: SubwordTokenizer, has_trees: bool
) -> Iterator[tuple[str, tuple[list[int], list[int]]]]:
    """The source of each pair, and the ids of both sides."""
    encode = partial(trees.encode, tokenizer) if has_trees else tokenizer.encode_batch
    for chunk in chunks(pairs):
        sources, targets = zip(*chunk, strict=True)
        yield from zip(sources, zip(encode(sources), tokenizer.encode_batch(targets), strict=True), strict=True)


# Shards


class ShardWriter:
    """Writes pairs of ids, SHARD of them to a file, the first of which has this number."""

    def __init__(self, folder: Path, split: str, largest: int, number: int = 0) -> None:
        self._prefix = f"{folder / split}-"
        self._typecode = "H" if largest <= 1 << 16 else "I"  # 2 or 4 bytes a token
        self._number = number
        self.n_pairs = self.target_tokens = 0
        self._clear()

    def _clear(self) -> None:
        self._tokens, self._ends = array(self._typecode), array("q")

    def add(self, source: list[int], target: list[int]) -> None:
        for side in (source, target):
            self._tokens.extend(side)
            self._ends.append(len(self._tokens))
        self.n_pairs += 1
        self.target_tokens += len(target) + 1
        if self.n_pairs % SHARD == 0:
            self.flush()

    def flush(self) -> None:
        """Write what is left; the last call of all."""
        if not self._ends:
            return
        name = f"{self._prefix}{self._number:05}"
        np.save(f"{name}.tokens.npy", np.asarray(self._tokens))
        np.save(f"{name}.ends.npy", np.asarray(self._ends).reshape(-1, 2))
        self._number += 1
        self._clear()


class Shards:
    """The pairs of one split, memory-mapped: `shards[i]` is pair i as (source ids, target ids)."""

    def __init__(self, folder: Path, split: str) -> None:
        names = sorted(folder.glob(f"{split}-*.ends.npy"))
        self._ends = [np.load(name, mmap_mode="r") for name in names]
        self._tokens = [np.load(str(name).replace(".ends.", ".tokens."), mmap_mode="r") for name in names]
        self._starts = list(accumulate((len(ends) for ends in self._ends), initial=0))
        is_described = split == "train" and (folder / "corpus.json").exists()
        self.parts = read_summary(folder).parts if is_described else []

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, pair: int) -> tuple[Ids, Ids]:
        shard = bisect_right(self._starts, pair) - 1
        row = pair - self._starts[shard]
        ends, tokens = self._ends[shard], self._tokens[shard]
        start = ends[row - 1, 1] if row else 0
        return tokens[start : ends[row, 0]], tokens[ends[row, 0] : ends[row, 1]]

    def target_tokens(self) -> int:
        """Of an epoch, with the end symbols."""
        if self.parts:
            return round(sum(part.weight * part.target_tokens for part in self.parts))
        return int(self.lengths()[:, 1].sum()) + len(self)

    def lengths(self, first: int = 0, end: int | None = None) -> NDArray[np.int32]:
        """Tokens of source and of target for every pair of a range, without control symbols: N 2."""
        end = len(self) if end is None else end
        found = [np.zeros((0, 2), dtype=np.int32)]
        for start, ends in zip(self._starts, self._ends, strict=False):
            low, high = max(0, first - start), min(len(ends), end - start)
            if low < high:
                before = ends[low - 1, 1] if low else 0
                found.append(np.diff(ends[low:high].ravel(), prepend=before).reshape(-1, 2).astype(np.int32))
        return np.concatenate(found)


def read_summary(folder: Path) -> Summary:
    """What is in a prepared folder, or in words why it is none."""
    path = folder / "corpus.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        parts = [Part(**part) for part in document.pop("parts", [])]
        return Summary(**document, parts=parts)
    except FileNotFoundError:
        raise UserError(f"{folder} is not a prepared corpus: make one with `multihead prepare`") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None


def identity(folder: Path) -> str:
    """Return a sum that differs for corpora of different text, settings or vocabulary, and stays when one is moved."""
    read_summary(folder)  # explains what is wrong with a folder that is no corpus
    document = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    document.pop("asked_vocabulary", None)  # 8,000 pieces are the same whether asked for or chosen
    try:
        document["tokenizer.json"] = sha256(folder / "tokenizer.json")
    except OSError as error:
        raise UserError(f"cannot read the corpus in {folder}: {error}") from None
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
