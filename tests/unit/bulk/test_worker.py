"""A part becomes a Parquet file, complete or not at all."""

import json
from dataclasses import asdict, replace
from pathlib import Path

import pyarrow.parquet
import pytest

from multihead import load
from multihead.bulk.input import split_rows
from multihead.bulk.job import Part
from multihead.bulk.worker import Work, Worker, is_complete
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
    assert is_complete(part, make_job(10), tmp_path)


def write_part(folder: Path) -> Path:
    """Write a part as a worker of `make_job(10)` does."""
    job = make_job(10)
    table = pyarrow.table({"id": range(3), "translation": ["one", "two", "three"]})
    path = folder / PART.name
    pyarrow.parquet.write_table(
        table.replace_schema_metadata({b"multihead.job": job.id}), path, write_page_checksum=True, compression="none"
    )
    return path


PART = Part(number=0, file="text", first_row=0, n_rows=3)


def test_a_part_is_complete_if_it_is_undamaged_and_of_the_job(tmp_path: Path) -> None:
    path = write_part(tmp_path)
    assert is_complete(PART, make_job(10), tmp_path)
    assert path.exists()


@pytest.mark.parametrize("damage", [b"", b"PAR1", None])
def test_a_damaged_part_does_not_count_and_is_removed(tmp_path: Path, damage: bytes | None) -> None:
    path = write_part(tmp_path)
    path.write_bytes(path.read_bytes().replace(b"three", b"thRee", 1) if damage is None else damage)
    assert not is_complete(PART, make_job(10), tmp_path)
    assert not path.exists()


def test_a_part_of_another_job_or_size_does_not_count(tmp_path: Path) -> None:
    write_part(tmp_path)
    assert not is_complete(PART, replace(make_job(10), version="2"), tmp_path)
    write_part(tmp_path)
    assert not is_complete(replace(PART, n_rows=4), make_job(10), tmp_path)


def test_what_stops_a_worker_is_reported_in_our_words(trained: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("copy a b c\n", encoding="utf-8")
    (part,) = split_rows({tmp_path / "text": 1}, 10)
    row = {"part": json.dumps(asdict(part))}
    job, missing = make_job(10), tmp_path / "missing"
    failed = Worker(Work(job=job, model_folder=trained, output=missing))(row)
    assert failed == {"rows": 0, "error": f"cannot translate {part.file} into {missing}: No such file or directory"}
    other_engine = Worker(
        Work(job=replace(job, searches_with="ctranslate2:int8"), model_folder=trained, output=tmp_path)
    )
    assert "--engine torch is torch on a worker, and ctranslate2:int8 here" in other_engine(row)["error"]
