"""Batches: every pair once, no batch over budget, the order a function of (seed, epoch)."""

import math
from itertools import islice, takewhile
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from multihead.config.schema import DataConfig
from multihead.data import epochs
from multihead.data.augment import augmentation
from multihead.data.epochs import BatchPlan, Cursor, batch_plans, plan_window, shuffled_windows, split_step
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.data.shards import CorpusPart, Shards, ShardWriter
from multihead.text.tokenizer import BOS_ID, EOS_ID, SubwordTokenizer
from multihead.training.batch import Batch, collate, stream_batches, validation_batches
from tests.conftest import copy_or_reverse, write_pairs

Lengths = NDArray[np.int32]
lengths_strategy = st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=200).map(
    lambda rows: np.array(rows, dtype=np.int32)
)


def padded(lengths: Lengths, batch: NDArray[np.int64]) -> NDArray[np.int64]:
    """Tokens of each side of a batch, with the end symbol and padding."""
    sizes: NDArray[np.int64] = (lengths[batch].max(axis=0) + 1) * len(batch)
    return sizes


@given(lengths=lengths_strategy, budget=st.integers(41, 300), epoch=st.integers(0, 5))
def test_each_pair_comes_once_an_epoch(lengths: Lengths, budget: int, epoch: int) -> None:
    batches = plan_window(lengths, budget, 1, epoch)
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(lengths)))


@given(lengths=lengths_strategy, budget=st.integers(41, 300))
def test_no_batch_is_over_budget(lengths: Lengths, budget: int) -> None:
    assert all(padded(lengths, batch).max() <= budget for batch in plan_window(lengths, budget, 1, 0))


