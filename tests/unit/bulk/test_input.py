"""Parts contain every row once, in order."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead.bulk.input import count_rows, list_files, read_rows, split_rows
from multihead.errors import UserError
from tests.unit.bulk.conftest import OPTIONS, make_job


def read_all(file: Path, part_rows: int) -> list[tuple[object, str]]:
    rows = {file: count_rows(file, OPTIONS)}
    found = [read_rows(part, make_job(part_rows)) for part in split_rows(rows, part_rows)]
    return [pair for ids, texts in found for pair in zip(ids.to_pylist(), texts, strict=True)]


@settings(deadline=None)  # the first call imports pyarrow
@given(
    lines=st.lists(st.text("ab\u2028\r é", max_size=5), max_size=30), part_rows=st.integers(1, 12), ended=st.booleans()
)
def test_parts_of_a_text_are_its_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str], part_rows: int, ended: bool
) -> None:
    file = tmp_path_factory.mktemp("bulk") / "text"
    file.write_bytes("\n".join(lines).encode() + b"\n" * ended)
    content = file.read_bytes().decode()
    expected = content.removesuffix("\n").split("\n") if content else []
    assert read_all(file, part_rows) == list(enumerate(expected))


@pytest.mark.parametrize("part_rows", [1, 3, 7, 40])
def test_parts_of_parquet_are_its_rows_whatever_its_row_groups(tmp_path: Path, part_rows: int) -> None:
    table = pyarrow.table({"id": [f"row {n}" for n in range(23)], "text": [None, *(f"text {n}" for n in range(22))]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", row_group_size=5)
    expected = [(f"row {n}", "" if n == 0 else f"text {n - 1}") for n in range(23)]
    assert read_all(tmp_path / "a.parquet", part_rows) == expected


def test_invalid_input_is_refused_before_any_work(tmp_path: Path) -> None:
    table = pyarrow.table({"id": [1], "text": [2]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"must contain text, not int64"):
        count_rows(tmp_path / "a.parquet", OPTIONS)
    with pytest.raises(UserError, match=r"has no column 'words'; its columns are id, text"):
        count_rows(tmp_path / "a.parquet", replace(OPTIONS, text_column="words"))
    (tmp_path / "b.parquet").write_text("no parquet", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot read .*b\.parquet"):
        count_rows(tmp_path / "b.parquet", OPTIONS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no \.parquet file"):
        list_files(tmp_path / "empty")
    (tmp_path / "a.gz").touch()
    with pytest.raises(UserError, match="is not seekable"):
        list_files(tmp_path / "a.gz")
    (tmp_path / "utf16").write_bytes("one\ntwo\n".encode("utf-16"))
    with pytest.raises(UserError, match=r"utf16 is UTF-16.*iconv"):
        list_files(tmp_path / "utf16")
