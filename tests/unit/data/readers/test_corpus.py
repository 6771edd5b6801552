"""The same pairs from every format, as a stream, in the languages that were asked for."""

import gzip
import json
import lzma
import zipfile
from itertools import islice
from pathlib import Path

import pytest

from multihead.data.readers.corpus import count_pairs, find_pair_languages, read_pairs
from multihead.errors import UsageError, UserError

PAIRS = [("Good morning, Anna & Bob!", "Guten Morgen, Anna & Bob!"), ("A <b> line\u00a0x", "Ein <b> „Satz“\u00a0x")]


def xml(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;")


def tmx(pairs: list[tuple[str, str]], source: str = "en-US", target: str = "DE") -> str:
    units = "\n".join(
        f'<tu><tuv xml:lang="{source}"><seg>{xml(one)}</seg></tuv><tuv xml:lang="fr"><seg>fr</seg></tuv>'
        f'<tuv xml:lang="{target}"><seg>{xml(other)}</seg></tuv></tu>'
        for one, other in pairs
    )
    return (
        f'<?xml version="1.0"?>\n<!DOCTYPE tmx SYSTEM "tmx14.dtd">\n<tmx version="1.4"><header srclang="{source}"/>'
        + (f"<body>\n{units}\n</body></tmx>\n")
    )


def xliff1(pairs: list[tuple[str, str]]) -> str:
    units = "".join(
        f"<trans-unit id='{n}'><source>{xml(one)}</source><target>{xml(other)}</target>"
        "<alt-trans><target>no</target></alt-trans></trans-unit>"
        for n, (one, other) in enumerate(pairs)
    )
    return (
        "<xliff version='1.2' xmlns='urn:oasis:names:tc:xliff:document:1.2'><file source-language='en' "
        f"target-language='de-DE'><body><group>{units}</group></body></file></xliff>"
    )


def xliff2(pairs: list[tuple[str, str]]) -> str:
    units = "".join(
        f"<unit id='{n}'><segment><source>{xml(one)}</source><target>{xml(other)}</target></segment></unit>"
        for n, (one, other) in enumerate(pairs)
    )
    return (
        "<xliff version='2.0' xmlns='urn:oasis:names:tc:xliff:document:2.0' srcLang='en' trgLang='de'>"
        f"<file id='f'>{units}</file></xliff>"
    )


def po(pairs: list[tuple[str, str]]) -> str:
    head = 'msgid ""\nmsgstr ""\n"Language: de\\n"\n"Content-Type: text/plain; charset=UTF-8\\n"\n\n'
    return head + "\n\n".join(f'#: a.c\nmsgid ""\n"{one}"\nmsgstr "{other}"' for one, other in pairs)


def csv_text(pairs: list[tuple[str, str]]) -> str:
    return "id,de,en\n" + "".join(f'{n},"{other}","{one}"\n' for n, (one, other) in enumerate(pairs))


TEXTS = {
    "a.tmx": tmx(PAIRS),
    "a.xlf": xliff1(PAIRS),
    "a.xliff": xliff2(PAIRS),
    "a.po": po(PAIRS),
    "a.csv": csv_text(PAIRS),
    "a.tsv": "en\tde\n" + "".join(f"{one}\t{other}\r\n" for one, other in PAIRS),
    "a.jsonl": "".join(json.dumps({"en": one, "de": other}) + "\n" for one, other in PAIRS),
    "nested.json": "".join(json.dumps({"id": 1, "translation": dict(de=b, en=a)}) + "\n" for a, b in PAIRS),
}


def texts(path: Path, languages: list[str]) -> list[tuple[str, str]]:
    return [(one.decode(), other.decode()) for one, other in read_pairs(path, languages)]


@pytest.fixture(params=sorted(TEXTS))
def corpus(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path: Path = tmp_path / request.param
    path.write_text(TEXTS[request.param], encoding="utf-8", newline="")
    return path


def test_every_text_format_gives_the_same_pairs(corpus: Path) -> None:
    assert texts(corpus, ["en", "de"]) == PAIRS
    assert texts(corpus, ["de", "en"]) == [(other, one) for one, other in PAIRS]
    assert count_pairs(corpus, ["en", "de"]) == 2


def test_the_languages_are_found_in_the_file(corpus: Path) -> None:
    known = ["en", ""] if corpus.suffix != ".tmx" else ["", "de"]
    if corpus.suffix == ".tmx":
        corpus.write_text(corpus.read_text("utf-8").replace('<tuv xml:lang="fr"><seg>fr</seg></tuv>', ""))
    assert find_pair_languages(corpus, known) == ["en", "de"]


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_compressed_files_are_read_by_their_content(corpus: Path, compress: object) -> None:
    assert callable(compress)
    packed = corpus.with_name(corpus.name + (".gz" if compress is gzip.compress else ".xz"))
    packed.write_bytes(compress(corpus.read_bytes()) + (b"" if compress is gzip.compress else lzma.compress(b"")))
    assert texts(packed, ["en", "de"]) == PAIRS
    corpus.write_bytes(packed.read_bytes())  # its name does not say that it is compressed
    assert texts(corpus, ["en", "de"]) == PAIRS


@pytest.mark.parametrize("name", ["a.tmx", "a.csv", "a.tsv", "a.po"])
def test_utf16_with_a_byte_order_mark_is_read(tmp_path: Path, name: str) -> None:
    text = TEXTS[name].replace("charset=UTF-8", "charset=utf-8")
    (tmp_path / name).write_bytes(text.replace('<?xml version="1.0"?>\n', "").encode("utf-16"))
    assert texts(tmp_path / name, ["en", "de"]) == PAIRS


@pytest.mark.parametrize("names", [("Tatoeba.de-en.de", "Tatoeba.de-en.en"), ("pack/target", "pack/source")])
@pytest.mark.parametrize("is_compressed_again", [False, True])
def test_a_zip_file_of_opus_or_argos(tmp_path: Path, names: tuple[str, str], is_compressed_again: bool) -> None:
    path = tmp_path / "a.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("README", "about")
        archive.writestr(names[0], "".join(f"{other}\n" for _, other in PAIRS))
        archive.writestr(names[1], "".join(f"{one}\n" for one, _ in PAIRS))
    if is_compressed_again:
        path = tmp_path / "a.zip.gz"
        path.write_bytes(gzip.compress((tmp_path / "a.zip").read_bytes()))
    assert texts(path, ["en", "de"]) == PAIRS
    if names[0].endswith("de"):
        assert find_pair_languages(path, ["en", ""]) == ["en", "de"]


@pytest.mark.parametrize("is_nested", [False, True])
def test_parquet(tmp_path: Path, is_nested: bool) -> None:
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    import pyarrow
    import pyarrow.parquet

    rows = [{"en": one, "de": other} for one, other in PAIRS] * 300
    table = pyarrow.table({"translation": rows}) if is_nested else pyarrow.Table.from_pylist(rows)
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    assert texts(tmp_path / "a.parquet", ["de", "en"]) == [(other, one) for one, other in PAIRS] * 300
    assert count_pairs(tmp_path / "a.parquet", ["en", "de"]) == 600
    assert find_pair_languages(tmp_path / "a.parquet") == ["en", "de"]


def test_a_table_of_two_columns_needs_no_header(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Yes.\tJa.\n\nNo.\tNein.\n")
    assert texts(tmp_path / "a.txt", ["en", "de"]) == [("Yes.", "Ja."), ("No.", "Nein.")]


def test_cells_of_csv_may_contain_line_ends_and_be_separated_by_semicolons(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text('Source;Target\n"one\ntwo, ""three""";eins\n')
    assert texts(tmp_path / "a.csv", ["en", "de"]) == [('one two, "three"', "eins")]


def test_a_file_with_an_unknown_name_is_recognized_by_its_content(tmp_path: Path) -> None:
    (tmp_path / "memory").write_text(TEXTS["a.tmx"], encoding="utf-8")
    assert texts(tmp_path / "memory", ["en", "de"]) == PAIRS
    (tmp_path / "plain").write_text("only text\n")
    with pytest.raises(UsageError, match=r"tmx, .*also with .gz or .xz; .*plain does not"):
        read_pairs(tmp_path / "plain", ["en", "de"])


def test_inline_markup_is_not_text(tmp_path: Path) -> None:
    segment = 'Press <bpt i="1">&lt;b&gt;</bpt><hi>OK</hi><ept i="1">&lt;/b&gt;</ept>, <ph>%s</ph>please<!-- x -->.'
    text = tmx([("A", "B")]).replace("<seg>A</seg>", f"<seg>{segment}</seg>")
    (tmp_path / "a.tmx").write_text(text)
    assert texts(tmp_path / "a.tmx", ["en", "de"]) == [("Press OK,  please.", "B")]


def test_units_without_both_languages_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text(tmx([("A", "B")]).replace("</body>", tmx([("C", "D")], "es")[90:]))
    (tmp_path / "a.tmx").write_text(
        tmx([("A", "B")]).replace("<body>", '<body><tu><tuv xml:lang="en"><seg>alone</seg></tuv></tu>')
    )
    assert texts(tmp_path / "a.tmx", ["en", "de"]) == [("A", "B")]


def test_only_finished_translations_of_xliff_and_po_are_read(tmp_path: Path) -> None:
    text = xliff1([("A", "B"), ("C", "D"), ("E", "F")])
    text = text.replace("<target>D", "<target state='needs-translation'>D").replace("<target>F</target>", "", 1)
    (tmp_path / "a.xlf").write_text(text)
    assert texts(tmp_path / "a.xlf", ["en", "de"]) == [("A", "B")]
    entries = '\n\n#, fuzzy\nmsgid "C"\nmsgstr "D"\n\nmsgid "E"\nmsgstr ""\n#~ msgid "old"\n#~ msgstr "alt"\n'
    (tmp_path / "a.po").write_text(po([("A", "B")]) + entries)
    assert texts(tmp_path / "a.po", ["en", "de"]) == [("A", "B")]


def test_plural_forms_and_escapes_of_po(tmp_path: Path) -> None:
    entry = 'msgctxt "x"\nmsgid "%d\\tfile\\n"\nmsgid_plural "%d \\"files\\""\n'
    entry += 'msgstr[0] "%d Datei"\nmsgstr[1] "%d Dateien"\n'
    (tmp_path / "de.po").write_text(po([]) + entry)
    assert texts(tmp_path / "de.po", ["en", "de"]) == [("%d file", "%d Datei"), ('%d "files"', "%d Dateien")]


def test_a_catalog_in_another_encoding(tmp_path: Path) -> None:
    (tmp_path / "de.po").write_bytes(po([("Good", "Schön")]).replace("UTF-8", "ISO-8859-1").encode("latin-1"))
    assert texts(tmp_path / "de.po", ["en", "de"]) == [("Good", "Schön")]


@pytest.mark.parametrize("name", ["a.tmx", "a.xliff", "a.po", "a.jsonl", "a.csv"])
def test_another_language_is_refused_with_those_that_are_there(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(TEXTS[name].replace("id,de,en", "it,de,en"), encoding="utf-8")
    with pytest.raises(UserError, match=f"{name}.*(de|DE)") as refused:
        texts(tmp_path / name, ["en", "sv"])
    assert "sv" in str(refused.value)


def test_exact_codes_win_over_prefixes(tmp_path: Path) -> None:
    text = tmx([("gray", "grau")]).replace('<tuv xml:lang="fr"><seg>fr', '<tuv xml:lang="en-GB"><seg>pale')
    (tmp_path / "a.tmx").write_text(text)
    assert texts(tmp_path / "a.tmx", ["en", "de"])[0][0] == "gray"
    assert texts(tmp_path / "a.tmx", ["en_gb", "de"])[0][0] == "pale"
    assert texts(tmp_path / "a.tmx", ["en-US", "en-GB"]) == [("gray", "pale")]


def test_more_than_two_languages_have_to_be_chosen_from(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text(TEXTS["a.tmx"], encoding="utf-8")
    with pytest.raises(UserError, match=r"--source-lang and --target-lang: it has en-US, fr, DE"):
        find_pair_languages(tmp_path / "a.tmx")


@pytest.mark.long
def test_a_memory_is_read_as_a_stream(tmp_path: Path) -> None:
    (tmp_path / "a.tmx").write_text(tmx([("Good morning", "Guten Morgen")] * 50_000))
    before = peak_memory()
    assert sum(1 for _ in read_pairs(tmp_path / "a.tmx", ["en", "de"])) == 50_000
    assert peak_memory() - before < 16_000_000
    assert len(list(islice(read_pairs(tmp_path / "a.tmx", ["en", "de"]), 3))) == 3


def peak_memory() -> int:
    import resource

    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
