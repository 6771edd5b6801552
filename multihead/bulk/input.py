"""Input files, their rows, and the parts that they are split into."""

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


def list_files(source: Path) -> list[Path]:
    """Return the input files in order of their names."""
    if source.is_dir():
        files = sorted(source.glob("*.parquet"))
        if not files:
            raise UserError(f"{source} contains no .parquet file")
        return [file.resolve() for file in files]
    file_size(source)  # fails if it cannot be read
    if source.suffix == ".gz" or str(source) == "-":
        raise UserError(f"{source} is not seekable; decompress it or convert it to Parquet")
    if source.suffix != ".parquet":
        refuse_utf16(source)
    return [source.resolve()]


def count_rows(file: Path, options: BulkOptions) -> int:
    """Return the number of lines of a text, or of rows of a Parquet file, whose columns are checked."""
    if file.suffix != ".parquet":
        return _line_offsets(file, every=1 << 62)[1]
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
        raise UserError(f"{file} has no column '{missing[0]}'; its columns are {', '.join(schema.names)}")
    kind = schema.field(options.text_column).type
    if not (pyarrow.types.is_string(kind) or pyarrow.types.is_large_string(kind)):
        raise UserError(f"column '{options.text_column}' of {file} must contain text, not {kind}")
    return n_rows


def split_rows(n_rows_of: dict[Path, int], part_rows: int) -> Iterator[Part]:
    """Yield parts of at most `part_rows` rows; a part never spans two files."""
    number = 0
    for file, n_rows in n_rows_of.items():
        offsets = _line_offsets(file, part_rows)[0] if file.suffix != ".parquet" else None
        for index, first in enumerate(range(0, n_rows, part_rows)):
            yield Part(
                number=number,
                file=str(file),
                first_row=first,
                n_rows=min(part_rows, n_rows - first),
                offset=offsets[index] if offsets else 0,
            )
            number += 1


def _line_offsets(file: Path, every: int) -> tuple[list[int], int]:
    """Return the byte offset of every n-th line, and the number of lines; only "\\n" ends a line."""
    offsets, n_lines, position = [0], 0, 0
    with file.open("rb") as opened:
        last = b"\n"
        while block := opened.read(1 << 24):
            ends = np.flatnonzero(np.frombuffer(block, dtype=np.uint8) == ord("\n")) + 1
            numbers = np.arange(n_lines + 1, n_lines + len(ends) + 1)
            offsets += (position + ends[numbers % every == 0]).tolist()
            n_lines, position, last = n_lines + len(ends), position + len(block), block[-1:]
    return offsets, n_lines + (last != b"\n")


def read_rows(part: Part, job: Job) -> "tuple[pyarrow.Array, list[str]]":
    """Return the ids and texts of a part; the id of a line is its number, counted from 0."""
    import pyarrow

    if Path(part.file).suffix == ".parquet":
        return _read_parquet(part, job)
    lines = islice(read_lines(Path(part.file), 4 * MAX_CHARACTERS, part.offset), part.n_rows)
    ids = pyarrow.array(range(part.first_row, part.first_row + part.n_rows), pyarrow.int64())
    return ids, [line.decode(errors="replace") for line in lines]


def _read_parquet(part: Part, job: Job) -> "tuple[pyarrow.Array, list[str]]":
    """Read only the row groups that the part overlaps."""
    import pyarrow.parquet

    with pyarrow.parquet.ParquetFile(part.file) as opened:
        groups, n_skipped, n_before = [], 0, 0
        for group in range(opened.metadata.num_row_groups):
            n_rows = opened.metadata.row_group(group).num_rows
            if n_before + n_rows <= part.first_row:
                n_skipped = n_before + n_rows
            elif n_before < part.first_row + part.n_rows:
                groups.append(group)
            n_before += n_rows
        table = opened.read_row_groups(groups, columns=[job.id_column, job.text_column])
    table = table.slice(part.first_row - n_skipped, part.n_rows).combine_chunks()
    return table[job.id_column], [text or "" for text in table[job.text_column].to_pylist()]
