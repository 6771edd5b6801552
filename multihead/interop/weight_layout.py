"""The weights of a model for another engine: every name, in float32, with other widths or another order of axes."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from multihead.config.schema import ModelConfig
from multihead.errors import UserError
from multihead.storage.arrays import Array, Arrays
from multihead.storage.model_folder import ModelFolder

Shape = tuple[int, ...]


def read_weights(model: ModelFolder) -> Arrays:
    """Return the weights of a model without mixers of its own, in float32, tied matrices under each of their names.

    Names and shapes are compared with the configuration, since other engines do not check them.
    """
    config, weights = model.config.model, model.weights()
    expected = dict(_expected_shapes(config))
    wrong = sorted(expected.keys() ^ weights.keys())
    wrong += [name for name, shape in expected.items() if name in weights and weights[name].shape != shape]
    if wrong:
        raise UserError(f"the weights in {model.path} do not fit its config.json: see '{wrong[0]}'")
    weights = {name: array.astype(np.float32, copy=False) for name, array in weights.items()}
    if config.tie_embeddings == "all":
        weights["target_embedding.weight"] = weights["source_embedding.weight"]
    if config.tie_embeddings != "none":
        weights["output.weight"] = weights["target_embedding.weight"]
    return weights


def _expected_shapes(config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    """Yield the name and shape of each array in model.safetensors."""
    matrix, vector = (config.vocab_size, config.d_model), (config.d_model,)
    yield "source_embedding.weight", matrix
    if config.tie_embeddings != "all":
        yield "target_embedding.weight", matrix
    if config.tie_embeddings == "none":
        yield "output.weight", matrix
    if config.output_bias:
        yield "output.bias", (config.vocab_size,)
    if config.positions == "learned":
        yield "positions", (config.max_len, config.d_model)
    for stack, n_layers, attentions in (
        ("encoder", config.encoder_layers, ["self_attention"]),
        ("decoder", config.decoder_layers, ["self_attention", "cross_attention"]),
    ):
        for layer in (f"{stack}.{n}" for n in range(n_layers)):
            for attention in attentions:
                yield from _attention_shapes(f"{layer}.{attention}", config)
            yield f"{layer}.feed_forward.w_1.weight", (config.d_ff, config.d_model)
            yield f"{layer}.feed_forward.w_1.bias", (config.d_ff,)
            yield f"{layer}.feed_forward.w_2.weight", (config.d_model, config.d_ff)
            yield f"{layer}.feed_forward.w_2.bias", vector
            for n in range(len(attentions) + 1):
                yield f"{layer}.residual_{n + 1}.norm.weight", vector
                yield f"{layer}.residual_{n + 1}.norm.bias", vector
        if config.norm == "pre":
            yield f"{stack}_norm.weight", vector
            yield f"{stack}_norm.bias", vector


def _attention_shapes(name: str, config: ModelConfig) -> Iterator[tuple[str, Shape]]:
    for projection, width in (("w_q", config.d_k), ("w_k", config.d_k), ("w_v", config.d_v)):
        yield f"{name}.{projection}.weight", (config.n_heads * width, config.d_model)
        if config.attention_bias:
            yield f"{name}.{projection}.bias", (config.n_heads * width,)
    yield f"{name}.w_o.weight", (config.d_model, config.n_heads * config.d_v)
    if config.attention_bias:
        yield f"{name}.w_o.bias", (config.d_model,)
    if config.positions == "relative" and name.endswith("self_attention"):
        distances = 2 * config.relative_distance + 1
        yield f"{name}.score.keys", (distances, config.d_k)
        yield f"{name}.score.values", (distances, config.d_v)


def head_width(config: ModelConfig) -> int:
    """Return the width of heads for engines in which queries, keys and values have the same width."""
    return max(config.d_k, config.d_v)


def pad_heads(name: str, array: Array, config: ModelConfig, width: int) -> Array:
    """Return a weight or bias of attention with heads of this width, and any other array unchanged.

    The padding is zero and changes no product. Scores are divided by the root of the wider head, so queries are scaled
    to make up for it.
    """
    old = InnerSizes.of(config)
    return resize_layer(name, array, old, old._replace(d_k=width, d_v=width))


class InnerSizes(NamedTuple):
    """The sizes inside of the sub-layers, which no other sub-layer sees."""

    n_heads: int
    d_k: int
    d_v: int
    d_ff: int

    @classmethod
    def of(cls, config: ModelConfig) -> "InnerSizes":
        return cls(config.n_heads, config.d_k, config.d_v, config.d_ff)


def resize_layer(name: str, array: Array, old: InnerSizes, new: InnerSizes) -> Array:
    """Return a weight or bias of a sub-layer with other inner sizes, and any other array unchanged.

    What is added is zero and changes no output. Its gradients are zero, so that training keeps it zero, and it can be
    removed again. Scores are divided by the root of d_k, so queries are scaled to make up for it.
    """
    match name.rpartition(".")[2]:
        case "w_q":
            scale = math.sqrt(new.d_k / old.d_k)
            return _resize(array, (old.n_heads, old.d_k), (new.n_heads, new.d_k)) * scale
        case "w_k":
            return _resize(array, (old.n_heads, old.d_k), (new.n_heads, new.d_k))
        case "w_v":
            return _resize(array, (old.n_heads, old.d_v), (new.n_heads, new.d_v))
        case "w_o" if array.ndim == 2:
            return _resize(array.T, (old.n_heads, old.d_v), (new.n_heads, new.d_v)).T
        case "w_1":
            return _resize(array, (1, old.d_ff), (1, new.d_ff))
        case "w_2" if array.ndim == 2:
            return _resize(array.T, (1, old.d_ff), (1, new.d_ff)).T
    return array


def _resize(array: Array, old: tuple[int, int], new: tuple[int, int]) -> Array:
    """Change the number of groups and of rows in each group; new rows are zero."""
    if old == new:
        return array
    n_groups, n_rows = np.minimum(old, new)
    resized = np.zeros((*new, *array.shape[1:]), array.dtype)  # H K D, or H K for a bias
    resized[:n_groups, :n_rows] = array.reshape(*old, *array.shape[1:])[:n_groups, :n_rows]
    return resized.reshape(-1, *array.shape[1:])


def sines_before_cosines(d_model: int) -> NDArray[np.int64]:
    """Return the order of the axes of d_model in which all sines precede all cosines, instead of alternating (§3.5).

    LayerNorm and residual sums do not depend on the order of the axes, so a model whose weights are all permuted alike
    is the same model.
    """
    return np.concatenate([np.arange(0, d_model, 2), np.arange(1, d_model, 2)])
