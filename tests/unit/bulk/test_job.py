"""A job resumes in its own folder only."""

from dataclasses import replace
from pathlib import Path

import pytest

from multihead.bulk.job import start_or_resume
from multihead.errors import UserError
from tests.unit.bulk.conftest import make_job


def test_a_job_resumes_as_it_was_started_and_another_one_is_refused(tmp_path: Path) -> None:
    first = start_or_resume(make_job(7), tmp_path)
    assert start_or_resume(make_job(9), tmp_path) == first
    with pytest.raises(UserError, match="started with a different engine"):
        start_or_resume(replace(make_job(7), engine="auto"), tmp_path)


def test_a_folder_with_other_files_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").touch()
    with pytest.raises(UserError, match=r"contains other files \(mine\.txt\)"):
        start_or_resume(make_job(7), tmp_path)
