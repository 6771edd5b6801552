"""Raw parallel text: files read line by line, and the rules by which a pair is kept or dropped.

Everything streams in chunks, so memory does not grow with the text.
"""

import contextlib
import gzip
import hashlib
import io
import sys
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import BinaryIO, TextIO, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from multihead.config import DataConfig, UserError

Item = TypeVar("Item")
Pair = tuple[str, str]
RawPair = tuple[bytes, bytes]

MAX_BYTES = 16_384  # of one line; what is longer is no sentence, and is dropped before it costs anything
CHUNK = 20_000  # pairs handled at a time
RATIO_SLACK = 10  # bytes added to both sides before their ratio is taken: short sentences may differ more

RULES = {
    "bad_utf8": "not valid UTF-8",
    "control": "contains a NUL character",
    "empty": "one side is empty",
    "too_long": "one side is too long",
    "ratio": "one side is much longer than the other",
    "copy": "both sides are the same",
    "duplicate": "the pair came before",
}


# Reading


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """A plain file, a .gz file, or standard input for `-`, as bytes."""
    try:
        if str(path) == "-":
            yield sys.stdin.buffer
        elif path.suffix == ".gz":
            with gzip.open(path, "rb") as unzipped:
                yield cast(BinaryIO, unzipped)
        else:
            with path.open("rb") as file:
                yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a complete gzip file: {error}") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def read_lines(path: Path, max_bytes: int = MAX_BYTES, start: int = 0) -> Iterator[bytes]:
    """Lines without their ends, from byte `start` on; "\\n" alone ends a line. One over `max_bytes` comes cut, one byte
    longer than that."""
    with open_binary(path) as file:
        if start:
            file.seek(start)
        first = not start
        while line := file.readline(max_bytes + 1):
            if not line.endswith(b"\n"):
                _skip_rest_of_line(file)
            line = line.removesuffix(b"\n")
            yield line.removeprefix(b"\xef\xbb\xbf") if first else line  # a byte-order mark is no text
            first = False


def _skip_rest_of_line(file: BinaryIO) -> None:
    while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
        pass


def read_pairs(source: Path, target: Path) -> Iterator[RawPair]:
    """Line n of one file with line n of the other; files of unequal length are refused when the shorter one ends."""
    sources, targets = read_lines(source), read_lines(target)
    n_pairs = 0
    for line in sources:
        other = next(targets, None)
        if other is None:
            raise _unequal(source, target, n_pairs + 1 + _count(sources), n_pairs)
        n_pairs += 1
        yield line, other
    if n_more := _count(targets):
        raise _unequal(source, target, n_pairs, n_pairs + n_more)


def _unequal(source: Path, target: Path, n_source: int, n_target: int) -> UserError:
    return UserError(
        f"{source} has {n_source:,} lines and {target} has {n_target:,}: line n of one must be the translation of "
        "line n of the other"
    )


def _count(lines: Iterator[bytes]) -> int:
    return sum(1 for _ in lines)


def file_size(path: Path) -> int:
    """Bytes on disk (0 for standard input); a missing file is refused in words."""
    if str(path) == "-":
        return 0
    if not path.is_file():
        raise UserError(f"{path} is not a file" if path.exists() else f"there is no file {path}")
    return path.stat().st_size


# Writing


@contextlib.contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """A plain file, a .gz file, or standard output for `-`; lines end in "\\n" on every platform."""
    if str(path) == "-":
        out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n", write_through=True)
        try:
            yield out
        finally:
            out.detach()  # standard output stays open
    elif path.suffix == ".gz":
        with gzip.open(path, "wt", encoding="utf-8", newline="\n") as zipped:
            yield cast(TextIO, zipped)
    else:
        with path.open("w", encoding="utf-8", newline="\n") as file:
            yield file


# Cleaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """What the rules leave of a chunk."""

    text: bytes  # source and target on alternate lines
    n_read: int
    dropped: Counter[str]
    fingerprints: NDArray[np.uint64]  # of each pair
    source_fingerprints: NDArray[np.uint64]


@dataclass(slots=True, kw_only=True)
class Report:
    """What cleaning read, kept and dropped, rule by rule."""

    read: int = 0
    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)

    def add(self, kept: Kept) -> None:
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
        reasons = [f"dropped {self.dropped[rule]:,}: {why}" for rule, why in RULES.items() if self.dropped[rule]]
        return [f"read {self.read:,} pairs, kept {self.kept:,}{share}", *reasons]


def keep(chunk: list[RawPair], config: DataConfig) -> Kept:
    """The pairs of a chunk that pass every rule; duplicates are found later, among the fingerprints of all chunks."""
    pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    for raw in chunk:
        pair, rule = decode_pair(*raw)
        if not rule and config.clean:
            rule = dubious((pair[0].partition("\t")[0], pair[1]) if config.tree else pair, config.max_ratio)
        if rule:
            dropped[rule] += 1
        else:
            pairs.append(pair)
    return Kept(
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


def decode_pair(source: bytes, target: bytes) -> tuple[Pair, str]:
    """The pair as text, and the rule that it breaks if nobody could train on it ("" if none)."""
    nothing = ("", "")
    if max(len(source), len(target)) > MAX_BYTES:
        return nothing, "too_long"
    try:
        pair = source.decode().strip(), target.decode().strip()
    except UnicodeDecodeError:
        return nothing, "bad_utf8"
    if "\0" in pair[0] or "\0" in pair[1]:
        return nothing, "control"
    return pair, "" if all(pair) else "empty"


def dubious(pair: Pair, max_ratio: float) -> str:
    """The rule by which a readable pair is probably no translation ("" if it may well be one)."""
    # Bytes, not characters: a Chinese sentence has a third of the characters and about the bytes of an English one.
    short, long = sorted(len(side.encode()) + RATIO_SLACK for side in pair)
    if long > max_ratio * short:
        return "ratio"
    return "copy" if pair[0] == pair[1] else ""


def fingerprint(text: str) -> int:
    """64 bits that stand for a text: among 36 million, two are alike by chance in one corpus of 30,000."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")
