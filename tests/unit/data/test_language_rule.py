"""Pairs in the wrong language are dropped, swapped corpora refused; nothing is learned where it would be a guess."""

import random
from dataclasses import replace
from pathlib import Path

import pytest

from multihead.config.schema import DataConfig
from multihead.data.parallel_text import ParallelText, RawPair
from multihead.data.prepare import prepare
from multihead.data.shards import CorpusSummary
from multihead.errors import UserError
from multihead.storage.language_detector import FILE, load_detector
from tests.unit.text.test_detector import ENGLISH, GERMAN

CONFIG = DataConfig(source_lang="xx", target_lang="yy", max_length=64)
SWAPPED = 12


def corpus(n: int, seed: int, n_swapped: int = 0) -> list[RawPair]:
    rng = random.Random(seed)
    sides = [[" ".join(rng.choices(words, k=9)).encode() for _ in range(n)] for words in (ENGLISH, GERMAN)]
    pairs = list(zip(*sides, strict=True))
    return [(target, source) if n < n_swapped else (source, target) for n, (source, target) in enumerate(pairs)]


def prepared(folder: Path, text: ParallelText, config: DataConfig = CONFIG) -> CorpusSummary:
    return prepare(text, folder, config, vocabulary=270)


def test_swapped_pairs_are_dropped_with_examples(tmp_path: Path) -> None:
    summary = prepared(tmp_path / "data", ParallelText(train=corpus(800, 1, n_swapped=SWAPPED)))
    assert summary.cleaning["language"] == SWAPPED
    assert summary.cleaning["kept"] == 800 - SWAPPED
    rows = (tmp_path / "data" / "dropped.tsv").read_text(encoding="utf-8").splitlines()[1:]
    assert [row.split("\t")[0] for row in rows] == ["language"] * SWAPPED
    assert load_detector(tmp_path / "data") is not None


def test_the_rule_can_be_turned_off(tmp_path: Path) -> None:
    config = replace(CONFIG, drop_language=False)
    summary = prepared(tmp_path / "data", ParallelText(train=corpus(800, 1, n_swapped=SWAPPED)), config)
    assert summary.cleaning["kept"] == 800
    assert (tmp_path / "data" / FILE).exists()


def test_another_corpus_with_swapped_sides_is_refused(tmp_path: Path) -> None:
    swapped = corpus(600, 2, n_swapped=600)
    with pytest.raises(UserError, match="sides of corpus 2 are swapped"):
        prepared(tmp_path / "data", ParallelText(train=corpus(900, 1), extra_corpora=[(swapped, 1.0)]))
    assert not (tmp_path / "data").exists()


@pytest.mark.parametrize(
    ("languages", "text"),
    [
        (("xx", "yy"), corpus(100, 1)),  # too few
        (("", "yy"), corpus(700, 1)),
        (("xx", "xx"), corpus(700, 1)),
        (("xx", "yy"), [(b"a " * (n % 50 + 1) + b"%d" % n, b"%d" % n + b" a" * (n % 50 + 1)) for n in range(900)]),
    ],
)
def test_nothing_is_learned_where_it_would_be_a_guess(
    tmp_path: Path, languages: tuple[str, str], text: list[RawPair]
) -> None:
    config = replace(CONFIG, source_lang=languages[0], target_lang=languages[1])
    prepare(ParallelText(train=text), tmp_path / "data", config)
    assert not (tmp_path / "data" / FILE).exists()
