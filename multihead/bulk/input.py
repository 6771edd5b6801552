"""TODO."""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from multihead.bulk.job import BulkOptions, Job, Part
from multihead.errors import UserError
from multihead.text.lines import MAX_CHARACTERS, file_size, read_lines, refuse_utf16

if TYPE_CHECKING:
    import pyarrow


# Input


def list_files(source: Path) -> list[Path]:
    """The files of the input, in the order of their names."""
    if source.is_dir():
        found = sorted(source.glob("*.parquet"))
        if not found:
            raise UserError(f"there is no .parquet file in {source}")
        return [file.resolve() for file in found]
    file_size(source)
    if source.suffix == ".gz" or str(source) == "-":
        raise UserError(f"{source} cannot be read from the middle: unpack it into a file, or make Parquet of it")
    if source.suffix != ".parquet":
        refuse_utf16(source)
    return [source.resolve()]


def count_rows(file: Path, options: BulkOptions) -> int:
    """Rows of Parquet, if it has these columns; lines of text."""
    if file.suffix != ".parquet":
        return _line_starts(file, every=1 << 62)[1]
    import pyarrow
    import pyarrow.parquet

    try:
        with pyarrow.parquet.ParquetFile(file) as opened:
            schema = opened.schema_arrow
            n_rows: int = opened.metadata.num_rows
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"cannot read {file}: {error}") from None
    missing = [name for name in (options.id_column, options.text_column) if name not in schema.names]
    if missing:
        raise UserError(f"{file} has no column '{missing[0]}'; it has {', '.join(schema.names)}")
    kind = schema.field(options.text_column).type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise UserError(f"the column '{options.text_column}' of {file} is not text but {kind}")
    return n_rows


def split_rows(rows: dict[Path, int], part_rows: int) -> Iterator[Part]:
    number = 0
    for file, n_rows in rows.items():
        starts = _line_starts(file, part_rows)[0] if file.suffix != ".parquet" else None
        for at, first in enumerate(range(0, n_rows, part_rows)):
            start = starts[at] if starts else 0
            n_here = min(part_rows, n_rows - first)
            yield Part(number=number, file=str(file), first_row=first, n_rows=n_here, start=start)
            number += 1


def _line_starts(file: Path, every: int) -> tuple[list[int], int]:
    """Where every so many lines one begins, and how many lines there are; "\\n" alone ends a line."""
    starts, n_lines, at = [0], 0, 0
    with file.open("rb") as opened:
        last = b"\n"
        while block := opened.read(1 << 24):
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1
            numbers = np.arange(n_lines + 1, n_lines + len(ends) + 1)
            starts += (at + ends[numbers % every == 0]).tolist()
            n_lines, at, last = n_lines + len(ends), at + len(block), block[-1:]
    return starts, n_lines + (last != b"\n")


def read_rows(part: Part, job: Job) -> "tuple[pyarrow.Array, list[str]]":
    """Ids and texts of a part; the id of a line is its number, beginning with 0."""
    import pyarrow

    path = Path(part.file)
    if path.suffix != ".parquet":
        lines = islice(read_lines(path, 4 * MAX_CHARACTERS, part.start), part.n_rows)
        ids = pyarrow.array(range(part.first_row, part.first_row + part.n_rows), pyarrow.int64())
        return ids, [line.decode(errors="replace") for line in lines]
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(path) as opened:
        groups, skipped, before = [], 0, 0
        for group in range(opened.metadata.num_row_groups):
            n_rows = opened.metadata.row_group(group).num_rows
            if before + n_rows <= part.first_row:
                skipped = before + n_rows
            elif before < part.first_row + part.n_rows:
                groups.append(group)
            before += n_rows
        table = opened.read_row_groups(groups, columns=[job.id_column, job.text_column])
    table = table.slice(part.first_row - skipped, part.n_rows).combine_chunks()
    texts = [text or "" for text in table[job.text_column].to_pylist()]
    return table[job.id_column], texts
