"""Pairs of an old corpus among new ones."""

from pathlib import Path

import numpy as np
import pytest

from multihead.config.schema import DataConfig
from multihead.data.epochs import shuffled_windows
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.data.rehearsal import Rehearsal
from multihead.data.shards import CorpusSummary, Shards, check_corpus, open_training_shards, read_summary
from multihead.text.tokenizer import SubwordTokenizer

CONFIG = DataConfig(source_lang="en", target_lang="de", max_length=32, batch_tokens=512)


def write_text(folder: Path, word: str, n_pairs: int) -> tuple[Path, Path]:
    folder.mkdir(exist_ok=True)
    files = folder / f"{word}.en", folder / f"{word}.de"
    for side, file in enumerate(files):
        file.write_text("".join(f"{word} {side} number {n}\n" for n in range(n_pairs)), encoding="utf-8")
    return files


@pytest.fixture(scope="module")
def old(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    prepare(from_files(*write_text(folder, "old", 400)), folder / "data", CONFIG)
    return folder / "data"


def rehearsed(old: Path, folder: Path, n_new: int, share: float = 1.0) -> CorpusSummary:
    tokenizer = SubwordTokenizer.load(old / "tokenizer.json")
    text = from_files(*write_text(folder, "new", n_new))
    return prepare(text, folder / "data", CONFIG, tokenizer, rehearsal=Rehearsal(old, share))


def sources(shards: Shards, data: Path) -> list[str]:
    tokenizer = SubwordTokenizer.load(data / "tokenizer.json")
    return [tokenizer.decode(shards[pair][0].tolist()) for pair in range(len(shards))]


@pytest.mark.parametrize(("n_new", "share"), [(100, 1.0), (100, 0.5), (600, 1.0), (40, 3.0)])
def test_an_epoch_has_as_many_old_pairs_for_each_new_one_as_asked(
    old: Path, tmp_path: Path, n_new: int, share: float
) -> None:
    rehearsed(old, tmp_path, n_new, share)
    check_corpus(tmp_path / "data")
    shards = open_training_shards(tmp_path / "data")
    texts = sources(shards, tmp_path / "data")
    counts = {"old": 0.0, "new": 0.0}
    for epoch in range(40):  # a fractional weight is drawn for each epoch
        for window in shuffled_windows(shards, seed=1, epoch=epoch):
            for pair in window.read(shards)[0].tolist():
                counts[texts[pair][:3]] += 1
    assert counts["old"] / counts["new"] == pytest.approx(share, rel=0.15)


def test_few_new_pairs_meet_the_whole_old_text_and_not_a_few_pairs_of_it(old: Path, tmp_path: Path) -> None:
    summary = rehearsed(old, tmp_path, 20)
    new, sample = summary.parts
    assert sample.pairs == read_summary(old).train_pairs > 10 * new.pairs
    assert new.weight == pytest.approx(sample.pairs / new.pairs)


def test_validation_pairs_of_both_alternate(old: Path, tmp_path: Path) -> None:
    summary = rehearsed(old, tmp_path, 400)
    valid = sources(Shards(tmp_path / "data", "valid"), tmp_path / "data")
    words = [text[:3] for text in valid]
    assert summary.valid_pairs == len(valid)
    assert words.count("old") == words.count("new") == 20
    assert words[:10].count("old") == 5


def test_no_validation_source_is_trained_on_whichever_text_it_comes_from(old: Path, tmp_path: Path) -> None:
    tokenizer = SubwordTokenizer.load(old / "tokenizer.json")
    text = from_files(*write_text(tmp_path, "old", 60))  # pairs of the old text
    prepare(text, tmp_path / "data", CONFIG, tokenizer, rehearsal=Rehearsal(old, 1.0))
    valid = sources(Shards(tmp_path / "data", "valid"), tmp_path / "data")
    assert len(valid) > 10
    assert set(valid).isdisjoint(sources(Shards(tmp_path / "data", "train"), tmp_path / "data"))


def test_the_weights_that_the_user_gave_identify_the_text(old: Path, tmp_path: Path) -> None:
    summary = rehearsed(old, tmp_path, 50)
    assert read_summary(tmp_path / "data") == summary
    assert summary.matches(from_files(tmp_path / "new.en", tmp_path / "new.de"))
    assert not summary.matches(from_files(tmp_path / "new.en", tmp_path / "new.de", weights=[2.0]))


def test_without_rehearsal_nothing_of_it_is_recorded(old: Path) -> None:
    assert "rehearsal" not in (old / "corpus.json").read_text(encoding="utf-8")


def test_few_pairs_of_a_large_weight_are_shuffled_among_the_others(tmp_path: Path) -> None:
    """Blocks that are repeated often do not count as many pairs."""
    write_text(tmp_path, "few", 20)
    write_text(tmp_path, "many", 300)
    sources, targets = ([tmp_path / f"{word}.{language}" for word in ("few", "many")] for language in ("en", "de"))
    prepare(from_files(sources, targets, weights=[50.0, 1.0]), tmp_path / "data", CONFIG)
    (window,) = shuffled_windows(open_training_shards(tmp_path / "data"), seed=1, epoch=0)
    assert len(np.unique(window.blocks, axis=0)) == 2
