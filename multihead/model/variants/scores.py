"""What stands in the place of the paper's parts, each with the signature of what it replaces, to be compared with it.

A score weighs the keys of each query (`model.Score`); a mixer lets the places of a sequence know of each other
(`model.Mixer`). One that is made for a decoder is causal: no place sees a later one, and given its `past` it takes one
step at a time. Padding is always behind what is real, so that a causal mixer need not know of it.

Shapes as in model.py, and N blocks of Q places that see C places each, P projected length, C2 = 2 · distance + 1.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.transformer import ScaledDotProduct, Score, attention_weights, fast_attention, masked_softmax

MASKED_DISTANCE = 1 << 30  # a distance at which nothing is seen

# Scores: how well a key fits a query


class DotProduct(nn.Module):
    """Luong et al. (2015): eq. (1) without the root of d_k."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return fast_attention(q, k, v, mask, scale=1.0)  # B H T K

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        return attention_weights(q, k, mask, scale=1.0)  # B H T S


class Additive(nn.Module):
    """Bahdanau et al. (2015): u · tanh(q + k), a feed-forward network with one hidden layer for every head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.empty(config.n_heads, config.d_k))
        nn.init.normal_(self.u, std=config.d_k**-0.5)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return self.weights(q, k, mask) @ v  # B H T K

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        hidden = (q.unsqueeze(-2) + k.unsqueeze(-3)).tanh()  # B H T S K
        u = self.u.view(len(self.u), *[1] * (q.dim() - 3), -1, 1)  # H 1 K 1
        return masked_softmax((hidden @ u).squeeze(-1), mask)  # B H T S


class RelativeScore(nn.Module):
    """Shaw et al. (2018): what a key and a value say also depends on how far they are from the query.

    Eq. (3) and (4) there. Distances beyond `relative_distance` count as that. They are counted along the sentence, of
    which the queries are the last; or they are those of `Tree`, which come as a mask of whole numbers.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.farthest = config.relative_distance
        self.keys = nn.Parameter(torch.empty(2 * self.farthest + 1, config.d_k))  # C2 K
        self.values = nn.Parameter(torch.empty(2 * self.farthest + 1, config.d_v))  # C2 K
        nn.init.xavier_uniform_(self.keys)
        nn.init.xavier_uniform_(self.values)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        weights = self.weights(q, k, mask)  # B H T S
        of_distance = weights.new_zeros(*weights.shape[:-1], len(self.values))  # B H T C2
        of_distance = of_distance.scatter_add(-1, self._distances(weights, mask), weights)
        return weights @ v + of_distance @ self.values  # B H T K

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        scores = q @ k.mT  # B H T S
        scores = scores + (q @ self.keys.mT).gather(-1, self._distances(scores, mask))
        visible = mask if mask.dtype == torch.bool else mask != MASKED_DISTANCE
        return masked_softmax(scores / math.sqrt(q.size(-1)), visible)  # B H T S

    def _distances(self, scores: Tensor, mask: Tensor) -> Tensor:
        """From each query to each key, as places in the tables: B H T S."""
        n_queries, n_keys = scores.shape[-2:]
        keys = torch.arange(n_keys, device=scores.device)
        along = keys - keys[n_keys - n_queries :].unsqueeze(1)  # T S
        distances = along if mask.dtype == torch.bool else mask
        return (distances.clamp(-self.farthest, self.farthest) + self.farthest).expand(scores.shape)


# Models


def make_score(config: ModelConfig) -> Score:
    """What weighs keys, but for relative positions, which are those of self-attention alone."""
    scores: dict[str, Callable[[], Score]] = {
        "scaled": ScaledDotProduct,
        "dot": DotProduct,
        "additive": partial(Additive, config),
    }
    return scores[config.attention_score]()
