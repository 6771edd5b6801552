"""Recognize files that are not plain text with one sentence per line, and say how to convert them."""

import json
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path

from multihead.errors import UserError
from multihead.text.encoding import BYTE_ORDER_MARKS, HEAD, guess_utf16, peek
from multihead.text.lines import open_binary

MIN_TABLE_LINES = 2  # lines with the same number of columns that make a file a table
PYTHON = 'python3 -c \'import sys; out = [open(name, "w", encoding="utf-8") for name in sys.argv[2:]]; '
OPENED = 'open(sys.argv[1], encoding="utf-8")'


@dataclass(frozen=True, slots=True)
class Format:
    """A kind of file, and a command that makes two text files of it."""

    name: str
    command: str = ""  # with {file}
    advice: str = ""  # in place of a command
    ending: str = ""  # of the names of such files, if they contain sentence pairs


def _compressed(name: str, command: str) -> Format:
    return Format(f"compressed with {name}", advice=f"decompress it with `{command}`")


TSV = Format("a table (TSV)", "cut -f1 {file} > source.txt; cut -f2 {file} > target.txt", ending="tsv")
CSV = Format(
    "a table (CSV)",
    f"{PYTHON}import csv; [print(*cell.split(), file=one) for row in csv.reader({OPENED}) "
    "for one, cell in zip(out, row)]' {file} source.txt target.txt",
    ending="csv",
)
TMX = Format(
    "a translation memory (TMX)",
    f"{PYTHON}import xml.etree.ElementTree as xml; "
    '[print(*"".join(seg.itertext()).split(), file=one) for unit in xml.parse(sys.argv[1]).iter("tu") '
    'for one, seg in zip(out, unit.iter("seg"))]\' {file} source.txt target.txt',
    ending="tmx",
)
XLIFF = Format(
    "an XLIFF file",
    f"{PYTHON}import xml.etree.ElementTree as xml; "
    '[print(*"".join(unit.find("{{*}}" + side).itertext()).split(), file=one) '
    'for unit in xml.parse(sys.argv[1]).findall(".//{{*}}target/..") '
    'for one, side in zip(out, ("source", "target"))]\' {file} source.txt target.txt',
    ending="xliff",
)
PO = Format(
    "a gettext catalog (PO)",
    f"{PYTHON}import ast, re; "
    'pairs = re.findall(r"^msgid ((?:\\".*\\"\\s*)+)^msgstr ((?:\\".*\\"\\s*)+)", '
    f"{OPENED}.read(), re.M); "
    'pairs = [[ast.literal_eval("(" + side + ")").split() for side in pair] for pair in pairs]; '
    "[print(*side, file=one) for pair in pairs if all(pair) for one, side in zip(out, pair)]' "
    "{file} source.txt target.txt",
    ending="po",
)
JSONL = Format(
    "JSON Lines",
    f"{PYTHON}import json; [print(*json.loads(line)[key].split(), file=one) for line in {OPENED} "
    "for one, key in zip(out, ({keys}))]' {file} source.txt target.txt",
    ending="jsonl",
)
PARQUET = Format(
    "a Parquet file", advice="write its two columns to text files with pandas or pyarrow", ending="parquet"
)
ZIP = Format(
    "a zip archive",
    advice="unpack it with `unzip {file}`, and give the two text files that are in it",
    ending="zip",
)
TABLES = (TSV.ending, CSV.ending)
DOCUMENT = Format("a document", advice="save its text as plain text")

BINARY = Format("not text", advice="give a text file in UTF-8")
MAX_CONTROL_SHARE = 0.05  # of the bytes of a text

_MAGIC = {
    b"PK\x03\x04": ZIP,
    b"PAR1": PARQUET,
    b"%PDF": DOCUMENT,
    b"{\\rtf": DOCUMENT,
    b"\xd0\xcf\x11\xe0": DOCUMENT,  # Office until 2003
    b"\x1f\x8b": Format("compressed with gzip", advice="rename it so that its name ends in .gz"),
    b"\xfd7zXZ": _compressed("xz", "xz -d {file}"),
    b"BZh": _compressed("bzip2", "bzip2 -d {file}"),
    b"\x28\xb5\x2f\xfd": _compressed("zstd", "zstd -d {file}"),
}
_DOCUMENTS = (".docx", ".pptx", ".xlsx", ".odt", ".ods", ".odp", ".epub")  # which are zip archives


