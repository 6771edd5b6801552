"""Reading raw text, and the rules of cleaning."""

import gzip
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.config import DataConfig, UserError
from multihead.text import MAX_BYTES, RawPair, Report, file_size, keep, read_lines, read_pairs


def write(path: Path, content: bytes) -> Path:
    if path.suffix == ".gz":
        path.write_bytes(gzip.compress(content))
    else:
        path.write_bytes(content)
    return path


# Reading


@pytest.mark.parametrize("name", ["a.en", "a.en.gz"])
def test_plain_and_gzipped_files_read_alike(tmp_path: Path, name: str) -> None:
    assert list(read_lines(write(tmp_path / name, b"one\ntwo\n"))) == [b"one", b"two"]


@given(lines=st.lists(st.binary(max_size=40).filter(lambda line: b"\n" not in line)))
def test_only_the_newline_ends_a_line(tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]) -> None:
    path = write(tmp_path_factory.mktemp("lines") / "a", b"".join(line + b"\n" for line in lines))
    assert len(list(read_lines(path))) == len(lines)


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
    assert (len(first), second) == (MAX_BYTES + 1, b"next")


@pytest.mark.parametrize(("n_source", "n_target"), [(3, 2), (2, 3), (0, 1), (25_000, 24_999)])
def test_unequal_line_counts_are_refused_with_both_counts(tmp_path: Path, n_source: int, n_target: int) -> None:
    source, target = write(tmp_path / "a", b"x\n" * n_source), write(tmp_path / "b", b"x\n" * n_target)
    with pytest.raises(UserError, match=f"a has {n_source:,} lines and .*b has {n_target:,}"):
        list(read_pairs(source, target))


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


# Cleaning


def cleaned(pairs: list[RawPair], **settings: object) -> tuple[list[tuple[str, str]], Report]:
    report = Report()
    kept = keep(pairs, DataConfig(**settings))  # type: ignore[arg-type]  # pydantic checks the values
    report.add(kept)
    lines = kept.text.decode().split("\n")[:-1]
    return list(zip(lines[::2], lines[1::2], strict=True)), report


GOOD: RawPair = (b"A man.", b"Ein Mann.")


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        ((b"\xff\xfe", b"x"), "bad_utf8"),
        ((b"a\0b", b"ab"), "control"),
        ((b"", b"Ein Mann."), "empty"),
        ((b"A man.", b" \t\r"), "empty"),
        ((b"x" * (MAX_BYTES + 1), b"Ein Mann."), "too_long"),
        ((b"No.", b"Das ist eine sehr lange Antwort auf eine kurze Frage."), "ratio"),
        ((b"Berlin", b"Berlin"), "copy"),
    ],
)
def test_each_rule_drops_its_pair_and_counts_it(bad: RawPair, rule: str) -> None:
    kept, report = cleaned([GOOD, bad])
    assert kept == [("A man.", "Ein Mann.")]
    assert {name: count for name, count in report.dropped.items() if count} == {rule: 1}
    assert (report.read, report.kept) == (2, 1)
    assert any(line.startswith("dropped 1: ") for line in report.lines())


def test_without_cleaning_only_what_cannot_be_trained_on_is_dropped() -> None:
    pairs: list[RawPair] = [GOOD, GOOD, (b"Berlin", b"Berlin"), (b"", b"x"), (b"No.", b"x" * 200)]
    kept, report = cleaned(pairs, clean=False)
    assert (len(kept), report.dropped["empty"]) == (4, 1)


def test_white_space_around_a_sentence_is_dropped() -> None:
    assert cleaned([(b"  A man. \r", b"\tEin Mann.")])[0] == [("A man.", "Ein Mann.")]


def test_a_chinese_translation_is_not_too_short() -> None:
    pair = ("He has never been to the city where she was born.", "他从未去过她出生的城市。")
    assert cleaned([(pair[0].encode(), pair[1].encode())])[0] == [pair]


def test_the_same_source_may_have_two_translations() -> None:
    assert len(cleaned([(b"Hello.", b"Hallo."), (b"Hello.", b"Guten Tag.")])[0]) == 2
