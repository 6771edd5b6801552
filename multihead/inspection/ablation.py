"""A model without some of its heads, for as long as a measurement takes.

A head reaches the rest of the model only through its columns of W^O (§3.2.2), so zeros there remove it.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import cast

import torch
from torch import nn

from multihead.inspection.head_roles import SIDES, Head
from multihead.model.transformer import DecoderLayer, EncoderLayer, MultiHeadAttention, Transformer


def heads_of(model: Transformer) -> list[Head]:
    """Return the heads of a model in the order of `head_roles`; layers without multi-head attention have none."""
    return [
        Head(side, layer, head)
        for side in SIDES
        for layer, attention in enumerate(_attentions(model, side))
        if attention
        for head in range(attention.n_heads)
    ]


@contextmanager
def without_heads(model: Transformer, heads: Iterable[Head]) -> Iterator[None]:
    """Remove heads from a model, and put them back afterwards."""
    columns = [_columns(model, head) for head in heads]
    with torch.no_grad():
        kept = [weights.clone() for weights in columns]
        for weights in columns:
            weights.zero_()
    try:
        yield
    finally:
        with torch.no_grad():
            for weights, original in zip(columns, kept, strict=True):
                weights.copy_(original)


def _columns(model: Transformer, head: Head) -> torch.Tensor:
    """Return the columns of W^O that a head is multiplied with, as a view."""
    attention = _attentions(model, head.side)[head.layer]
    assert attention, head
    width = attention.w_o.in_features // attention.n_heads
    return attention.w_o.weight.detach()[:, head.number * width : (head.number + 1) * width]


def _attentions(model: Transformer, side: str) -> list[MultiHeadAttention | None]:
    """Return the attention of each layer; None for another mixer."""
    layers = cast("list[EncoderLayer | DecoderLayer]", list(model.encoder if side == "encoder" else model.decoder))
    return [
        _attention(getattr(layer, "cross_attention" if side == "cross" else "self_attention", None)) for layer in layers
    ]


def _attention(module: nn.Module | None) -> MultiHeadAttention | None:
    """Return a sub-layer's multi-head attention: itself, or that inside of a sparse one."""
    found = module if isinstance(module, MultiHeadAttention) else getattr(module, "heads", None)
    return found if isinstance(found, MultiHeadAttention) else None