def check_is_text(path: Path, option: str, corpus_option: str = "") -> None:
    """Refuse a file of another format, with the option that reads it, if any, or the command that converts it."""
    found = recognize_binary(path) or recognize(path)
    if not found:
        return
    takes = f"{path} is {found.name}, but {option} takes plain text with one sentence per line. "
    if corpus_option and found.ending:
        raise UserError(
            f"{takes}If it contains both languages, pass it alone, with {corpus_option} {shlex.quote(str(path))}"
        )
    raise UserError(takes + _what_to_do(found))


def check_has_lines(path: Path, option: str) -> None:
    """Refuse a file that is no text, or whose lines are markup. The lines of a table are translated as they are."""
    found = recognize_binary(path)
    if not found and (structured := recognize(path)) and structured.ending not in TABLES:
        found = structured
    if found:
        raise UserError(f"{path} is {found.name}, but {option} takes plain text. {_what_to_do(found)}")


def _what_to_do(found: Format) -> str:
    """Return the advice as a sentence, or the command that makes text files of it."""
    if found.advice:
        return f"{found.advice[0].upper()}{found.advice[1:]}."
    return f"Convert it:\n\n  {found.command}\n"


def recognize_binary(path: Path) -> Format | None:
    """Return the format of an archive, a compressed file or a document."""
    if path.suffix == ".gz":
        return None
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from None
    found = next(
        (kind for magic, kind in _MAGIC.items() if head.startswith(magic)), BINARY if _is_binary(head) else None
    )
    if found is ZIP and path.suffix.lower() in _DOCUMENTS:
        found = DOCUMENT
    return _filled(found, path) if found else None


def _is_binary(head: bytes) -> bool:
    """Return whether a file has more control characters than text has; UTF-16 is text."""
    if head.startswith(BYTE_ORDER_MARKS) or guess_utf16(head):
        return False
    n_controls = sum(byte < ord(" ") and byte not in b"\t\n\r\f\x1b" for byte in head)
    return n_controls > MAX_CONTROL_SHARE * len(head)


def recognize(path: Path) -> Format | None:
    """Return the format of structured text, by its content; commas make a table only if the file is named .csv."""
    head = _head(path).decode(errors="replace").removeprefix("\ufeff")
    lines = [line for line in head.split("\n")[:-1] or [head] if line.strip()]
    name = path.name.lower().removesuffix(".gz")
    if head.lstrip().startswith("<"):
        found = TMX if "<tmx" in head else XLIFF if "<xliff" in head else None
    elif re.search(r'^msgid ".*\n(".*\n)*msgstr "', head, re.MULTILINE):
        found = PO
    elif lines and _record(lines[0]):
        found = _jsonl(lines[0])
    elif _is_table(lines):
        found = TSV
    else:
        found = CSV if name.endswith(".csv") and lines and all("," in line for line in lines[:2]) else None
    return _filled(found, path) if found else None


def _filled(found: Format, path: Path) -> Format:
    """Put the name of the file into command and advice."""
    name = shlex.quote(str(path))
    if not found.command or path.suffix != ".gz":
        return replace(found, command=found.command.format(file=name), advice=found.advice.format(file=name))
    command = found.command.format(file=shlex.quote(str(path.with_suffix(""))))
    return replace(found, command=f"gzip -dk {name} && {command}")


def _head(path: Path) -> bytes:
    with open_binary(path) as file:
        return peek(file)


def _record(line: str) -> dict[str, object]:
    """Return the object in a line of JSON Lines, or an empty one."""
    try:
        record = json.loads(line) if line.startswith("{") else None
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _jsonl(line: str) -> Format:
    """Return the format with the names of the first two texts of its objects."""
    keys = [key for key, value in _record(line).items() if isinstance(value, str) and key.isidentifier()][:2]
    if len(keys) < 2:
        advice = "write the source and the target of each object to two text files"
        return replace(JSONL, command="", advice=advice)
    return replace(JSONL, command=JSONL.command.replace("{keys}", ", ".join(f'"{key}"' for key in keys)))


def _is_table(lines: list[str]) -> bool:
    """Return whether every line has the same number of tabs; words and the heads of a dependency tree are no table."""
    n_tabs = {line.count("\t") for line in lines}
    heads = all(re.fullmatch(r"[\d ]*", line.rpartition("\t")[2].strip()) for line in lines)
    return len(lines) >= MIN_TABLE_LINES and len(n_tabs) == 1 and 0 not in n_tabs and not heads
