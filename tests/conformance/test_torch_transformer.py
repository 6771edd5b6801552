"""The same weights in torch.nn.Transformer give the same numbers."""

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from multihead.model.positions import sinusoids
from multihead.model.transformer import MultiHeadAttention, Transformer
from tests.conftest import tiny_shape

Pick = Callable[[Tensor], Tensor]


def peer_of(model: Transformer) -> nn.Transformer:
    """torch's own Transformer with our weights: it stacks q, k and v, and wants d_k = d_v = d_model / heads."""
    config = model.config
    peer = nn.Transformer(
        config.d_model,
        config.n_heads,
        config.encoder_layers,
        config.decoder_layers,
        config.d_ff,
        dropout=0.0,
        batch_first=True,
        norm_first=config.norm == "pre",
    )
    if config.norm == "post":
        peer.encoder.norm = peer.decoder.norm = None  # the paper has no norm after the stacks
    theirs = dict(peer.named_parameters())
    with torch.no_grad():
        for name, tensor in _by_their_names(model, lambda parameter: parameter).items():
            theirs.pop(name).copy_(tensor)
    assert not theirs, f"left untouched: {list(theirs)}"
    return peer


def _by_their_names(model: Transformer, pick: Pick) -> dict[str, Tensor]:
    """What `pick` takes from each of our parameters, by the names of theirs."""

    def module(at: str, ours: nn.Module) -> dict[str, Tensor]:
        return {at + name: pick(parameter) for name, parameter in ours.named_parameters()}

    def attention(at: str, heads: MultiHeadAttention) -> dict[str, Tensor]:
        stacked = (heads.w_q, heads.w_k, heads.w_v)
        return {
            at + "in_proj_weight": torch.cat([pick(linear.weight) for linear in stacked]),
            at + "in_proj_bias": torch.cat([pick(linear.bias) for linear in stacked]),
            **module(at + "out_proj.", heads.w_o),
        }

    names: dict[str, Tensor] = {}
    for stack in ("encoder", "decoder"):
        for number, layer in enumerate(getattr(model, stack)):
            at = f"{stack}.layers.{number}."
            names |= attention(at + "self_attn.", layer.self_attention)
            names |= module(at + "linear1.", layer.feed_forward.w_1) | module(at + "linear2.", layer.feed_forward.w_2)
            if stack == "decoder":
                names |= attention(at + "multihead_attn.", layer.cross_attention)
            for which in range(1, 3 + (stack == "decoder")):
                names |= module(f"{at}norm{which}.", getattr(layer, f"residual_{which}").norm)
        names |= module(f"{stack}.norm.", getattr(model, f"{stack}_norm"))
    return names


def peer_logits(peer: nn.Transformer, model: Transformer, source: Tensor, target: Tensor) -> Tensor:
    def embed(ids: Tensor) -> Tensor:
        scaled: Tensor = model.source_embedding(ids) * math.sqrt(model.config.d_model)
        return scaled + torch.from_numpy(sinusoids(ids.size(1), model.config.d_model))

    padding, n_target = source == 0, target.size(1)
    hidden = peer(
        embed(source),
        embed(target),
        tgt_mask=torch.ones(n_target, n_target, dtype=torch.bool).triu(1),
        src_key_padding_mask=padding,
        memory_key_padding_mask=padding,
    )
    logits: Tensor = hidden @ model.source_embedding.weight.T
    return logits


@pytest.mark.filterwarnings("ignore:enable_nested_tensor")  # torch on a fast path that training does not take
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_outputs_and_gradients_equal_those_of_torch(norm: str) -> None:
    torch.manual_seed(3)
    shape = tiny_shape(norm=norm, d_model=24, n_heads=3, d_k=8, d_v=8, attention_bias=True)
    model = Transformer(shape)
    for parameter in model.parameters():  # biases and norms start at 0 and 1, and would hide a mix-up
        nn.init.normal_(parameter, std=0.3)
    peer = peer_of(model)
    source, target = torch.randint(4, 31, (3, 9)), torch.randint(4, 31, (3, 7))
    source[1, 5:] = 0

    ours, theirs = model(source, target), peer_logits(peer, model, source, target)
    torch.testing.assert_close(ours, theirs, atol=1e-4, rtol=1e-5)

    shared = model.source_embedding.weight
    nn.functional.cross_entropy(ours.flatten(0, 1), target.flatten()).backward()
    ours_by_name = _by_their_names(model, gradient)
    our_shared_gradient, shared.grad = gradient(shared), None
    nn.functional.cross_entropy(theirs.flatten(0, 1), target.flatten()).backward()
    for name, parameter in peer.named_parameters():
        torch.testing.assert_close(ours_by_name[name], gradient(parameter), atol=1e-5, rtol=1e-3)
    torch.testing.assert_close(our_shared_gradient, gradient(shared), atol=1e-5, rtol=1e-3)


def gradient(parameter: Tensor) -> Tensor:
    assert parameter.grad is not None
    return parameter.grad
