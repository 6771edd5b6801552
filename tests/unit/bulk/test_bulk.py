"""Parts of an input: every row once, in order, whole or not there; and work that is taken up again or refused."""

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from multihead import load
from multihead.bulk.input import count_rows, list_files, read_rows, split_rows
from multihead.bulk.job import BulkOptions, Job, start_or_resume
from multihead.bulk.worker import Work, Worker
from multihead.config.schema import SearchConfig
from multihead.errors import UserError

OPTIONS = BulkOptions(search=SearchConfig(beam=1), engine="torch")


def job(part_rows: int) -> Job:
    options = OPTIONS
    return Job(
        model="",
        files={},
        id_column=options.id_column,
        text_column=options.text_column,
        engine=options.engine,
        search=options.search,
        part_rows=part_rows,
    )


def read_all(file: Path, part_rows: int) -> list[tuple[object, str]]:
    rows = {file: count_rows(file, OPTIONS)}
    found = [read_rows(part, job(part_rows)) for part in split_rows(rows, part_rows)]
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


def test_a_worker_writes_what_the_model_says(trained: Path, tmp_path: Path) -> None:
    lines = ["copy a b c", "", "reverse a b c"]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (part,) = split_rows({tmp_path / "text": 3}, 10)
    Worker(Work(job=job(10), folder=trained, output=tmp_path)).translate(part)
    table = pyarrow.parquet.read_table(tmp_path / "part-000000.parquet").to_pydict()
    expected = [one.text for one in load(trained, engine="torch").translate(lines, beam=1)]
    assert (table["id"], table["text"], table["translation"]) == ([0, 1, 2], lines, expected)
    assert not list(tmp_path.glob(".part-*"))


def test_work_goes_on_as_it_was_begun_and_other_work_is_refused(tmp_path: Path) -> None:
    first = start_or_resume(job(7), tmp_path)
    assert start_or_resume(job(9), tmp_path) == first
    with pytest.raises(UserError, match="begun with another engine"):
        start_or_resume(replace(job(7), engine="auto"), tmp_path)


def test_a_folder_with_something_else_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UserError, match=r"holds something else \(mine\.txt\)"):
        start_or_resume(job(7), tmp_path)


def test_what_cannot_be_read_is_refused_before_any_work(tmp_path: Path) -> None:
    table = pyarrow.table({"id": [1], "text": [2]})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(UserError, match=r"is not text but int64"):
        count_rows(tmp_path / "a.parquet", OPTIONS)
    with pytest.raises(UserError, match=r"has no column 'words'; it has id, text"):
        count_rows(tmp_path / "a.parquet", replace(OPTIONS, text_column="words"))
    (tmp_path / "b.parquet").write_text("no parquet", encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot read .*b\.parquet"):
        count_rows(tmp_path / "b.parquet", OPTIONS)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match=r"no \.parquet file"):
        list_files(tmp_path / "empty")
    (tmp_path / "a.gz").touch()
    with pytest.raises(UserError, match="cannot be read from the middle"):
        list_files(tmp_path / "a.gz")
    (tmp_path / "utf16").write_bytes("one\ntwo\n".encode("utf-16"))
    with pytest.raises(UserError, match=r"utf16 is UTF-16.*iconv"):
        list_files(tmp_path / "utf16")
