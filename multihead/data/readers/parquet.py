"""Parquet files with a text column for each language, or with a column `translation` of such fields."""

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from multihead.data.readers.jsonl import NESTED
from multihead.data.readers.language_codes import codes_among, find_columns, no_such_languages
from multihead.data.readers.opening import MAX_UNIT_BYTES, TextPair, one_line, open_seekable
from multihead.errors import UserError, require

BATCH = 256  # rows in memory
MAX_CHUNK_BYTES = 1 << 29  # of a column in a row group, unpacked


def read_pairs(path: Path, languages: Sequence[str]) -> Iterator[TextPair]:
    """Yield the rows of two text columns."""
    with _opened(path) as file:
        nested, names = _text_columns(file)
        columns = find_columns(names, languages)
        if not columns:
            raise no_such_languages(path, languages, names)
        chosen = [f"{nested}{names[column]}" for column in columns]
        _check_sizes(file, path, chosen)
        for number, batch in enumerate(file.iter_batches(batch_size=BATCH, columns=chosen)):
            place = f"{path}, rows from {number * BATCH + 1:,}"
            sources, targets = (_texts(batch, name, place) for name in chosen)
            yield from zip(map(one_line, sources), map(one_line, targets), strict=True)


def languages_of(path: Path) -> list[str]:
    """Return the names of the text columns that are languages."""
    with _opened(path) as file:
        return codes_among(_text_columns(file)[1])


def count_rows(path: Path) -> int:
    with _opened(path) as file:
        return int(file.metadata.num_rows)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    parquet = require("pyarrow.parquet", extra="bulk", purpose="reading Parquet")
    import pyarrow

    with open_seekable(path) as file:
        try:
            nested, names = _text_columns(parquet.ParquetFile(file))
            # Dictionaries stay dictionaries, so that a long text that many rows repeat is in memory once.
            yield parquet.ParquetFile(file, read_dictionary=[f"{nested}{name}" for name in names])
        except (pyarrow.ArrowException, OSError) as error:
            raise UserError(f"cannot read {path} as Parquet: {str(error).splitlines()[0]}") from None


def _text_columns(file: Any) -> tuple[str, list[str]]:
    """Return the prefix and the names of the columns with text."""
    schema = file.schema_arrow
    nested = NESTED in schema.names and str(schema.field(NESTED).type).startswith("struct")
    fields = list(schema.field(NESTED).type) if nested else list(schema)
    return f"{NESTED}." if nested else "", [one.name for one in fields if "string" in str(one.type)]


def _check_sizes(file: Any, path: Path, columns: Sequence[str]) -> None:
    for group in range(file.metadata.num_row_groups):
        chunks = [file.metadata.row_group(group).column(n) for n in range(file.metadata.num_columns)]
        size = max((one.total_uncompressed_size for one in chunks if one.path_in_schema in columns), default=0)
        if size > MAX_CHUNK_BYTES:
            raise UserError(f"{path}: row group {group} has a column of {size:,} bytes; write smaller row groups")


def _texts(batch: Any, name: str, place: str) -> list[str]:
    """Return the texts of a column; those that are missing are empty."""
    from pyarrow import compute

    outer, _, inner = name.partition(".")
    column = batch.column(outer).field(inner) if inner else batch.column(outer)
    different = getattr(column, "dictionary", column)
    if (compute.max(compute.binary_length(different)).as_py() or 0) > MAX_UNIT_BYTES:
        raise UserError(f"{place}: a text longer than {MAX_UNIT_BYTES:,} bytes, which is no sentence")
    return [value or "" for value in column.to_pylist()]
