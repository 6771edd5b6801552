"""Zip files with two texts whose lines correspond: the Moses format of OPUS, or `source` and `target`."""

import contextlib
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, cast

from multihead.data.readers.language_codes import codes_among, find_columns, no_such_languages
from multihead.data.readers.opening import BoundedStream, TextPair, lines_in, one_line, open_seekable
from multihead.errors import UserError

MAX_MEMBERS = 2000


def read_pairs(path: Path, languages: Sequence[str]) -> Iterator[TextPair]:
    """Yield line n of both texts."""
    with _opened(path) as archive:
        members = _members(archive)
        columns = find_columns(list(members), languages)
        if not columns:
            raise no_such_languages(path, languages, codes_among(members))
        source, target = (members[list(members)[column]] for column in columns)
        with _open(archive, source, path) as sources, _open(archive, target, path) as targets:
            pairs = zip_longest(
                lines_in(sources, f"{path}/{source.filename}"), lines_in(targets, f"{path}/{target.filename}")
            )
            for number, (one, other) in enumerate(pairs, 1):
                if one is None or other is None:
                    shorter = source if one is None else target
                    raise UserError(
                        f"{path}: {shorter.filename} ends before line {number:,}, but the other text goes on; line n "
                        "of one must be the translation of line n of the other"
                    )
                yield _text(one[1]), _text(other[1])


def languages_of(path: Path) -> list[str]:
    """Return the languages that the names of the texts end in; OPUS sorts them by their codes."""
    with _opened(path) as archive:
        return codes_among(_members(archive))


def _text(line: bytes) -> bytes:
    return one_line(line.decode("utf-8", "surrogateescape"))


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[zipfile.ZipFile]:
    with open_seekable(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                if len(archive.infolist()) > MAX_MEMBERS:
                    raise UserError(f"{path} has more than {MAX_MEMBERS:,} members; a corpus has two texts")
                yield archive
        except (zipfile.BadZipFile, NotImplementedError, zlib.error) as error:
            raise UserError(f"{path} is not a complete zip file: {error}") from None


def _members(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Return the members by what their names end in: the language of a text."""
    infos = [info for info in archive.infolist() if not info.is_dir()]
    return {info.filename.rpartition("/")[2].rpartition(".")[2]: info for info in infos}


def _open(archive: zipfile.ZipFile, member: zipfile.ZipInfo, path: Path) -> BinaryIO:
    if member.flag_bits & 1:
        raise UserError(f"{path} is encrypted; unpack it with its password first")
    return cast(BinaryIO, BoundedStream(archive.open(member), member.compress_size, f"{path}/{member.filename}"))
