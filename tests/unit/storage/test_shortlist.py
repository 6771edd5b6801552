"""A shortlist is stored with its model, and two of them can be merged."""

from pathlib import Path

import numpy as np

from multihead.storage.shortlist import Shortlist, load_shortlist
from multihead.text.tokenizer import EOS_ID


def test_a_shortlist_is_saved_and_loaded(tmp_path: Path) -> None:
    assert load_shortlist(tmp_path) is None
    stored = Shortlist(np.array([[0, 2], [1, EOS_ID], [0, 1], [2, 1]]), frequent=np.array([3, 1]))
    stored.save(tmp_path)
    loaded = load_shortlist(tmp_path)
    assert loaded is not None
    assert np.array_equal(loaded.candidates, stored.candidates)
    assert np.array_equal(loaded.frequent, stored.frequent)
    assert loaded.candidates.dtype == loaded.frequent.dtype == np.int64


def test_a_union_allows_what_either_shortlist_allows() -> None:
    one = Shortlist(np.array([[7, 5, EOS_ID], [6, EOS_ID, EOS_ID]]), np.array([9, 4]))
    other = Shortlist(np.array([[5, 8], [EOS_ID, EOS_ID]]), np.array([4, 10]))
    union = one.union(other)
    assert union.candidates.tolist() == [[5, 7, 8], [6, EOS_ID, EOS_ID]]
    assert union.frequent.tolist() == [4, 9, 10]
    assert union.union(one).candidates.tolist() == union.candidates.tolist()
