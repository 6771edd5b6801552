"""Pairs that came before are found, however many there are."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.data import fingerprints
from multihead.data.fingerprints import DuplicateFinder

calls_strategy = st.lists(st.lists(st.integers(0, 9).map(lambda n: n * 2**60), max_size=20), max_size=12)


@pytest.mark.parametrize("waiting", [3, 1_000_000], ids=["on the disk", "in memory"])
@given(calls=calls_strategy)
def test_what_came_before_is_marked(
    tmp_path_factory: pytest.TempPathFactory, waiting: int, calls: list[list[int]]
) -> None:
    folder = tmp_path_factory.mktemp("duplicates")
    seen: set[int] = set()
    expected = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fingerprints, "FLUSH_AFTER", waiting)
        finder = DuplicateFinder(folder)
        for values in calls:
            finder.add(np.array(values, dtype=np.uint64))
            for value in values:
                expected.append(value in seen)
                seen.add(value)
        n_duplicates = finder.write_flags(folder / "duplicates.npy")
    assert n_duplicates == sum(expected)
    if expected:
        assert np.load(folder / "duplicates.npy").tolist() == expected
    assert not list(folder.glob("fingerprints-*"))


def test_nothing_is_written_of_nothing(tmp_path: Path) -> None:
    assert DuplicateFinder(tmp_path).write_flags(tmp_path / "duplicates.npy") == 0
    assert not list(tmp_path.iterdir())
