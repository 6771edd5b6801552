"""A part becomes a Parquet file, complete or not at all."""

from pathlib import Path

import pyarrow.parquet

from multihead import load
from multihead.bulk.input import split_rows
from multihead.bulk.worker import Work, Worker
from tests.unit.bulk.conftest import make_job


def test_a_worker_writes_the_translations_of_its_part(trained: Path, tmp_path: Path) -> None:
    lines = ["copy a b c", "", "reverse a b c"]
    (tmp_path / "text").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    (part,) = split_rows({tmp_path / "text": 3}, 10)
    Worker(Work(job=make_job(10), model_folder=trained, output=tmp_path)).translate(part)
    table = pyarrow.parquet.read_table(tmp_path / "part-000000.parquet").to_pydict()
    expected = [one.text for one in load(trained, engine="torch").translate(lines, beam=1)]
    assert (table["id"], table["text"], table["translation"]) == ([0, 1, 2], lines, expected)
    assert not list(tmp_path.glob(".part-*"))
