"""The embeddings of a model for another vocabulary."""

import numpy as np
import pytest

from multihead.runs.new_vocabulary import UNKNOWN, shared_ids, transfer
from multihead.storage.arrays import Arrays
from multihead.text.tokenizer import SPECIAL_TOKENS, SubwordTokenizer

OLD_TEXT = ["the cat sees the dog", "a dog sees the cat", "the house"] * 3
NEW_TEXT = ["le chat voit the dog", "le chien voit le chat", "le chien"] * 3


@pytest.fixture(scope="module")
def old() -> SubwordTokenizer:
    return SubwordTokenizer.learn(OLD_TEXT, 300)


@pytest.fixture(scope="module")
def new() -> SubwordTokenizer:
    return SubwordTokenizer.learn(NEW_TEXT, 290, reserved=["<bt>"])


@pytest.fixture(scope="module")
def weights(old: SubwordTokenizer) -> Arrays:
    generator = np.random.default_rng(5)
    shapes = {
        "source_embedding.weight": (old.vocab_size, 16),
        "output.bias": (old.vocab_size,),
        "encoder.0.feed_forward.w_1.weight": (32, 16),
    }
    return {name: generator.normal(1.0, 0.2, shape).astype(np.float32) for name, shape in shapes.items()}


def test_a_piece_of_both_vocabularies_keeps_its_embedding_and_its_bias(
    weights: Arrays, old: SubwordTokenizer, new: SubwordTokenizer
) -> None:
    found = transfer(weights, old, new, seed=1)
    (before,), (after,) = old.encode("dog"), new.encode("dog")
    assert before != after
    for name in ("source_embedding.weight", "output.bias"):
        assert len(found[name]) == new.vocab_size
        assert np.array_equal(found[name][after], weights[name][before])
        assert np.array_equal(found[name][: len(SPECIAL_TOKENS)], weights[name][: len(SPECIAL_TOKENS)])


def test_other_pieces_have_the_spread_of_the_models_and_depend_on_the_seed_only(
    weights: Arrays, old: SubwordTokenizer, new: SubwordTokenizer
) -> None:
    name = "source_embedding.weight"
    first, again, other = (transfer(weights, old, new, seed)[name] for seed in (1, 1, 2))
    is_new = np.array(shared_ids(old, new)) == UNKNOWN
    assert 0 < is_new.sum() < new.vocab_size
    assert first[is_new].std() == pytest.approx(weights[name].std(), rel=0.3)
    assert np.array_equal(first, again)
    assert not np.array_equal(first[is_new], other[is_new])
    assert first.dtype == weights[name].dtype


def test_the_layers_stay_as_they_are(weights: Arrays, old: SubwordTokenizer, new: SubwordTokenizer) -> None:
    name = "encoder.0.feed_forward.w_1.weight"
    assert np.array_equal(transfer(weights, old, new, seed=1)[name], weights[name])


def test_a_vocabulary_has_all_of_its_own_pieces(old: SubwordTokenizer) -> None:
    assert shared_ids(old, old) == list(range(old.vocab_size))
