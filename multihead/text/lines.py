"""Text files line by line: plain, gzip, standard input or standard output."""

import contextlib
import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Self, TextIO, cast

from multihead.errors import UserError
from multihead.text.encoding import Utf16Reader, as_utf8

STANDARD_INPUT = "-"  # in place of the name of a file
MAX_LINE_BYTES = 16_384  # a longer line of a corpus is not a sentence
MAX_CHARACTERS = 1_000_000  # of a line to translate, about a book; the rest is cut off before it costs memory


# Reading


@contextlib.contextmanager
def open_binary(path: Path) -> Iterator[BinaryIO]:
    """Open a plain file, a .gz file, or standard input for `-`, as bytes in UTF-8.

    UTF-16 with a byte order mark is converted on the way; without one it is refused.
    """
    try:
        if str(path) == STANDARD_INPUT:
            yield as_utf8(sys.stdin.buffer, path)
        elif path.suffix == ".gz":
            with gzip.open(path, "rb") as unzipped:
                yield as_utf8(cast(BinaryIO, unzipped), path)
        else:
            with path.open("rb") as file:
                yield as_utf8(file, path)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise UserError(f"{path} is not a complete gzip file: {error}") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None


def read_lines(path: Path, max_bytes: int = MAX_LINE_BYTES, start: int = 0) -> Iterator[bytes]:
    """Yield lines without their ends, from byte `start` on; only "\\n" ends a line.

    A line longer than `max_bytes` is cut to one byte more than that.
    """
    with open_binary(path) as file:
        if start:
            file.seek(start)
        first = not start
        while line := file.readline(max_bytes + 1):
            if not line.endswith(b"\n"):
                _skip_rest_of_line(file)
            line = line.removesuffix(b"\n")
            yield line.removeprefix(b"\xef\xbb\xbf") if first else line  # a byte order mark is not text
            first = False


def _skip_rest_of_line(file: BinaryIO) -> None:
    while (rest := file.readline(1 << 20)) and not rest.endswith(b"\n"):
        pass


def refuse_utf16(path: Path) -> None:
    """Refuse a file that would be converted: its offsets in bytes are not those of its text."""
    with open_binary(path) as file:
        if isinstance(file, Utf16Reader):
            raise UserError(f"{path} is UTF-16, which can only be read from the start: iconv -f UTF-16 -t UTF-8")


def file_size(path: Path) -> int:
    """Return the size in bytes, 0 for standard input; a missing file is refused."""
    if str(path) == STANDARD_INPUT:
        return 0
    if not path.is_file():
        raise UserError(f"{path} is not a file" if path.exists() else f"there is no file {path}")
    return path.stat().st_size


# Writing


@contextlib.contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """Open a plain file, a .gz file, or standard output for `-`; lines end in "\\n" on every platform."""
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


# Text files


@dataclass(frozen=True, slots=True)
class TextInput:
    """The lines of a file or of standard input as text. Invalid UTF-8 is replaced, so that no line is lost."""

    path: Path

    @classmethod
    def open(cls, path: Path) -> Self:
        """Refuse a missing file now, and not after a model was loaded; the lines are read later."""
        file_size(path)
        return cls(path)

    def is_interactive(self) -> bool:
        return str(self.path) == "-" and sys.stdin.isatty()

    def __iter__(self) -> Iterator[str]:
        return (line.decode(errors="replace") for line in read_lines(self.path, max_bytes=4 * MAX_CHARACTERS))
