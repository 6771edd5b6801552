"""Reading files of unknown origin: regular files of a bounded size, and JSON that cannot exhaust memory."""

import json
import stat
from pathlib import Path
from typing import Any

from multihead.errors import UserError

MAX_JSON_BYTES = 32 << 20  # a tokenizer of 250,000 pieces has 20 MB
MAX_BRACKETS = 1_000_000  # an empty list takes two bytes in a file and 64 in memory
MAX_COMMAS = 4_000_000


def check_file(path: Path, max_bytes: int | None = None) -> None:
    """Raise UserError unless `path` is a regular file of at most `max_bytes`: a FIFO or a device could block."""
    try:
        status = path.stat()
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"cannot read {path}: it is not a regular file")
    if max_bytes is not None and status.st_size > max_bytes:
        raise UserError(f"cannot read {path}: it has {status.st_size:,} bytes; at most {max_bytes:,} are read")


def read_bytes(path: Path, max_bytes: int = MAX_JSON_BYTES) -> bytes:
    """Return the content of a regular file; raise UserError if it cannot be read or is too large."""
    check_file(path, max_bytes)
    try:
        with path.open("rb") as file:
            return file.read(max_bytes)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error}") from None


def read_json(path: Path, max_bytes: int = MAX_JSON_BYTES) -> Any:
    """Return the content of a JSON file; raise UserError if it is missing, damaged or too large."""
    return parse_json(read_bytes(path, max_bytes), path)


def parse_json(content: bytes | str, origin: Path) -> Any:
    """Parse JSON in which no key occurs twice, since programs disagree on which of them counts."""
    brackets, comma = (b"[", b"{"), b","
    raw = content.encode("utf-8", "surrogatepass") if isinstance(content, str) else content
    if sum(raw.count(bracket) for bracket in brackets) > MAX_BRACKETS or raw.count(comma) > MAX_COMMAS:
        raise UserError(f"{origin} is not read: it has more values than any file of Multihead")
    try:
        return json.loads(content, object_pairs_hook=_without_duplicates)
    except RecursionError:
        raise UserError(f"{origin} is not JSON: it is nested too deeply") from None
    except ValueError as error:  # also of text that is not UTF-8 and of integers with thousands of digits
        raise UserError(f"{origin} is not JSON: {error}") from None


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        raise ValueError("a key occurs twice")
    return document
