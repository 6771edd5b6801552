"""A prepared corpus: a folder with the tokenizer and memory-mapped token shards, made from raw text by `prepare`.

    corpus.json  tokenizer.json  train-00000.tokens.npy  train-00000.ends.npy  ...  valid-00000.tokens.npy  ...

`tokens` holds source and target of every pair, one after the other; row i of `ends` says where its sides end.
"""

import heapq
import json
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from multihead import grammar, trees
from multihead.config import DataConfig, Overrides, UserError, vocab_size_for
from multihead.files import appearing_whole
from multihead.text import (
    Pair,
    RawPair,
    Report,
    chunks,
    clean,
    decode_pair,
    file_size,
    fingerprint,
    read_lines,
    read_pairs,
)
from multihead.tokenizer import PLACE, SubwordTokenizer, check_can_be_learned

Ids = NDArray[np.unsignedinteger]
Talk = Callable[[str], None]

SHARD = 1_000_000  # pairs in one file
LEARNING_SAMPLE = 1_000_000  # pairs that the tokenizer is learned from, spread evenly over the corpus
HELD_OUT = 1000  # most pairs taken for validation when the user gives none
NOT_LANGUAGES = {"gz", "xz", "txt", "tsv", "csv", "raw", "src", "tgt", "ref", "tok", "bpe"}  # ends of file names
HELD_OUT_SHARE = 20  # and at most one pair in so many


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelText:
    """Raw text to prepare; without `valid` a slice of `train` is held out."""

    train: Iterable[RawPair]
    valid: Iterable[RawPair] | None = None
    sizes: list[int] = field(default_factory=list)  # of the files, to notice later that a run goes on with other text
    description: str = ""


def from_files(source: Path, target: Path, valid: tuple[Path, Path] | None = None) -> ParallelText:
    """Files as they are named on the command line; a missing one is refused before anything is read."""
    files = [source, target, *(valid or ())]
    if [str(file) for file in files].count("-") > 1:
        raise UserError("standard input (-) can stand for one file, not for two")
    return ParallelText(
        train=read_pairs(source, target),
        valid=read_pairs(*valid) if valid else None,
        sizes=[file_size(file) for file in files],
    )


def embedded() -> ParallelText:
    """The corpus that the package makes by itself, for a machine with no data."""

    def raw(pairs: list[Pair]) -> Iterator[RawPair]:
        return ((source.encode(), target.encode()) for source, target in pairs)

    return ParallelText(
        train=raw(grammar.sentence_pairs("train")),
        valid=raw(grammar.sentence_pairs("valid")),
        description=grammar.DESCRIPTION,
    )


def languages_of(source: Path, target: Path) -> Overrides:
    """What the files' names say of their languages: a.en.gz is English."""
    found = [re.search(r"\.([a-z]{2,3})(?:\.gz)?$", path.name) for path in (source, target)]
    codes = [match[1] if match and match[1] not in NOT_LANGUAGES else "" for match in found]
    return {"data.source_lang": codes[0], "data.target_lang": codes[1]}


EMBEDDED_LANGUAGES: Overrides = {"data.source_lang": "en", "data.target_lang": "de"}


# Preparing


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

    def lines(self) -> list[str]:
        return [
            f"{self.train_pairs:,} pairs to train on, {self.valid_pairs:,} to validate with, "
            f"{self.vocab_size:,} pieces in the vocabulary"
        ]


