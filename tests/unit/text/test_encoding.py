"""UTF-16 files and Unicode normalization."""

import gzip
import io
from pathlib import Path
from typing import cast

import pytest

from multihead.errors import UserError
from multihead.text.encoding import normalize
from multihead.text.lines import read_lines
from tests import scripts


def write(path: Path, content: bytes) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)
    return path


UTF16_TEXT = "Schöne Grüße\r\nodd\u2028line 上上 一\n\nlast 👩 line"


@pytest.mark.parametrize("name", ["a", "a.gz"])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf16_with_a_byte_order_mark_reads_like_utf8(tmp_path: Path, name: str, encoding: str) -> None:
    path = write(tmp_path / name, f"\ufeff{UTF16_TEXT}".encode(encoding))
    assert list(read_lines(path)) == UTF16_TEXT.encode().split(b"\n")


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8"])
def test_standard_input_may_be_utf16_too(monkeypatch: pytest.MonkeyPatch, encoding: str) -> None:
    piped = io.BufferedReader(cast(io.RawIOBase, io.BytesIO(UTF16_TEXT.encode(encoding))))
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(piped))
    assert list(read_lines(Path("-"))) == UTF16_TEXT.encode().split(b"\n")


def test_utf16_streams_whatever_the_size_of_its_blocks(tmp_path: Path) -> None:
    lines = [f"line {n} 上 👩" * (n % 50) for n in range(3000)]
    path = write(tmp_path / "a", "\n".join(lines).encode("utf-16"))
    assert [line.decode() for line in read_lines(path)] == lines


def test_a_spoiled_line_of_utf16_spoils_no_other(tmp_path: Path) -> None:
    content = b"\xff\xfe" + "one\nx".encode("utf-16-le") + b"\x00\xd8" + "\nthree\n".encode("utf-16-le") + b"x"
    first, second, third = read_lines(write(tmp_path / "a", content))
    assert (first, third) == (b"one", b"three")
    with pytest.raises(UnicodeDecodeError):
        second.decode()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["UTF-16LE", "UTF-16BE"])
@pytest.mark.parametrize("language", scripts.TRANSLATIONS)
def test_utf16_without_a_mark_is_refused_with_the_command_that_converts_it(
    tmp_path: Path, language: str, encoding: str, end: str
) -> None:
    path = write(tmp_path / "a", end.join(scripts.lines_of(language)).encode(encoding))
    with pytest.raises(UserError, match=f"iconv -f {encoding} -t UTF-8"):
        list(read_lines(path))


def test_a_line_of_utf16_without_its_end_is_refused_too(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="iconv -f UTF-16BE -t UTF-8"):
        list(read_lines(write(tmp_path / "a", "Where is the station?".encode("UTF-16BE"))))


@pytest.mark.parametrize("language", scripts.TRANSLATIONS)
def test_utf8_is_never_taken_for_utf16(tmp_path: Path, language: str) -> None:
    lines = [line.encode() for line in scripts.lines_of(language)]
    for spoiled in (lines, [b"a\0b", *lines], [lines[0] + b"\xff", *lines], [b"a\0b \xff\xfe", b"ab\0", *lines]):
        assert list(read_lines(write(tmp_path / "a", b"\n".join(spoiled)))) == spoiled


def test_normalization_is_not_nfkc() -> None:
    """Superscripts, ligatures and full-width letters mean something."""
    text = "x² ﬁn Ａ"  # noqa: RUF001
    assert normalize(text, "nfc") == text
