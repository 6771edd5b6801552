"""Reading raw text, and the rules of cleaning."""

import gzip
import io
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.config.schema import DataConfig
from multihead.data.cleaning import CleaningReport, clean_chunk, typical_ratio
from multihead.data.parallel_text import RawPair, read_pairs
from multihead.errors import UserError
from multihead.text.encoding import normalize
from multihead.text.lines import MAX_LINE_BYTES, file_size, read_lines
from tests import scripts


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


# UTF-16

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


# Cleaning


def cleaned(pairs: list[RawPair], **settings: object) -> tuple[list[tuple[str, str]], CleaningReport]:
    """The pairs that are kept of a corpus in which a side is usually as long as the other."""
    report = CleaningReport()
    kept = clean_chunk(pairs, DataConfig(**settings), ratio=1.0)  # type: ignore[arg-type]  # pydantic checks the values
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
        ((b"x" * (MAX_LINE_BYTES + 1), b"Ein Mann."), "too_long"),
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


def encoded(pairs: list[tuple[str, str]]) -> list[RawPair]:
    return [(source.encode(), target.encode()) for source, target in pairs]


def dropped_for_length(pairs: list[tuple[str, str]]) -> int:
    raw, config = encoded(pairs), DataConfig()
    return clean_chunk(raw, config, typical_ratio(raw, config)).dropped["ratio"]


@pytest.mark.parametrize("language", scripts.TRANSLATIONS)
def test_no_script_loses_correct_pairs(language: str) -> None:
    pairs = scripts.pairs_with(language)
    assert dropped_for_length(pairs) == 0
    assert dropped_for_length([(target, source) for source, target in pairs]) == 0


@pytest.mark.parametrize("language", scripts.TRANSLATIONS)
def test_pairs_of_very_unequal_length_are_dropped_in_every_script(language: str) -> None:
    """The longest sentence beside the shortest one, in a corpus of which most is right."""
    pairs = scripts.pairs_with(language)
    wrong = [(pairs[0][0], pairs[9][1]), (pairs[9][0], pairs[0][1])]
    assert dropped_for_length(pairs + wrong) == 2


def test_copies_do_not_make_the_typical_ratio() -> None:
    pairs = encoded([*scripts.pairs_with("Chinese"), *[("An untranslated line.", "An untranslated line.")] * 100])
    assert typical_ratio(pairs, DataConfig()) < 0.4


def test_the_tree_beside_a_source_does_not_make_it_longer() -> None:
    pairs: list[RawPair] = [(b"A man rides a bike .\t2 3 0 5 3 3", b"Ein Mann rides a b.")]
    assert typical_ratio(pairs, DataConfig(tree=True)) == 1.0 - 1 / 20


# Unicode normalization

NFD = "cafe\u0301 re\u0301sume\u0301"


def test_both_sides_are_normalized_to_nfc() -> None:
    pairs = encoded([(NFD, f"Das {NFD}")])
    assert cleaned(pairs)[0] == [("café résumé", "Das café résumé")]
    assert cleaned(pairs, unicode="none")[0] == [(NFD, f"Das {NFD}")]


def test_normalization_is_not_nfkc() -> None:
    """Superscripts, ligatures and full-width letters mean something."""
    text = "x² ﬁn Ａ"  # noqa: RUF001
    assert normalize(text, "nfc") == text


def test_a_line_that_grows_too_long_by_normalization_is_dropped() -> None:
    grows = "\u0958" * (MAX_LINE_BYTES // 3)  # a character of 3 bytes, which are 6 in NFC
    assert cleaned(encoded([(grows, grows + ".")]))[1].dropped["too_long"] == 1
    assert cleaned(encoded([(grows, grows[:-1] + ".")]), unicode="none")[1].kept == 1


def test_the_same_source_may_have_two_translations() -> None:
    assert len(cleaned([(b"Hello.", b"Hallo."), (b"Hello.", b"Guten Tag.")])[0]) == 2
