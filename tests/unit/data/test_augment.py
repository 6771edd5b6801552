"""What a sentence may become while training, and what it may not."""

import random

import numpy as np
import pytest

from multihead.config.schema import DataConfig
from multihead.data.augment import augmentation, lowercase_or_unpunctuated, noisy_copies
from multihead.data.shards import Ids
from multihead.text.tokenizer import SubwordTokenizer

SOURCE, TARGET = "Where is the station?", "Wo ist der Bahnhof?"


@pytest.fixture(scope="module")
def tokenizer() -> SubwordTokenizer:
    return SubwordTokenizer.learn([SOURCE, TARGET] * 5, 320)


def ids(tokenizer: SubwordTokenizer, text: str) -> Ids:
    return np.array(tokenizer.encode(text), dtype=np.uint16)


def seen(tokenizer: SubwordTokenizer, config: DataConfig, times: int = 200) -> list[tuple[str, str, int]]:
    """Source, target and the pieces of both, each time that the pair comes by."""
    augment, rng = augmentation(tokenizer, config), random.Random(1)
    assert augment is not None
    pairs = [augment((ids(tokenizer, SOURCE), ids(tokenizer, TARGET)), rng) for _ in range(times)]
    return [
        (tokenizer.decode(source.tolist()), tokenizer.decode(target.tolist()), len(source) + len(target))
        for source, target in pairs
    ]


def test_nothing_is_changed_if_nothing_is_asked_for(tokenizer: SubwordTokenizer) -> None:
    assert augmentation(tokenizer, DataConfig()) is None


def test_haste_changes_the_source_and_never_the_target(tokenizer: SubwordTokenizer) -> None:
    found = seen(tokenizer, DataConfig(casing_noise=0.5))
    hasty = {"where is the station?", "Where is the station", "where is the station"}
    assert {source for source, _, _ in found} == {SOURCE, *hasty}
    assert {target for _, target, _ in found} == {TARGET}
    assert 70 < sum(source == SOURCE for source, _, _ in found) < 130


def test_a_text_of_nothing_but_marks_keeps_them() -> None:
    assert {lowercase_or_unpunctuated("?!", random.Random(seed)) for seed in range(20)} == {"?!"}


def test_bpe_dropout_changes_the_pieces_and_not_the_text(tokenizer: SubwordTokenizer) -> None:
    found = seen(tokenizer, DataConfig(bpe_dropout=0.3))
    assert {(source, target) for source, target, _ in found} == {(SOURCE, TARGET)}
    assert len({n_pieces for _, _, n_pieces in found}) > 3


def test_both_together(tokenizer: SubwordTokenizer) -> None:
    found = seen(tokenizer, DataConfig(bpe_dropout=0.3, casing_noise=0.5))
    assert {target for _, target, _ in found} == {TARGET}
    assert len({source for source, _, _ in found}) == 4
    assert len({n_pieces for source, _, n_pieces in found if source == SOURCE}) > 3


@pytest.mark.parametrize(("dropout", "haste"), [(0.99, 0.0), (0.0, 0.99)])
def test_a_sentence_that_becomes_too_long_stays_as_it_was(
    tokenizer: SubwordTokenizer, dropout: float, haste: float
) -> None:
    """Small letters that were never seen come in pieces of one letter."""
    longest = len(ids(tokenizer, SOURCE))
    augment = augmentation(tokenizer, DataConfig(max_length=longest, bpe_dropout=dropout, casing_noise=haste))
    assert augment is not None
    for seed in range(50):
        source, target = augment((ids(tokenizer, SOURCE), ids(tokenizer, TARGET)), random.Random(seed))
        assert max(len(source), len(target)) <= longest


def test_other_forms_are_those_of_haste(tokenizer: SubwordTokenizer) -> None:
    """A shortlist has to know the words of small letters, if the model is taught them."""
    assert noisy_copies(tokenizer, DataConfig(bpe_dropout=0.3)) is None
    forms = noisy_copies(tokenizer, DataConfig(casing_noise=0.1))
    assert forms is not None
    sources = [forms((ids(tokenizer, SOURCE), ids(tokenizer, TARGET)))[0] for _ in range(30)]
    found = {tokenizer.decode(source.tolist()) for source in sources}
    assert found == {"where is the station?", "Where is the station", "where is the station"}


def test_a_reserved_piece_stays_the_first_one(tokenizer: SubwordTokenizer) -> None:
    reserved = tokenizer.with_reserved([">>de<<"])
    augment, rng = augmentation(reserved, DataConfig(bpe_dropout=0.3, casing_noise=0.9)), random.Random(1)
    assert augment is not None
    source = np.array([reserved.reserved[">>de<<"], *reserved.encode(SOURCE)], dtype=np.uint16)
    seen = [augment((source, ids(reserved, TARGET)), rng)[0].tolist() for _ in range(50)]
    assert {found[0] for found in seen} == {reserved.reserved[">>de<<"]}
    assert len({reserved.decode(found) for found in seen}) > 2