@given(lengths=lengths_strategy, budget=st.integers(41, 300))
def test_a_batch_is_cut_off_only_when_it_is_nearly_full(lengths: Lengths, budget: int) -> None:
    """A batch has at least 0.9 of the pairs that would fit, which limits the number of batches."""
    fewest = max(math.ceil(int(lengths[:, side].sum() + len(lengths)) / budget) for side in (0, 1))
    longest = int(lengths.max()) + 1
    most_needed = math.ceil(len(lengths) / math.ceil(0.9 * (budget // longest)))
    assert fewest <= len(plan_window(lengths, budget, 1, 0)) <= most_needed


def test_the_sizes_of_batches_are_few_and_round() -> None:
    """Five significant bits, except for the last batch: CPUs compile matrix products for every shape."""
    lengths = np.random.default_rng(0).integers(4, 40, (20_000, 2)).astype(np.int32)
    sizes = [len(batch) for batch in plan_window(lengths, 4096, 1, 0)]
    assert sum(size >= 1 << 5 and f"{size:b}"[5:].strip("0") != "" for size in sizes) <= 1
    assert len(set(sizes)) < 0.2 * len(sizes)


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, (500, 2)).astype(np.int32)
    first, again, other_epoch, other_seed = (
        [batch.tolist() for batch in plan_window(lengths, 200, *at)] for at in ((1, 0), (1, 0), (1, 1), (2, 0))
    )
    assert first == again
    assert first != other_epoch
    assert first != other_seed
    assert other_epoch != other_seed


def test_padding_is_under_3_percent_on_multi30k(multi30k: Path, tmp_path: Path) -> None:
    text = from_files(multi30k / "train.en.gz", multi30k / "train.de.gz")
    prepare(text, tmp_path / "data", DataConfig())
    lengths = Shards(tmp_path / "data", "train").lengths()
    total = sum(int(padded(lengths, batch).sum()) for batch in plan_window(lengths, 4096, 1, 0))
    assert 1 - (lengths + 1).sum() / total < 0.03


# From shards to tensors


@pytest.fixture
def shards(tmp_path: Path) -> Shards:
    rng = np.random.default_rng(0)
    with ShardWriter(tmp_path, "train", 100) as writer:
        for _ in range(60):
            source, target = (rng.integers(4, 100, rng.integers(1, 12)).tolist() for _ in range(2))
            writer.add(source, target)
    return Shards(tmp_path, "train")


def test_a_batch_has_its_control_symbols_in_place() -> None:
    batch = collate([(np.array([7, 8]), np.array([5])), (np.array([9]), np.array([6, 4, 7]))])
    assert batch.source.tolist() == [[7, 8, EOS_ID], [9, EOS_ID, 0]]
    assert batch.target_in.tolist() == [[BOS_ID, 5, 0, 0], [BOS_ID, 6, 4, 7]]
    assert batch.target_out.tolist() == [[5, EOS_ID, 0, 0], [6, 4, 7, EOS_ID]]
    assert batch.n_tokens == 6


def same(one: Batch, other: Batch) -> bool:
    return torch.equal(one.source, other.source) and torch.equal(one.target_out, other.target_out)


@pytest.mark.parametrize("taken", [1, 5, 9, 10, 11, 25])
def test_the_stream_goes_on_from_any_cursor(shards: Shards, taken: int) -> None:
    """In the middle of an epoch, at its edge, and in a later one."""
    whole = list(islice(stream_batches(shards, 60, 1, Cursor()), 40))
    rest = islice(stream_batches(shards, 60, 1, whole[taken - 1][1]), 40 - taken)
    assert all(same(one, other) and at == its for (one, at), (other, its) in zip(whole[taken:], rest, strict=True))


def test_the_cursor_counts_epochs(shards: Shards) -> None:
    n_batches = len(plan_window(shards.lengths(), 60, 1, 0))
    cursors = [cursor for _, cursor in islice(stream_batches(shards, 60, 1, Cursor()), n_batches)]
    assert cursors[0] == Cursor(epoch=0, batch=1)
    assert cursors[-1] == Cursor(epoch=1, batch=0)


def test_a_cursor_of_a_version_with_more_batches_goes_on_with_the_next_epoch(shards: Shards) -> None:
    begun, _ = next(batch_plans(shards, 60, 1, Cursor(epoch=3, batch=1000)))
    assert begun.cursor == Cursor(epoch=4)


def test_validation_batches_hold_the_first_pairs_once(shards: Shards) -> None:
    found = [int(pair) for pairs, _ in validation_batches(shards, 60, n_pairs=20) for pair in pairs]
    assert sorted(found) == list(range(20))


def test_augmented_batches_go_on_exactly_too(tmp_path: Path) -> None:
    text = from_files(*write_pairs(tmp_path, copy_or_reverse(80, seed=2)))
    prepare(text, tmp_path / "data", DataConfig())
    tokenizer = SubwordTokenizer.load(tmp_path / "data" / "tokenizer.json")
    pairs = Shards(tmp_path / "data", "train")
    augment = augmentation(tokenizer, DataConfig(bpe_dropout=0.5, casing_noise=0.5))
    whole = list(islice(stream_batches(pairs, 300, 1, Cursor(), augment), 20))
    rest = list(islice(stream_batches(pairs, 300, 1, whole[6][1], augment), 13))
    plain = list(islice(stream_batches(pairs, 300, 1, Cursor()), 20))
    assert all(same(one, other) for (one, _), (other, _) in zip(whole[7:], rest, strict=True))
    assert not all(same(one, other) for (one, _), (other, _) in zip(whole, plain, strict=True))


# Several processes


@given(lengths=lengths_strategy, budget=st.integers(41, 300), n_batches=st.integers(1, 7), world_size=st.integers(1, 5))
def test_shares_are_the_step_equal_in_number_and_in_work(
    lengths: Lengths, budget: int, n_batches: int, world_size: int
) -> None:
    step = [
        BatchPlan(pairs=pairs, cursor=Cursor(batch=at))
        for at, pairs in enumerate(plan_window(lengths, budget, 1, 0)[:n_batches])
    ]
    shares = [split_step(step, rank, world_size) for rank in range(world_size)]
    counted = [int(pair) for share in shares for _, batch in share if batch.contributes_loss for pair in batch.pairs]
    assert sorted(counted) == sorted(int(pair) for batch in step for pair in batch.pairs)
    assert len({len(share) for share in shares}) == 1
    for at, batch in enumerate(step):
        parts = [one.pairs for share in shares for place, one in share if place[0] == at and one.contributes_loss]
        longest = lengths[batch.pairs].max(axis=1)
        work = [int(lengths[part].max(axis=1).sum()) for part in parts]
        assert len(parts) == 1 or max(work) - min(work) <= longest.max()


def test_one_process_does_every_batch_whole() -> None:
    step = [BatchPlan(pairs=np.arange(3), cursor=Cursor(batch=at)) for at in range(4)]
    assert split_step(step, 0, 1) == [((at,), step[at]) for at in range(4)]


# Large corpora


def many_shards(folder: Path, n_pairs: int, parts: list[tuple[int, float]] | None = None) -> Shards:
    rng = np.random.default_rng(0)
    with ShardWriter(folder, "train", 2000) as writer:
        for at in range(n_pairs):
            writer.add([at % 1900] * int(rng.integers(1, 12)), [at % 1900] * int(rng.integers(1, 12)))
    weighted = [CorpusPart(pairs=pairs, target_tokens=0, weight=weight) for pairs, weight in parts or []]
    return Shards(folder, "train", weighted)


@pytest.fixture
def small_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(epochs, "BLOCK", 10)
    monkeypatch.setattr(epochs, "WINDOW", 4)


def epoch_of(shards: Shards, epoch: int) -> list[int]:
    coming = batch_plans(shards, 60, 1, Cursor(epoch=epoch))
    return [
        int(pair) for batch, _ in takewhile(lambda one: one[0].cursor.epoch == epoch, coming) for pair in batch.pairs
    ]


@pytest.mark.parametrize("n_pairs", [1, 9, 40, 41, 173])
def test_in_windows_too_each_pair_comes_once_an_epoch(small_windows: None, tmp_path: Path, n_pairs: int) -> None:
    shards = many_shards(tmp_path, n_pairs)
    first, second = epoch_of(shards, 0), epoch_of(shards, 1)
    assert sorted(first) == sorted(second) == list(range(n_pairs))
    assert n_pairs < 9 or first != second


@pytest.mark.parametrize("taken", [1, 12, 30, 60, 100])
def test_a_stream_of_windows_goes_on_from_any_cursor(small_windows: None, tmp_path: Path, taken: int) -> None:
    shards = many_shards(tmp_path, 173)
    whole = list(islice(stream_batches(shards, 60, 1, Cursor()), 140))
    rest = islice(stream_batches(shards, 60, 1, whole[taken - 1][1]), 140 - taken)
    assert all(same(one, other) and at == its for (one, at), (other, its) in zip(whole[taken:], rest, strict=True))


def test_pairs_come_as_often_as_their_corpus_weighs(small_windows: None, tmp_path: Path) -> None:
    shards = many_shards(tmp_path, 200, [(50, 1.0), (30, 3.0), (120, 0.5)])
    counts = np.zeros(200)
    for epoch in range(40):
        np.add.at(counts, epoch_of(shards, epoch), 1)
    assert counts[:50].tolist() == [40.0] * 50
    assert counts[50:80].tolist() == [120.0] * 30
    assert counts[80:].mean() == pytest.approx(20, rel=0.15)


def test_a_corpus_of_one_window_is_shuffled_as_a_whole(tmp_path: Path) -> None:
    shards = many_shards(tmp_path, 500)
    found = [batch.pairs.tolist() for batch, _ in islice(batch_plans(shards, 60, 1, Cursor()), 20)]
    assert found == [pairs.tolist() for pairs in plan_window(shards.lengths(), 60, 1, 0)[:20]]


def test_the_order_of_a_billion_pairs_takes_no_list_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is drawn for an epoch is an order of blocks; a window of it is a million pairs."""
    shards = object.__new__(Shards)
    shards.parts = [CorpusPart(pairs=1_000_000_000, target_tokens=0, weight=1.0)]
    windows = shuffled_windows(shards, seed=1, epoch=0)
    blocks = [block for window in windows for block in window.blocks]
    assert len(blocks) == 15_259
    assert sum(end - first for first, end in blocks) == 1_000_000_000
    assert max(sum(end - first for first, end in window.blocks) for window in windows) <= 1 << 20
