"""Weights move between models and folders by name."""

from pathlib import Path

import pytest
import torch

from multihead.errors import UserError
from multihead.model.transformer import Transformer
from multihead.model.weights import load_model, to_arrays, to_tensors, weights_of
from multihead.storage.arrays import write_arrays
from multihead.storage.checksums import update_checksum
from multihead.storage.model_folder import WEIGHTS
from multihead.text.tokenizer import SubwordTokenizer
from tests.conftest import store_model, tiny_shape

TOKENIZER = SubwordTokenizer.learn(["a b c"], 300)


def make_model() -> Transformer:
    torch.manual_seed(1)
    return Transformer(tiny_shape(vocab_size=TOKENIZER.vocab_size))


def test_a_stored_model_loads_ready_to_translate(tmp_path: Path) -> None:
    stored = store_model(tmp_path, make_model(), TOKENIZER)
    model, tokenizer, config = load_model(tmp_path)
    expected = weights_of(make_model())
    assert weights_of(model).keys() == expected.keys()
    assert all(torch.equal(weight, expected[name]) for name, weight in weights_of(model).items())
    assert (config, tokenizer.encode("a b")) == (stored.config, TOKENIZER.encode("a b"))
    assert not model.training


def test_weights_that_do_not_fit_the_configuration_are_refused_by_name(tmp_path: Path) -> None:
    weights = store_model(tmp_path, make_model(), TOKENIZER).weights()
    name, wrong = "encoder.0.feed_forward.w_1.weight", to_arrays({"x": torch.zeros(3, 3)})["x"]
    for changed in ({**weights, name: wrong}, {**weights, "extra": wrong}):
        write_arrays(tmp_path / WEIGHTS, changed)
        update_checksum(tmp_path, WEIGHTS)
        with pytest.raises(UserError, match="do not fit"):
            load_model(tmp_path)


def test_arrays_and_tensors_are_the_same_numbers() -> None:
    tensors = {"a": torch.randn(3, 2).T, "b": torch.tensor(1.5), "c": torch.arange(3).half()}
    again = to_tensors(to_arrays(tensors))
    assert all(
        torch.equal(again[name], tensor) and again[name].dtype == tensor.dtype for name, tensor in tensors.items()
    )