def prepare(
    text: ParallelText,
    folder: Path,
    config: DataConfig,
    vocab_size: int | None = None,
    talk: Talk = lambda line: None,
) -> Summary:
    """Clean `text`, learn the tokenizer and write `folder`, which appears whole or not at all."""
    if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
        raise UserError(f"{folder} is there already and is not empty: choose another folder, or remove it")
    check_can_be_learned(config.tokenizer)
    report = Report()
    with appearing_whole(folder) as aside:
        spool = _Spool(aside / "clean.txt")
        held_out = _clean_into(spool, text, config, report)
        tokenizer = _learn_tokenizer(spool, report.kept, config, vocab_size)
        (aside / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
        with _Encoder(aside, tokenizer, config) as encoder:
            encoder.add(spool.read(), report, held_out)
            encoder.add_valid(text.valid or ())
        spool.delete()
        summary = Summary(
            source_lang=config.source_lang,
            target_lang=config.target_lang,
            tokenizer=config.tokenizer,
            vocab_size=tokenizer.vocab_size,
            max_length=config.max_length,
            train_pairs=encoder.train.n_pairs,
            valid_pairs=encoder.valid.n_pairs,
            cleaning={"read": report.read, "kept": report.kept, **report.dropped},
            file_sizes=text.sizes,
            description=text.description,
        )
        _refuse_empty(summary)
        (aside / "corpus.json").write_text(json.dumps(asdict(summary), indent=2) + "\n", encoding="utf-8")
    for line in [*report.lines(), *summary.lines()]:
        talk(line)
    return summary


def _clean_into(spool: "_Spool", text: ParallelText, config: DataConfig, report: Report) -> set[int]:
    """Write what passes the rules; returns the fingerprints of the sources to hold out for validation."""
    smallest = _SmallestFingerprints(HELD_OUT if text.valid is None else 0)
    for chunk in clean(text.train, config, report):
        spool.write(chunk)
        smallest.add(source for source, _ in chunk)
    if not report.kept:
        raise UserError("; ".join(["nothing is left to train on", *report.lines()]))
    return smallest.at_most(max(1, report.kept // HELD_OUT_SHARE))


def _refuse_empty(summary: Summary) -> None:
    for n_pairs, purpose in ((summary.train_pairs, "train on"), (summary.valid_pairs, "validate with")):
        if not n_pairs:
            raise UserError(f"no pair is left to {purpose}: the text is too small, or every line is too long")


class _Spool:
    """Cleaned pairs on disk, source and target on alternate lines: the raw text may be a pipe, and is read once."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.touch()

    def write(self, pairs: Iterable[Pair]) -> None:
        with self._path.open("ab") as file:
            file.writelines(f"{source}\n{target}\n".encode() for source, target in pairs)

    def read(self) -> Iterator[Pair]:
        lines = (line.decode() for line in read_lines(self._path))
        return zip(lines, lines, strict=True)

    def delete(self) -> None:
        self._path.unlink()


class _SmallestFingerprints:
    """The sources with the smallest fingerprints: a fair sample that depends on the text alone, not on its order.

    Choosing sources, not pairs, keeps all translations of a sentence on one side of the split.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._smallest: set[int] = set()
        self._bound = 1 << 64

    def add(self, sources: Iterable[str]) -> None:
        self._smallest.update(value for value in map(fingerprint, sources) if value < self._bound)
        if len(self._smallest) > self._most:
            self._smallest = set(heapq.nsmallest(self._most, self._smallest))
            self._bound = max(self._smallest, default=0)

    def at_most(self, n_sources: int) -> set[int]:
        return set(heapq.nsmallest(n_sources, self._smallest))


def _learn_tokenizer(spool: _Spool, n_pairs: int, config: DataConfig, vocab_size: int | None) -> SubwordTokenizer:
    every = -(-n_pairs // LEARNING_SAMPLE)
    sides = (side for at, pair in enumerate(spool.read()) if at % every == 0 for side in pair)
    texts = map(trees.words_of, sides) if config.tree else sides
    tokenizer = SubwordTokenizer.learn(texts, vocab_size or vocab_size_for(n_pairs), config.tokenizer)
    if vocab_size and tokenizer.vocab_size < vocab_size:
        raise UserError(
            f"this corpus gives a vocabulary of {tokenizer.vocab_size:,} pieces, not {vocab_size:,}: "
            f"ask for {tokenizer.vocab_size} or fewer, or name no size and it will be chosen"
        )
    return tokenizer


class _Encoder:
    """Encodes pairs into the shards of train and valid; what has a side of over `max_length` tokens is left out."""

    def __init__(self, folder: Path, tokenizer: SubwordTokenizer, config: DataConfig) -> None:
        self._tokenizer, self._max_length, self._has_trees = tokenizer, config.max_length, config.tree
        largest = PLACE * (config.max_length + 1) if config.tree else tokenizer.vocab_size
        self.train = ShardWriter(folder, "train", largest)
        self.valid = ShardWriter(folder, "valid", largest)

    def add(self, pairs: Iterable[Pair], report: Report, held_out: set[int]) -> None:
        """Training pairs, but for those whose source is held out."""
        for source, ids in self._encode(pairs):
            if max(map(len, ids)) > self._max_length:
                report.dropped["too_long"] += 1
                report.kept -= 1
            else:
                (self.valid if fingerprint(source) in held_out else self.train).add(*ids)

    def add_valid(self, pairs: Iterable[RawPair]) -> None:
        """Validation pairs as they are, so long as they can be read."""
        readable = (pair for pair, broken in (decode_pair(*raw) for raw in pairs) if not broken)
        for _, ids in self._encode(readable):
            if max(map(len, ids)) <= self._max_length:
                self.valid.add(*ids)

    def _encode(self, pairs: Iterable[Pair]) -> Iterator[tuple[str, tuple[list[int], list[int]]]]:
        for chunk in chunks(pairs):
            sources, targets = zip(*chunk, strict=True)
            encode = partial(trees.encode, self._tokenizer) if self._has_trees else self._tokenizer.encode_batch
            yield from zip(
                sources, zip(encode(sources), self._tokenizer.encode_batch(targets), strict=True), strict=True
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.train.flush()
            self.valid.flush()


# Shards


class ShardWriter:
    """Writes pairs of ids, SHARD of them to a file."""

    def __init__(self, folder: Path, split: str, largest: int) -> None:
        self._prefix = f"{folder / split}-"
        self._typecode = "H" if largest <= 1 << 16 else "I"  # 2 or 4 bytes a token
        self._n_shards = 0
        self.n_pairs = 0
        self._clear()

    def _clear(self) -> None:
        self._tokens, self._ends = array(self._typecode), array("q")

    def add(self, source: list[int], target: list[int]) -> None:
        for side in (source, target):
            self._tokens.extend(side)
            self._ends.append(len(self._tokens))
        self.n_pairs += 1
        if self.n_pairs % SHARD == 0:
            self.flush()

    def flush(self) -> None:
        """Write what is left; the last call of all."""
        if not self._ends:
            return
        name = f"{self._prefix}{self._n_shards:05}"
        np.save(f"{name}.tokens.npy", np.asarray(self._tokens))
        np.save(f"{name}.ends.npy", np.asarray(self._ends).reshape(-1, 2))
        self._n_shards += 1
        self._clear()


class Shards:
    """The pairs of one split, memory-mapped: `shards[i]` is pair i as (source ids, target ids)."""

    def __init__(self, folder: Path, split: str) -> None:
        names = sorted(folder.glob(f"{split}-*.ends.npy"))
        self._ends = [np.load(name, mmap_mode="r") for name in names]
        self._tokens = [np.load(str(name).replace(".ends.", ".tokens."), mmap_mode="r") for name in names]
        self._starts = list(accumulate((len(ends) for ends in self._ends), initial=0))

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, pair: int) -> tuple[Ids, Ids]:
        shard = bisect_right(self._starts, pair) - 1
        row = pair - self._starts[shard]
        ends, tokens = self._ends[shard], self._tokens[shard]
        start = ends[row - 1, 1] if row else 0
        return tokens[start : ends[row, 0]], tokens[ends[row, 0] : ends[row, 1]]

    def lengths(self) -> NDArray[np.int32]:
        """Tokens of source and of target for every pair, without control symbols: N 2."""
        found = [np.diff(ends.ravel(), prepend=0).reshape(-1, 2).astype(np.int32) for ends in self._ends]
        return np.concatenate(found) if found else np.zeros((0, 2), dtype=np.int32)


def read_summary(folder: Path) -> Summary:
    """What is in a prepared folder, or in words why it is none."""
    path = folder / "corpus.json"
    try:
        return Summary(**json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UserError(f"{folder} is not a prepared corpus: make one with `multihead prepare`") from None
    except (OSError, ValueError, TypeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
