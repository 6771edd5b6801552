"""A few cases of each area of `make gauntlet`."""

from pathlib import Path

import pytest

from tests.gauntlet.__main__ import AREAS

LONG = ("kills", "disk", "damage", "ranks", "server")


@pytest.mark.parametrize(
    "area",
    [pytest.param(area, marks=pytest.mark.long if area in LONG else ()) for area in AREAS if area != "bulk"],
)
def test_no_case_fails(area: str, tmp_path: Path) -> None:
    """All of bulk is slow, since a cluster takes seconds to start; its own tests cover it."""
    row = AREAS[area](True, tmp_path)
    assert row.cases
    assert not row.failures
