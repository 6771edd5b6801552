"""Character encodings: UTF-16 files read as UTF-8, and Unicode normalization."""

import codecs
import io
import unicodedata
from pathlib import Path
from typing import Any, BinaryIO, cast

from multihead.errors import UserError

BYTE_ORDER_MARKS = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
HEAD = 4096  # bytes from which an encoding is recognized


def as_utf8(file: BinaryIO, path: Path) -> BinaryIO:
    """Return the file as UTF-8: UTF-16 with a byte order mark is converted, without one it is refused."""
    head = peek(file)
    if head.startswith(BYTE_ORDER_MARKS):
        return cast(BinaryIO, Utf16Reader(file))
    if encoding := guess_utf16(head):
        name = "standard input" if str(path) == "-" else path
        raise UserError(
            f"{name} looks like {encoding} without a byte order mark; convert it first: iconv -f {encoding} -t UTF-8"
        )
    return file


def peek(file: Any) -> bytes:
    """Return the first bytes without consuming them; a terminal or a pipe may have sent only a line so far."""
    return bytes(file.peek(HEAD)[:HEAD]) if hasattr(file, "peek") else b""


def guess_utf16(head: bytes) -> str | None:
    """Return the encoding if a file that starts like this is probably UTF-16 without a byte order mark."""
    zeros = {"UTF-16BE": head[::2].count(0), "UTF-16LE": head[1::2].count(0)}
    encoding = max(zeros, key=zeros.__getitem__)
    if zeros[encoding] < max(2, len(head) / 300):  # a stray NUL does not make a file UTF-16
        return None
    # Half of the bytes of Cyrillic or Hindi in UTF-16 are control characters in UTF-8, of which real text has few.
    n_controls = sum(byte < ord(" ") for byte in head)
    if n_controls < len(head) / 4 and _decoded(head, "UTF-8") is not None:
        return None
    # Zeros come from ASCII, so they are half of the bytes of Latin text; text in other scripts has at least line ends.
    text = _decoded(head, encoding)
    return encoding if text and ("\n" in text or zeros[encoding] >= len(head) / 4) else None


def _decoded(head: bytes, encoding: str) -> str | None:
    try:
        return codecs.getincrementaldecoder(encoding)().decode(head)  # the head may end within a character
    except UnicodeDecodeError:
        return None


class Utf16Reader(io.BufferedReader):
    """A UTF-16 file that reads as UTF-8."""

    def __init__(self, file: BinaryIO) -> None:
        super().__init__(_Utf16Blocks(file))
        self.fileobj = getattr(file, "fileobj", file)  # as in GzipFile: the file whose `tell` is a position on disk


class _Utf16Blocks(io.RawIOBase):
    def __init__(self, file: Any) -> None:
        # Half of a surrogate pair is passed on, so that it damages only its own line.
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


def normalize(text: str, form: str) -> str:
    """Return the text in a Unicode normalization form, one of `data.unicode`: "nfc", or "none" for unchanged."""
    return unicodedata.normalize("NFC", text) if form == "nfc" else text
