"""Text files line by line."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.errors import UserError
from multihead.text.lines import MAX_LINE_BYTES, file_size, read_lines


def write(path: Path, content: bytes) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)
    return path


@pytest.mark.parametrize("name", ["a.en", "a.en.gz"])
def test_plain_and_gzipped_files_read_alike(tmp_path: Path, name: str) -> None:
    assert list(read_lines(write(tmp_path / name, b"one\ntwo\n"))) == [b"one", b"two"]


@given(lines=st.lists(st.binary(max_size=40).filter(lambda line: not {0, ord("\n")} & {*line})))
def test_only_the_newline_ends_a_line(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    """Of bytes that do not look like UTF-16: that begins with a mark, or has zeros."""
    lines = [b"first", *lines]
    path = write(tmp_path_factory.mktemp("lines") / "a", b"".join(line + b"\n" for line in lines))
    assert list(read_lines(path)) == lines


def test_carriage_returns_and_unicode_separators_are_part_of_a_line(tmp_path: Path) -> None:
    line = "one\rtwo\u2028three\u0085four\x0bfive\x0c".encode()
    assert list(read_lines(write(tmp_path / "a", line + b"\nsix\n"))) == [line, b"six"]


def test_a_last_line_needs_no_newline(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "a", b"one\ntwo"))) == [b"one", b"two"]


def test_a_byte_order_mark_is_no_text(tmp_path: Path) -> None:
    assert list(read_lines(write(tmp_path / "a", b"\xef\xbb\xbfone\n\xef\xbb\xbftwo\n"))) == [
        b"one",
        b"\xef\xbb\xbftwo",
    ]


def test_a_line_of_a_megabyte_is_cut_and_the_next_one_is_whole(tmp_path: Path) -> None:
    first, second = read_lines(write(tmp_path / "a", b"x" * 3_000_000 + b"\nnext\n"))
    assert (len(first), second) == (MAX_LINE_BYTES + 1, b"next")


def test_a_missing_file_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*missing"):
        file_size(tmp_path / "missing")
    with pytest.raises(UserError, match="is not a file"):
        file_size(tmp_path)


@pytest.mark.parametrize("content", [b"no gzip at all", gzip.compress(b"x\n" * 1000)[:-10]], ids=["plain", "cut"])
def test_a_broken_gzip_file_is_refused_by_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.gz is not a complete gzip file"):
        list(read_lines(path))
