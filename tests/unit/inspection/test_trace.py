"""Every tensor of a pass is recorded: they lead from the embeddings to the logits, for every configuration."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
import torch

from multihead.config.schema import NOT_CAUSAL
from multihead.errors import UserError
from multihead.inspection.record import record
from multihead.inspection.trace import Trace, record_trace
from multihead.model.build import MIXERS, build_model
from multihead.model.transformer import MultiHeadAttention, Transformer
from multihead.text.dependency_trees import NO_HEAD
from multihead.text.tokenizer import BOS_ID, EOS_ID
from tests.conftest import tiny_shape

SOURCE, TARGET = [7, 8, 9, 10, EOS_ID], [BOS_ID, 11, 12, 13, 14, 15]
HEADS = [1, -1, 1, 1, NO_HEAD]  # of the dependency tree: the second word is the root

Shape = Mapping[str, object]

SHAPES: list[Shape] = [
    {},
    {"norm": "pre"},
    *[{"activation": name} for name in ("gelu", "swish")],
    *[{"positions": name} for name in ("learned", "relative", "tree", "none")],
    *[{"attention_score": name} for name in ("dot", "additive", "general", "concat", "location", "local-p")],
    *[{"cross": name} for name in ("last", "mean")],
    {"cross": "convs2s", "n_heads": 1, "d_k": 12, "d_v": 12},
    *[{"encoder_mixer": name, "window": 4} for name in sorted(MIXERS)],
    *[{"decoder_mixer": name, "window": 4} for name in sorted(set(MIXERS) - set(NOT_CAUSAL))],
    {"tie_embeddings": "none", "attention_bias": True, "output_bias": True, "norm": "pre"},
]
FULL_ATTENTION = [
    shape
    for shape in SHAPES
    if not {"cross", "encoder_mixer", "decoder_mixer"} & set(shape)
    and shape.get("positions") not in ("relative", "tree")  # which add vectors to the values
    and shape.get("attention_score") not in ("location", "local-p")  # which look at places of the source
]


def make(**changes: object) -> Transformer:
    torch.manual_seed(1)
    return build_model(tiny_shape(**changes)).eval()


def heads_of(model: Transformer) -> list[int] | None:
    return HEADS if model.config.positions == "tree" else None


def trace_of(model: Transformer) -> Trace:
    return record_trace(model, SOURCE, TARGET, heads_of(model))


def name_of(shape: Shape) -> str:
    return " ".join(map(str, shape.values())) or "paper"


def assert_close(found: Any, expected: Any) -> None:
    np.testing.assert_allclose(np.asarray(found), np.asarray(expected), atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shape", [*SHAPES, {"system": "memory-network"}], ids=name_of)
@torch.inference_mode()
def test_the_logits_are_those_of_the_model(shape: Shape) -> None:
    model = make(**shape)
    heads = heads_of(model)
    expected = model(
        torch.tensor([SOURCE]), torch.tensor([TARGET]), None if heads is None else torch.tensor([heads])
    ).squeeze(0)
    np.testing.assert_allclose(trace_of(model)["logits"], expected, atol=1e-6, rtol=1e-6)


@pytest.mark.parametrize("shape", SHAPES, ids=name_of)
@torch.inference_mode()
def test_every_sub_layer_adds_to_what_came_in_until_the_logits_are_there(shape: Shape) -> None:
    model = make(**shape)
    trace = trace_of(model)
    is_post = model.config.norm == "post"
    last = "norm" if is_post else "sum"
    for side, stack, parts in (("source", "encoder", ("self", "ffn")), ("target", "decoder", ("self", "cross", "ffn"))):
        x = trace[f"{side}.input"]
        for layer in range(len(getattr(model, stack))):
            for part in parts:
                name = f"{stack}.{layer}.{part}"
                assert_close(trace[f"{name}.sum"], x + trace[f"{name}.output"])
                x = trace[f"{name}.{last}"]
        norm = getattr(model, f"{stack}_norm")
        assert_close(trace["memory" if stack == "encoder" else "hidden"], norm(torch.from_numpy(x)))
    assert_close(trace["logits"], model.output(torch.from_numpy(trace["hidden"])))


@pytest.mark.parametrize("shape", FULL_ATTENTION, ids=name_of)
@torch.inference_mode()
def test_the_steps_of_attention_lead_from_scores_to_the_output(shape: Shape) -> None:
    model = make(**shape)
    trace = trace_of(model)
    modules: dict[str, Any] = {
        **{f"encoder.{n}.self": layer.self_attention for n, layer in enumerate(model.encoder)},
        **{f"decoder.{n}.self": layer.self_attention for n, layer in enumerate(model.decoder)},
        **{f"decoder.{n}.cross": layer.cross_attention for n, layer in enumerate(model.decoder)},
    }
    for name, module in modules.items():
        assert isinstance(module, MultiHeadAttention)
        steps = {key: torch.from_numpy(trace[f"{name}.{key}"]) for key in ("masked", "weights", "v", "heads", "concat")}
        assert_close(steps["weights"], steps["masked"].softmax(dim=-1))
        assert_close(steps["heads"], steps["weights"] @ steps["v"])
        assert_close(steps["concat"], steps["heads"].transpose(0, 1).flatten(1))
        assert_close(trace[f"{name}.output"], module.w_o(steps["concat"]))


def test_scores_are_products_of_queries_and_keys_divided_by_the_root_of_d_k() -> None:
    model = make()
    trace = trace_of(model)
    products = trace["decoder.1.cross.q"] @ trace["decoder.1.cross.k"].swapaxes(-1, -2)
    assert_close(trace["decoder.1.cross.products"], products)
    assert_close(trace["decoder.1.cross.scores"], products / model.config.d_k**0.5)


def test_the_input_is_the_scaled_embedding_and_the_position() -> None:
    model = make()
    trace = trace_of(model)
    embedding = model.source_embedding.weight.detach()[SOURCE]
    assert_close(trace["source.embedding"], embedding)
    assert_close(trace["source.scaled"], embedding * model.config.d_model**0.5)
    assert_close(trace["source.input"], trace["source.scaled"] + trace["source.positions"])


def test_later_positions_of_the_target_have_the_score_minus_infinity() -> None:
    masked = trace_of(make())["decoder.0.self.masked"]
    assert np.array_equal(
        np.isneginf(masked), np.broadcast_to(np.triu(np.ones(masked.shape[1:]), 1) == 1, masked.shape)
    )


def test_attention_maps_are_a_view_of_the_trace() -> None:
    model = make()
    trace = trace_of(model)
    encoder, decoder, cross = record(model, SOURCE, TARGET)
    for maps, name in ((encoder, "encoder.{}.self"), (decoder, "decoder.{}.self"), (cross, "decoder.{}.cross")):
        for layer, weights in enumerate(maps):
            assert np.array_equal(weights, trace[f"{name.format(layer)}.weights"])


def test_a_neural_gpu_has_nothing_to_show() -> None:
    with pytest.raises(UserError, match="no attention"):
        trace_of(make(system="neural-gpu"))
