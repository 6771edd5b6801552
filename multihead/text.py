"""Raw parallel text: files read line by line, and the rules by which a pair is kept or dropped.

Everything streams in chunks, so memory does not grow with the text.
"""

import codecs
import contextlib
import gzip
import hashlib
import io
import math
import statistics
import sys
import unicodedata
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO, TextIO, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from multihead.config import DataConfig, UserError

Item = TypeVar("Item")
Pair = tuple[str, str]
RawPair = tuple[bytes, bytes]

MAX_BYTES = 16_384  # of one line; what is longer is no sentence, and is dropped before it costs anything
CHUNK = 20_000  # pairs handled at a time
RATIO_SAMPLE = 20_000  # pairs from which a corpus's typical ratio of lengths is taken
RATIO_SLACK = 3  # characters added to both sides before their lengths are compared: short sentences vary more
HEAD = 4096  # bytes that are enough to recognize an encoding

RULES = {
    "bad_utf8": "not valid UTF-8",
    "control": "contains a NUL character",
    "empty": "one side is empty",
    "too_long": "one side is too long",
    "ratio": "one side is much longer than usual for the other",
    "copy": "both sides are the same",
    "duplicate": "the pair came before",
}


# Reading


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file, a .gz file, or standard input for `-`, as bytes in UTF-8.

    UTF-16 with a byte order mark is converted on the way; without one it is refused.
    """
    try:
        if str(path) == "-":
            yield _as_utf8(sys.stdin.buffer, path)
        elif path.suffix == ".gz":
            with gzip.open(path, "rb") as unzipped:
                yield _as_utf8(cast(BinaryIO, unzipped), path)
        else:
            with path.open("rb") as file:
                yield _as_utf8(file, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a complete gzip file: {error}") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def _as_utf8(file: BinaryIO, path: Path) -> BinaryIO:
    head = _peek(file)
    if head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return cast(BinaryIO, _FromUtf16(file))
    if encoding := utf16_without_mark(head):
        name = "standard input" if str(path) == "-" else path
        raise UserError(
            f"{name} looks like {encoding} without a byte order mark; convert it first: iconv -f {encoding} -t UTF-8"
        )
    return file


def refuse_utf16(path: Path) -> None:
    """Refuse a file that would be converted: its offsets in bytes are not those of its text."""
    with open_binary(path) as file:
        if isinstance(file, _FromUtf16):
            raise UserError(f"{path} is UTF-16, which can be read from its beginning only: iconv -f UTF-16 -t UTF-8")


def _peek(file: Any) -> bytes:
    """Return the first bytes without consuming them. A terminal or a pipe may have only a line of them so far."""
    return bytes(file.peek(HEAD)[:HEAD]) if hasattr(file, "peek") else b""


def utf16_without_mark(head: bytes) -> str:
    """Return the encoding if a file with this beginning is probably UTF-16 without a byte order mark, else ""."""
    zeros = {"UTF-16BE": head[::2].count(0), "UTF-16LE": head[1::2].count(0)}
    encoding = max(zeros, key=zeros.__getitem__)
    if zeros[encoding] < max(2, len(head) / 300):  # a stray NUL does not make a file UTF-16
        return ""
    # Half of the bytes of Cyrillic or Hindi in UTF-16 are control characters in UTF-8, of which real text has few.
    n_controls = sum(byte < ord(" ") for byte in head)
    if n_controls < len(head) / 4 and _decoded(head, "UTF-8") is not None:
        return ""
    # Zeros come from ASCII, which is half of the bytes of Latin text; text in other scripts has at least line ends.
    text = _decoded(head, encoding)
    return encoding if text and ("\n" in text or zeros[encoding] >= len(head) / 4) else ""


def _decoded(head: bytes, encoding: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head)  # the head may end within a character
    except UnicodeDecodeError:
        return None


class _FromUtf16(io.BufferedReader):
    """UTF-16 read as UTF-8."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(_Utf16Blocks(file))
        self.fileobj = getattr(file, "fileobj", file)  # as gzip has it: what `tell` says is a place on the disk


class _Utf16Blocks(io.RawIOBase):
    def __init__(self, file: Any) -> None:
        # Half of a surrogate pair is passed on, so that it spoils its own line and no other.
        self._file, self._decoder = file, codecs.getincrementaldecoder("UTF-16")("surrogatepass")
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left and (block := self._file.read1(io.DEFAULT_BUFFER_SIZE)):
            self._left = self._decoder.decode(block).encode("UTF-8", "surrogatepass")
        n_bytes = min(len(buffer), len(self._left))
        buffer[:n_bytes], self._left = self._left[:n_bytes], self._left[n_bytes:]
        return n_bytes


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


def keep(chunk: list[RawPair], config: DataConfig, typical: float) -> Kept:
    """Return the pairs of a chunk that pass every rule; `typical` is the corpus's typical ratio.

    Duplicates are found later, among the fingerprints of all chunks.
    """
    pairs: list[Pair] = []
    dropped: Counter[str] = Counter()
    for raw in chunk:
        pair, rule = decode_pair(*raw, config.unicode)
        if not rule and config.clean:
            rule = dubious(_without_tree(pair, config), config.max_ratio, typical)
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


def normalize(text: str, form: str) -> str:
    """Return the text in a Unicode normalization form, one of `data.unicode`: "nfc", or "none" for unchanged."""
    return unicodedata.normalize("NFC", text) if form == "nfc" else text


def decode_pair(source: bytes, target: bytes, form: str) -> tuple[Pair, str]:
    """Return the pair as normalized text, and the rule it breaks if it cannot be trained on ("" if none)."""
    nothing = ("", "")
    if max(len(source), len(target)) > MAX_BYTES:
        return nothing, "too_long"
    try:
        pair = normalize(source.decode(), form).strip(), normalize(target.decode(), form).strip()
    except UnicodeDecodeError:
        return nothing, "bad_utf8"
    if "\0" in pair[0] or "\0" in pair[1]:
        return nothing, "control"
    if max(len(side.encode()) for side in pair) > MAX_BYTES:  # a few characters grow by normalization
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


def dubious(pair: Pair, max_ratio: float, typical: float) -> str:
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
