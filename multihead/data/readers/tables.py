"""Tables: TSV, whose cells are plain text, and CSV, whose cells may be quoted."""

import csv
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from multihead.data.readers.language_codes import codes_among, find_columns, no_such_languages
from multihead.data.readers.opening import TextPair, lines_of, one_line
from multihead.errors import UserError

SEPARATORS = ",;\t"  # of CSV; spreadsheets of some languages write semicolons

Row = tuple[int, list[str]]  # the number of its last line, and its cells


def read_pairs(path: Path, languages: Sequence[str], is_csv: bool = False) -> Iterator[TextPair]:
    """Yield the pairs of a table: of two columns, or of the columns that the first line names."""
    rows = _rows(path, is_csv)
    first = next(rows, None)
    if first is None:
        return
    number, names = first
    columns = find_columns(names, languages)
    if not columns and len(codes_among(names)) == len(names) > 1:
        raise no_such_languages(path, languages, names)
    if not columns and len(names) == 1:
        raise UserError(f"{path}, line {number}: one column only; a table has a source and a target in each line")
    if not columns and len(names) > 2:
        raise UserError(
            f"{path}, line {number}: {len(names)} columns, and no names of languages; insert a first line such as "
            f"{_example(languages, is_csv)} or leave only two columns"
        )
    if not columns:
        yield one_line(names[0]), one_line(names[1])
    source, target = columns or (0, 1)
    for number, cells in rows:
        if len(cells) != len(names):
            raise UserError(f"{path}, line {number:,}: {len(cells)} columns, but the first line has {len(names)}")
        yield one_line(cells[source]), one_line(cells[target])


def languages_of(path: Path, is_csv: bool = False) -> list[str]:
    """Return the languages that the first line names."""
    first = next(_rows(path, is_csv), None)
    codes = codes_among(first[1]) if first else []
    return codes if len(codes) > 1 else []


def _example(languages: Sequence[str], is_csv: bool) -> str:
    return ("," if is_csv else "<tab>").join([*languages, "other"])


def _rows(path: Path, is_csv: bool) -> Iterator[Row]:
    if is_csv:
        return _csv_rows(path)
    decoded = ((number, line.decode("utf-8", "surrogateescape")) for number, line in lines_of(path))
    return ((number, line.split("\t")) for number, line in decoded if line.strip())


def _csv_rows(path: Path) -> Iterator[Row]:
    lines = (line.decode("utf-8", "surrogateescape") + "\n" for _, line in lines_of(path))
    head = list(islice(lines, 1))
    separator = max(SEPARATORS, key=head[0].count) if head else ","
    reader = csv.reader(_chain(head, lines), delimiter=separator, strict=True)
    while True:
        try:
            cells = next(reader, None)
        except csv.Error as error:
            raise UserError(f"{path}, line {reader.line_num:,}: {error}; is a quotation mark missing?") from None
        if cells is None:
            return
        if any(cells):
            yield reader.line_num, cells


def _chain(head: list[str], lines: Iterator[str]) -> Iterator[str]:
    yield from head
    yield from lines
