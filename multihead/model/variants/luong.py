"""The alignment functions of Luong et al. (2015), as scores of multi-head attention with one function for each head.

General and concat weigh any keys. Location and local-p predict positions of the source from the query alone, so they
are defined for cross-attention only. Shapes as in transformer.py; q and k may have more axes between H and T.
"""

import math

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.incremental import KeysValues
from multihead.model.transformer import MultiHeadAttention, attention_weights, masked_softmax


def per_head(weight: Tensor, x: Tensor) -> Tensor:
    """Return a head's matrix (H K K) in the shape that multiplies x (B H … T K)."""
    return weight.view(len(weight), *[1] * (x.dim() - 4), *weight.shape[1:])


class General(nn.Module):
    """q · W k, with a matrix W for each head."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(config.n_heads, config.d_k, config.d_k))
        nn.init.normal_(self.w, std=1 / config.d_k)  # scores begin with variance 1

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return self.weights(q, k, mask) @ v  # B H T K

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ per_head(self.w, q) @ k.mT  # B H T S

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        return masked_softmax(self.scores(q, k), mask)  # B H T S


class Concat(nn.Module):
    """u · tanh(W [q; k]). W is stored as the half that multiplies q and the half that multiplies k."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        shape = config.n_heads, config.d_k, config.d_k
        self.of_queries, self.of_keys = nn.Parameter(torch.empty(shape)), nn.Parameter(torch.empty(shape))
        self.u = nn.Parameter(torch.empty(config.n_heads, config.d_k))
        for weight in (self.of_queries, self.of_keys, self.u):
            nn.init.normal_(weight, std=config.d_k**-0.5)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return self.weights(q, k, mask) @ v  # B H T K

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        q, k = q @ per_head(self.of_queries, q).mT, k @ per_head(self.of_keys, k).mT
        hidden = (q.unsqueeze(-2) + k.unsqueeze(-3)).tanh()  # B H T S K
        return (hidden @ per_head(self.u.unsqueeze(-1), hidden)).squeeze(-1)  # B H T S

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        return masked_softmax(self.scores(q, k), mask)  # B H T S


class Location(nn.Module):
    """W q, a score for each position of the source, whatever stands there."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(config.n_heads, config.max_len, config.d_k))
        nn.init.normal_(self.w, std=config.d_k**-0.5)

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return self.weights(q, k, mask) @ v  # B H T K

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ self.w[:, : k.size(-2)].mT  # B H T S

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        return masked_softmax(self.scores(q, k), mask)  # B H T S


class LocalP(nn.Module):
    """Attention in a window around a predicted position p = S · sigmoid(u · tanh(W q)).

    D is half of `window`, and the weights are those of §3.2.1 within D positions of p, times a Gaussian around p whose
    standard deviation is D / 2. So a row sums to less than 1. p has a gradient through the Gaussian.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.empty(config.n_heads, config.d_k, config.d_k))
        self.u = nn.Parameter(torch.empty(config.n_heads, config.d_k))
        for weight in (self.w, self.u):
            nn.init.normal_(weight, std=config.d_k**-0.5)
        self.reach = max(1, config.window // 2)  # D

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return self.weights(q, k, mask) @ v  # B H T K

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / math.sqrt(q.size(-1))  # B H T S

    def centers(self, q: Tensor, mask: Tensor) -> Tensor:
        """Return p, in positions from 0 to the length of the source: B H T 1."""
        hidden = (q @ self.w.mT).tanh()  # B H T K
        share: Tensor = (hidden @ self.u.unsqueeze(-1)).sigmoid()
        centers: Tensor = mask.sum(dim=-1, keepdim=True) * share
        return centers

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        distance = torch.arange(k.size(-2), device=k.device) - self.centers(q, mask)  # B H T S
        within = attention_weights(q, k, mask & (distance.abs() <= self.reach))
        return within * torch.exp(-2 * (distance / self.reach) ** 2)  # over twice the variance


class KeylessAttention(MultiHeadAttention):
    """Attention whose score looks at no key: it has no W^K, and passes the values in the place of the keys."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__(config, Location(config))
        del self.w_k

    def keys_values(self, x: Tensor) -> KeysValues:
        v = self._split_heads(self.w_v(x))  # B H S K
        return v, v
