"""Shards read back what was written; a folder that is not a corpus is refused."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.data.shards import Shards, ShardWriter, read_summary
from multihead.errors import UserError

ids = st.lists(st.integers(0, 60_000), max_size=6)


def test_a_folder_that_is_not_a_corpus_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not a prepared corpus"):
        read_summary(tmp_path)
    (tmp_path / "corpus.json").write_text('{"x": 1}', encoding="utf-8")
    with pytest.raises(UserError, match=r"cannot read .*corpus\.json"):
        read_summary(tmp_path)


@given(pairs=st.lists(st.tuples(ids, ids), max_size=20), vocab_size=st.sampled_from([60_001, 70_000]))
def test_shards_read_back_what_was_written(
    tmp_path_factory: pytest.TempPathFactory, pairs: list[tuple[list[int], list[int]]], vocab_size: int
) -> None:
    folder = tmp_path_factory.mktemp("shards")
    with ShardWriter(folder, "train", vocab_size) as writer:
        for pair in pairs:
            writer.add(*pair)
    shards = Shards(folder, "train")
    assert [tuple(side.tolist() for side in shards[at]) for at in range(len(shards))] == pairs
    assert shards.lengths().tolist() == [[len(source), len(target)] for source, target in pairs]


def test_pairs_are_spread_over_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multihead.data.shards.SHARD_PAIRS", 7)
    with ShardWriter(tmp_path, "train", 100) as writer:
        for n in range(20):
            writer.add([n], [n, n])
    shards = Shards(tmp_path, "train")
    assert len(list(tmp_path.glob("*.tokens.npy"))) == 3
    assert [shards[n][1].tolist() for n in range(20)] == [[n, n] for n in range(20)]


def test_shards_are_memory_mapped(tmp_path: Path) -> None:
    with ShardWriter(tmp_path, "train", 100) as writer:
        writer.add([1], [2])
    assert isinstance(Shards(tmp_path, "train")[0][0].base, np.memmap)


def test_lengths_of_a_range_are_those_of_its_pairs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multihead.data.shards.SHARD_PAIRS", 7)
    with ShardWriter(tmp_path, "train", 100) as writer:
        for n in range(20):
            writer.add([1] * (n % 5), [2] * (n % 3))
    shards = Shards(tmp_path, "train")
    for first, end in ((0, 20), (3, 5), (5, 16), (7, 14), (13, 20), (9, 9)):
        assert shards.lengths(first, end).tolist() == [[n % 5, n % 3] for n in range(first, end)]
