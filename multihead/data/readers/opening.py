"""Corpus files as bytes and as lines: plain, gzip or xz, recognized by their first bytes, with limits on memory."""

import contextlib
import gzip
import io
import lzma
import re
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from multihead.errors import UserError
from multihead.text.encoding import as_utf8

TextPair = tuple[bytes, bytes]  # source and target in UTF-8

BLOCK = 1 << 16  # bytes that are read at a time
MAX_UNIT_BYTES = 1 << 20  # of a line or an XML unit; a sentence pair is never that long
MAX_EXPANSION = 200  # times that text may be larger than its compressed form ...
ALWAYS_ALLOWED = 100_000_000  # ... once it has expanded to this many bytes
MAX_XZ_MEMORY = 256_000_000  # bytes; `xz -9` needs 65 million
WHITE_SPACE = re.compile("[ \t-\r\x1c-\x1f\x85\u2028\u2029]+")  # no-break spaces are part of a text

_UNSUPPORTED = {b"BZh": "bzip2 -d", b"\x28\xb5\x2f\xfd": "zstd -d"}


def one_line(text: str) -> bytes:
    """Return a text on one line as UTF-8. Lone surrogates become bytes that are not valid UTF-8."""
    if text.isprintable():  # the usual case, in which there is nothing to replace
        return text.strip().encode()
    return WHITE_SPACE.sub(" ", text).strip().encode("utf-8", "surrogatepass")


@contextlib.contextmanager
def open_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a corpus file, decompressed if it is compressed."""
    try:
        with path.open("rb") as file:
            yield _decompressed(file, path)
    except (gzip.BadGzipFile, EOFError, zlib.error, lzma.LZMAError) as error:
        raise UserError(f"{path} is damaged or incomplete: {error}") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


@contextlib.contextmanager
def open_seekable(path: Path) -> Iterator[BinaryIO]:
    """Open a corpus file for random access; a compressed one is decompressed into a temporary file."""
    with open_bytes(path) as file:
        if not isinstance(file, BoundedStream):
            yield file
            return
        with tempfile.TemporaryFile() as temporary:
            while block := file.read(BLOCK):
                temporary.write(block)
            temporary.seek(0)
            yield cast(BinaryIO, temporary)


def lines_of(path: Path) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of a text file with their numbers, without line ends and byte order mark."""
    with open_bytes(path) as file:
        yield from lines_in(file, path)


def lines_in(file: BinaryIO, path: Path | str) -> Iterator[tuple[int, bytes]]:
    """Yield the lines of an open text file with their numbers; UTF-16 with a byte order mark is converted."""
    text = as_utf8(file, Path(path))
    number = 0
    while line := text.readline(MAX_UNIT_BYTES + 1):
        number += 1
        if len(line) > MAX_UNIT_BYTES:
            raise UserError(f"{path}, line {number:,}: longer than {MAX_UNIT_BYTES:,} bytes, so it is no sentence pair")
        line = line.removesuffix(b"\n").removesuffix(b"\r")
        yield number, line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line


class BoundedStream(io.BufferedReader):
    """The text of a compressed file; refuses a file that expands to far more than text does."""

    def __init__(self, file: Any, compressed_size: int, path: Path | str) -> None:
        super().__init__(_BoundedBlocks(file, compressed_size, path), BLOCK)


class _BoundedBlocks(io.RawIOBase):
    def __init__(self, file: Any, compressed_size: int, path: Path | str) -> None:
        self._file, self._path, self._size = file, path, 0
        self._max_size = max(ALWAYS_ALLOWED, MAX_EXPANSION * compressed_size)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        block = self._file.read(len(buffer))
        buffer[: len(block)] = block
        self._size += len(block)
        if self._size > self._max_size:
            raise UserError(
                f"{self._path} expands to more than {MAX_EXPANSION} times its size, which text does not; if it is a "
                "corpus, decompress it first"
            )
        return len(block)


class _XzBlocks:
    """The content of an xz file; unlike `lzma.LZMAFile`, it limits the memory that the file may ask for."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self._decoder = file, lzma.LZMADecompressor(memlimit=MAX_XZ_MEMORY)

    def read(self, size: int) -> bytes:
        while True:
            if self._decoder.eof:
                if not (block := self._next_stream()):
                    return b""
                self._decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=MAX_XZ_MEMORY)
            else:
                block = self._file.read(BLOCK) if self._decoder.needs_input else b""
                if self._decoder.needs_input and not block:
                    raise EOFError("the compressed data ends too early")
            if data := self._decoder.decompress(block, size):
                return data

    def _next_stream(self) -> bytes:
        """Return the beginning of the stream that follows, if any; streams may be padded with zeros."""
        block = self._decoder.unused_data.lstrip(b"\0")
        while not block and (more := self._file.read(BLOCK)):
            block = more.lstrip(b"\0")
        return block


def _decompressed(file: io.BufferedReader, path: Path) -> BinaryIO:
    head, size = file.peek(8)[:8], path.stat().st_size
    for magic, command in _UNSUPPORTED.items():
        if head.startswith(magic):
            raise UserError(
                f"{path} is compressed in a way that --corpus does not read; decompress it: {command} {path}"
            )
    if head.startswith(b"\x1f\x8b"):
        return BoundedStream(gzip.GzipFile(fileobj=file), size, path)
    if head.startswith(b"\xfd7zXZ"):
        return BoundedStream(_XzBlocks(file), size, path)
    return file
