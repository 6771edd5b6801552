"""Weights in the layout of another engine: heads of another width, the axes of d_model in another order."""

import math

import torch
from torch import Tensor

from multihead.config.schema import ModelConfig


def head_width(config: ModelConfig) -> int:
    """The width of a head for who wants queries, keys and values of one width."""
    return max(config.d_k, config.d_v)


def pad_heads(name: str, part: Tensor, config: ModelConfig, width: int) -> Tensor:
    """A weight or bias of attention with heads of this width, and any other as it is.

    What is added is zero and changes no product. The root that scores are divided by is then that of the wider head,
    for which the queries make up.
    """
    match name.rpartition(".")[2]:
        case "w_q":
            return _append_zeros(part, config.d_k, width) * math.sqrt(width / config.d_k)
        case "w_k":
            return _append_zeros(part, config.d_k, width)
        case "w_v":
            return _append_zeros(part, config.d_v, width)
        case "w_o" if part.dim() == 2:
            return _append_zeros(part.mT, config.d_v, width).mT
    return part


def _append_zeros(part: Tensor, old: int, new: int) -> Tensor:
    """Rows of zeros behind every `old` rows, so that there are `new` of them."""
    heads = part.unflatten(0, (-1, old))  # H K D, or H K for a bias
    return torch.cat([heads, heads.new_zeros(len(heads), new - old, *heads.shape[2:])], dim=1).flatten(0, 1)


def sines_before_cosines(d_model: int) -> Tensor:
    """Where each axis of d_model comes from, if sines and cosines are to stand apart instead of taking turns (§3.5).

    Neither LayerNorm nor the residual sums mind the order of axes, so that a model whose weights are all put into
    another order is the same model.
    """
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])
