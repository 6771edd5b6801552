"""Weights for other engines: names and shapes are checked, and a wider head computes the same."""

from pathlib import Path

import numpy as np
import pytest
import torch

from multihead.interop.weight_layout import _expected_shapes, pad_heads, read_weights, sines_before_cosines
from multihead.model.build import build_model
from multihead.model.weights import weights_of
from multihead.text.tokenizer import SubwordTokenizer
from tests.conftest import store_model, tiny_shape

TOKENIZER = SubwordTokenizer.learn(["a b c"], 300)


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"norm": "pre", "encoder_layers": 3},
        {"tie_embeddings": "target", "output_bias": True},
        {"tie_embeddings": "none", "attention_bias": True},
        {"positions": "learned"},
        {"positions": "relative", "relative_distance": 3},
        {"positions": "none"},
    ],
    ids=repr,
)
def test_the_expected_shapes_are_those_of_the_model(changes: dict[str, object]) -> None:
    config = tiny_shape(**changes)
    expected = {name: tuple(weight.shape) for name, weight in weights_of(build_model(config)).items()}
    assert dict(_expected_shapes(config)) == expected


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_tied_matrices_have_all_of_their_names(tmp_path: Path, tie: str) -> None:
    config = tiny_shape(vocab_size=TOKENIZER.vocab_size, tie_embeddings=tie)
    weights = read_weights(store_model(tmp_path, build_model(config), TOKENIZER))
    names = ["source_embedding.weight", "target_embedding.weight", "output.weight"]
    assert len({id(weights[name]) for name in names}) == {"all": 1, "target": 2, "none": 3}[tie]


def test_padded_heads_have_the_same_scores() -> None:
    config = tiny_shape()
    rng, heads = np.random.default_rng(1), config.n_heads
    w_q, w_k = (rng.standard_normal((heads * config.d_k, config.d_model)) for _ in "qk")
    x = rng.standard_normal(config.d_model)

    def scores(q: np.ndarray, k: np.ndarray, width: int) -> np.ndarray:
        products = (q @ x).reshape(heads, width) * (k @ x).reshape(heads, width)
        return np.asarray(products.sum(axis=1) / np.sqrt(width))

    padded = (pad_heads("w_q", w_q, config, 9), pad_heads("w_k", w_k, config, 9))
    np.testing.assert_allclose(scores(*padded, 9), scores(w_q, w_k, config.d_k), atol=1e-12)
    w_o = rng.standard_normal((config.d_model, heads * config.d_v))
    assert pad_heads("w_o", w_o, config, 9).shape == (config.d_model, heads * 9)


@pytest.mark.parametrize("d_model", [8, 7])
def test_sines_precede_cosines(d_model: int) -> None:
    order = sines_before_cosines(d_model)
    assert sorted(order) == list(range(d_model))
    assert torch.all(torch.from_numpy(order[: (d_model + 1) // 2] % 2 == 0))
