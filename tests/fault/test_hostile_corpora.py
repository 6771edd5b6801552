"""Corpus files that are broken or made to do harm: a message with the place, exit status 1, and no memory is taken."""

import gzip
import lzma
import resource
import subprocess
import sys
import zipfile
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from multihead.data.readers import opening
from multihead.data.readers.corpus import find_pair_languages, read_pairs
from multihead.errors import UserError

MOST_MEMORY = 60_000_000  # bytes that a refusal may take on top of what the process has
HEAD = '<tmx version="1.4"><header srclang="en"/><body>\n'
UNIT = '<tu><tuv xml:lang="en"><seg>Yes</seg></tuv><tuv xml:lang="de"><seg>Ja</seg></tuv></tu>\n'
END = "</body></tmx>"


def refuse(path: Path, words: str) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UserError, match=words) as refused:
        for _ in read_pairs(path, ["en", "de"]):
            pass
    assert str(path) in str(refused.value)
    assert 1024 * (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) < MOST_MEMORY


def write(path: Path, parts: Iterable[str | bytes]) -> Path:
    with path.open("wb") as file:
        for part in parts:
            file.write(part.encode() if isinstance(part, str) else part)
    return path


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("a.tmx", HEAD + UNIT + UNIT, "line 4: .*"),  # it ends too early
        ("a.tmx", HEAD + UNIT + "<tu><seg></tu>" + END, "line 3: .*mismatch"),
        ("a.tmx", HEAD + UNIT + "\x01" + END, "line 3: .*"),
        ("a.tmx", HEAD + UNIT.replace("Yes", "&nbsp;") + END, "line 2: .*nbsp"),
        ("a.tmx", "", "a.tmx.*"),
        ("a.xlf", "<xliff><file source-language='en'>", "line 1: .*"),
        ("a.csv", "Yes,Ja\nNo,Nein,Nee\n", "line 2: 3 columns, but the first line has 2"),
        ("a.csv", 'Yes,Ja\n"No,Nein\nMore,Mehr\n', "line [23]: .*is a quotation mark missing"),
        ("a.csv", 'Yes,Ja\n"No"x,Nein\n', "line 2: .*is a quotation mark missing"),
        ("a.tsv", "Yes\tJa\n\nNo\n", "line 3: 1 columns, but the first line has 2"),
        ("a.tsv", "Yes\tJa\tx\n", "line 1: 3 columns, and no names of languages"),
        ("a.tsv", "only text\n", "line 1: one column only"),
        ("a.jsonl", '{"en": "a", "de": "b"}\n{"en": "a",\n', "line 2: not JSON"),
        ("a.jsonl", '{"en": "a", "de": "b"}\n{"en": "a"}\n', "line 2: no texts in en and de"),
        ("a.jsonl", '{"en": "a", "de": 7}\n', "line 1: en and de must be texts"),
        ("a.jsonl", "[1]\n", "line 1: not an object"),
        ("a.jsonl", "[" * 100_000, "line 1: not JSON"),
        ("a.po", 'msgid "a"\nmsgstr "b"\nmsgid c\n', "line 3: not a line of a gettext catalog: msgid c"),
        ("a.po", 'msgid ""\nmsgstr "charset=klingon\\n"\n', "encoding klingon"),
        ("a.zip", "PK\x03\x04 no zip", "not a complete zip file"),
        ("a.parquet", "PAR1 no parquet", "as Parquet"),
        ("a.tmx.bz2.tmx", "BZh91AY", "bzip2 -d"),
    ],
)
def test_a_broken_file_is_refused_with_the_line(tmp_path: Path, name: str, text: str, words: str) -> None:
    if name == "a.parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    refuse(write(tmp_path / name, [text]), words)


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_a_compressed_file_that_ends_too_early_is_refused(tmp_path: Path, compress: Callable[[bytes], bytes]) -> None:
    whole = compress((HEAD + UNIT * 2000 + END).encode())
    refuse(write(tmp_path / "a.tmx", [whole[: len(whole) // 2]]), "damaged or incomplete")
    refuse(write(tmp_path / "b.tmx", [whole[:60], b"\xff" * 40]), "damaged or incomplete|line")


def test_utf16_without_a_byte_order_mark_is_refused_with_the_remedy(tmp_path: Path) -> None:
    refuse(write(tmp_path / "a.tsv", ["Yes\tJa\nNo\tNein\n".encode("utf-16-le")]), "UTF-16LE.*iconv")


LAUGHS = "".join(
    f'<!ENTITY {name} "{f"&{before};" * 10}">' for before, name in zip("abcdefghij", "bcdefghijk", strict=True)
)
LAUGHS = f'<!DOCTYPE tmx [<!ENTITY a "ha">{LAUGHS}]>'


@pytest.mark.parametrize(
    ("document_type", "text"),
    [
        (LAUGHS, "&k;"),
        ('<!DOCTYPE tmx [<!ENTITY x SYSTEM "file:///etc/hostname">]>', "&x;"),
        ('<!DOCTYPE tmx [<!ENTITY % x SYSTEM "http://127.0.0.1:9/x"> %x;]>', "y"),
        ('<!DOCTYPE tmx [<!ENTITY x "safe">]>', "&x;"),
    ],
)
@pytest.mark.parametrize("place", ["<seg>{}</seg>", "<seg x='{}'>a</seg>"])
def test_entities_are_neither_expanded_nor_fetched(tmp_path: Path, document_type: str, text: str, place: str) -> None:
    unit = UNIT.replace("<seg>Yes</seg>", place.format(text))
    path = write(tmp_path / "a.tmx", ['<?xml version="1.0"?>', document_type, HEAD, unit, END])
    refuse(path, "declares XML entities|line 1|line 2")


def test_a_document_type_without_entities_is_harmless(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx", ['<!DOCTYPE tmx SYSTEM "file:///etc/passwd">', HEAD, UNIT, END])
    assert list(read_pairs(path, ["en", "de"])) == [(b"Yes", b"Ja")]


MEGABYTE = b"x" * 1_000_000


@pytest.mark.parametrize(
    ("name", "before", "middle", "words"),
    [
        ("a.tmx", HEAD + "<tu><tuv><seg>", MEGABYTE, "line 1: more than .* without the end of a unit|line 2"),
        ("a.tmx", HEAD + "<tu>", b"<tuv/>" * 100_000, "line 1: more than .* without the end of a unit|line 2"),
        ("a.tmx", "<!-- ", MEGABYTE, "line"),
        ("a.tmx", "", b"<a>" * 100_000, "line 1: .*"),
        ("a.tsv", "Yes\tJa\nNo\t", MEGABYTE, "line 2: longer than"),
        ("a.csv", "Yes,Ja\nNo,", MEGABYTE, "line 2: longer than"),
        ("a.csv", 'Yes,Ja\nNo,"', b"x\n" * 500_000, "is a quotation mark missing"),
        ("a.jsonl", '{"en": "', MEGABYTE, "line 1: longer than"),
        ("a.po", 'msgid "', MEGABYTE, "line 1: longer than"),
        ("a.po", 'msgid ""\n', b'"xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"\n' * 30_000, "a message longer than"),
    ],
)
def test_a_huge_unit_is_refused_without_reading_it_into_memory(
    tmp_path: Path, name: str, before: str, middle: bytes, words: str
) -> None:
    refuse(write(tmp_path / name, [before, *[middle] * 100]), words)


@pytest.mark.parametrize("kind", ["gz", "xz", "zip"])
def test_a_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    monkeypatch.setattr(opening, "ALWAYS_ALLOWED", 1_000_000)
    n_lines = 2_000_000
    if kind == "zip":
        path = tmp_path / "a.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name in ("a.en", "a.de"):
                archive.writestr(name, b"a\n" * n_lines)
    elif kind == "gz":
        packer = zlib.compressobj(9, wbits=31)
        path = write(tmp_path / "a.tsv.gz", [packer.compress(b"a\tb\n" * n_lines), packer.flush()])
    else:
        path = write(tmp_path / "a.tsv.xz", [lzma.compress(b"a\tb\n" * n_lines, preset=0)])
    refuse(path, "expands to more than 200 times its size")


def test_an_xz_file_cannot_ask_for_gigabytes(tmp_path: Path) -> None:
    filters = [{"id": lzma.FILTER_LZMA2, "preset": 0, "dict_size": 1 << 29}]
    packer = lzma.LZMACompressor(filters=[{**filters[0], "dict_size": 1 << 20}])
    data = bytearray(packer.compress(b"a\tb\n") + packer.flush())
    at = data.index(b"\x21\x01") + 2  # the property of LZMA2 in the block header: the size of its dictionary
    data[at] = 36  # 1 GB
    end = 12 + 4 * (data[12] + 1) - 4
    data[end : end + 4] = zlib.crc32(data[12:end]).to_bytes(4, "little")
    refuse(write(tmp_path / "a.tsv.xz", [bytes(data)]), "damaged or incomplete: Memory usage limit")


def test_zip_files_that_are_no_corpus(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "many.zip", "w") as archive:
        for number in range(2001):
            archive.writestr(str(number), "")
    refuse(tmp_path / "many.zip", "more than 2,000 members")
    with zipfile.ZipFile(tmp_path / "uneven.zip", "w") as archive:
        archive.writestr("a.en", "Yes\nNo\n")
        archive.writestr("a.de", "Ja\n")
    refuse(tmp_path / "uneven.zip", "a.de ends before line 2")
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as archive:
        archive.writestr("../../a.fr", "Oui\n")
    refuse(tmp_path / "other.zip", "has no pairs of en and de; its languages are: fr")
    data = bytearray((tmp_path / "uneven.zip").read_bytes())
    for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):  # the flag for encrypted members
        at = data.find(magic)
        while at >= 0:
            data[at + offset] |= 1
            at = data.find(magic, at + 4)
    refuse(write(tmp_path / "secret.zip", [bytes(data)]), "is encrypted")


def test_a_long_text_that_many_rows_of_parquet_repeat_is_refused(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    parquet = pytest.importorskip("pyarrow.parquet")
    text = pyarrow.DictionaryArray.from_arrays(pyarrow.array([0] * 50_000, pyarrow.int32()), ["x" * 5_000_000])
    parquet.write_table(pyarrow.table({"en": text, "de": text}), tmp_path / "a.parquet")
    refuse(tmp_path / "a.parquet", "rows from 1: a text longer than")


def test_a_missing_file_and_standard_input_are_refused(tmp_path: Path) -> None:
    refuse(tmp_path / "none.tmx", "there is no file")
    with pytest.raises(UserError, match="takes a file"):
        find_pair_languages(Path("-"))


def test_the_command_exits_with_1_and_one_message(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tmx", [HEAD, UNIT, "<tu>"])
    command = [sys.executable, "-m", "multihead", "prepare", "--corpus", str(path), "--output", str(tmp_path / "data")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert "a.tmx, line 3: " in ended.stderr
    assert "Traceback" not in ended.stderr
    assert not (tmp_path / "data").exists()
