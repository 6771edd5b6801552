"""Weights for other engines: names and shapes are checked, and a wider head computes the same."""

from pathlib import Path

import numpy as np
import pytest
import torch

from multihead.interop.weight_layout import (
    InnerSizes,
    _expected_shapes,
    pad_heads,
    read_weights,
    resize_layer,
    sines_before_cosines,
)
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


def test_a_layer_of_other_sizes_computes_the_same_and_can_be_made_as_it_was() -> None:
    """Queries are scaled by two: the root of 16 / 4."""
    rng, old = np.random.default_rng(1), InnerSizes(n_heads=3, d_k=4, d_v=4, d_ff=5)
    new = InnerSizes(n_heads=5, d_k=16, d_v=6, d_ff=9)
    shapes = {"w_q": (12, 7), "w_k": (12,), "w_v": (12, 7), "w_o": (7, 12), "w_1": (5, 7), "w_2": (7, 5), "norm": (7,)}
    expected = {"w_q": (80, 7), "w_k": (80,), "w_v": (30, 7), "w_o": (7, 30), "w_1": (9, 7), "w_2": (7, 9)}
    for name, shape in shapes.items():
        array = rng.standard_normal(shape).astype(np.float32)
        resized = resize_layer(f"encoder.0.{name}", array, old, new)
        assert resized.shape == expected.get(name, shape)
        assert resized.dtype == np.float32
        assert abs(resized).sum() == pytest.approx(abs(array).sum() * (2 if name == "w_q" else 1))
        np.testing.assert_array_equal(resize_layer(f"encoder.0.{name}", resized, new, old), array)


def test_the_bias_after_a_layer_has_no_inner_size() -> None:
    bias = np.ones(12, np.float32)
    for name in ("w_o", "w_2"):
        assert resize_layer(name, bias, InnerSizes(3, 4, 4, 12), InnerSizes(5, 16, 6, 20)) is bias
