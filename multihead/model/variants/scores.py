"""Scores: alternatives to scaled dot-product attention, with its signature (`transformer.Score`).

Shapes as in transformer.py; C is the number of distances that are told apart, 2 · relative_distance + 1.
"""

import math
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor, nn

from multihead.config.schema import SOURCE_SCORES, ModelConfig
from multihead.model.transformer import ScaledDotProduct, Score, attention_weights, fast_attention, masked_softmax
from multihead.model.variants.luong import Concat, General, LocalP, Location


class DotProduct(nn.Module):
    """Eq. (1) without the division by √d_k (Luong et al., 2015)."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return fast_attention(q, k, v, mask, scale=1.0, training=self.training)  # B H T K

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT  # B H T S

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        return attention_weights(q, k, mask, scale=1.0)  # B H T S


class Additive(nn.Module):
    """u · tanh(q + k), a feed-forward network with one hidden layer per head (Bahdanau et al., 2015)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.u = nn.Parameter(torch.empty(config.n_heads, config.d_k))
        nn.init.normal_(self.u, std=config.d_k**-0.5)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return self.weights(q, k, mask) @ v  # B H T K

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        hidden = (q.unsqueeze(-2) + k.unsqueeze(-3)).tanh()  # B H T S K
        u = self.u.view(len(self.u), *[1] * (q.dim() - 3), -1, 1)  # H 1 K 1
        return (hidden @ u).squeeze(-1)  # B H T S

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        return masked_softmax(self.scores(q, k), mask)  # B H T S


class RelativeScore(nn.Module):
    """Keys and values that depend on their distance to the query (Shaw et al., 2018, eq. (3) and (4)).

    Distances are clipped to `relative_distance`. By default they are those in the sentence, the queries being its last
    tokens; with a dependency tree they are passed as `distances` (B 1 T S).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.farthest = config.relative_distance
        self.keys = nn.Parameter(torch.empty(2 * self.farthest + 1, config.d_k))  # C K
        self.values = nn.Parameter(torch.empty(2 * self.farthest + 1, config.d_v))  # C K
        nn.init.xavier_uniform_(self.keys)
        nn.init.xavier_uniform_(self.values)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, distances: Tensor | None = None) -> Tensor:
        weights = self.weights(q, k, mask, distances)  # B H T S
        by_distance = weights.new_zeros(*weights.shape[:-1], len(self.values))  # B H T C
        by_distance = by_distance.scatter_add(-1, self._table_rows(weights, distances), weights)
        return weights @ v + by_distance @ self.values  # B H T K

    def scores(self, q: Tensor, k: Tensor, distances: Tensor | None = None) -> Tensor:
        scores = q @ k.mT  # B H T S
        scores = scores + (q @ self.keys.mT).gather(-1, self._table_rows(scores, distances))
        return scores / math.sqrt(q.size(-1))

    def weights(self, q: Tensor, k: Tensor, mask: Tensor, distances: Tensor | None = None) -> Tensor:
        return masked_softmax(self.scores(q, k, distances), mask)  # B H T S

    def _table_rows(self, scores: Tensor, distances: Tensor | None) -> Tensor:
        """Return which row of the tables belongs to each query and key: B H T S."""
        if distances is None:
            n_queries, n_keys = scores.shape[-2:]
            index = torch.arange(n_keys, device=scores.device)
            distances = index - index[n_keys - n_queries :].unsqueeze(1)  # T S
        return (distances.clamp(-self.farthest, self.farthest) + self.farthest).expand(scores.shape)


def make_score(config: ModelConfig, *, of_source: bool = False, is_causal: bool = False) -> Score:
    """Return the score named by `attention_score`; build.py replaces it where positions are relative.

    Scores that predict a position of the source are for attention `of_source` only; other layers keep the paper's.
    """
    scores: dict[str, Callable[[], Score]] = {
        "scaled": partial(ScaledDotProduct, is_causal),
        "dot": DotProduct,
        "additive": partial(Additive, config),
        "general": partial(General, config),
        "concat": partial(Concat, config),
        "location": partial(Location, config),
        "local-p": partial(LocalP, config),
    }
    predicts_position = config.attention_score in SOURCE_SCORES
    return scores["scaled" if predicts_position and not of_source else config.attention_score]()
