"""A job resumes in its own folder only."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from multihead.bulk.job import MANIFEST, start_or_resume
from multihead.config.schema import SearchConfig
from multihead.errors import UserError
from tests.unit.bulk.conftest import make_job


def test_a_job_resumes_as_it_was_started_and_another_one_is_refused(tmp_path: Path) -> None:
    first = start_or_resume(make_job(7), tmp_path)
    assert start_or_resume(make_job(9), tmp_path) == first
    with pytest.raises(UserError, match=r"started with a different engine \(torch, now auto\)"):
        start_or_resume(replace(make_job(7), engine="auto"), tmp_path)


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"model": {"config.json": "2"}}, r"model \(config.json\)"),
        ({"model": {"config.json": "1", "shortlist.safetensors": "1"}}, r"model \(shortlist.safetensors\)"),
        ({"files": {"/text": "1"}}, "files"),
        ({"searches_with": "ctranslate2:int8"}, "searches_with"),
        ({"search": SearchConfig(beam=2)}, "search"),
        ({"version": "2"}, r"version \(1, now 2\)"),
    ],
)
def test_whatever_could_change_a_translation_makes_it_another_job(
    tmp_path: Path, change: dict[str, Any], named: str
) -> None:
    start_or_resume(make_job(7), tmp_path)
    with pytest.raises(UserError, match=f"started with a different {named}.*choose another folder"):
        start_or_resume(replace(make_job(7), **change), tmp_path)


@pytest.mark.parametrize("content", ["{", "{}", "[]", '{"part_rows": true}', '{"part_rows": 1e9}', "\0", "[" * 100_000])
def test_a_damaged_manifest_is_refused_with_a_message(tmp_path: Path, content: str) -> None:
    (tmp_path / MANIFEST).write_text(content, encoding="utf-8")
    with pytest.raises(UserError, match=r"bulk\.json.*delete this one to start over"):
        start_or_resume(make_job(7), tmp_path)


def test_a_job_of_an_older_version_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / MANIFEST).write_text('{"part_rows": 7, "model": "0123"}', encoding="utf-8")
    with pytest.raises(UserError, match="another version of Multihead"):
        start_or_resume(make_job(7), tmp_path)


def test_a_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UserError, match=r"contains other files \(mine\.txt\)"):
        start_or_resume(make_job(7), tmp_path)
