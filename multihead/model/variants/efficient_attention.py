"""Mixers that attend to a part of the sentence: local attention, BigBird and Linformer.

Shapes as in transformer.py; N blocks of Q queries, each of which sees C positions; P projected length.
"""

import math
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.incremental import LayerCache
from multihead.model.transformer import MultiHeadAttention
from multihead.model.variants.scores import make_score


class SparseAttention(nn.Module):
    """Self-attention restricted to a neighborhood (§4), optionally with BigBird's global and random positions.

    A position sees those at most half a window away. With `n_global`, the first positions see all others and are seen
    by all; with `n_random`, each block of half a window also sees that many random blocks of its sentence. Time and
    memory grow with window · length, since only the visible positions are gathered and multiplied.
    """

    def __init__(self, config: ModelConfig, layer: int, causal: bool, n_global: int = 0, n_random: int = 0) -> None:
        super().__init__()
        self.heads = MultiHeadAttention(config, make_score(config))
        self.causal, self.n_global = causal, n_global
        self.reach = max(1, config.window // 2)  # also the length of a block
        n_blocks = math.ceil(config.max_len / self.reach)
        rng = random.Random(layer)
        draws = [[rng.randrange(2**31) for _ in range(n_random)] for _ in range(n_blocks)]
        self.draws: Tensor
        self.register_buffer("draws", torch.tensor(draws, dtype=torch.int64).view(n_blocks, n_random), persistent=False)

    def forward(self, x: Tensor, mask: Tensor, cache: LayerCache | None = None) -> Tensor:
        if cache is not None:
            return self._step(x, cache)
        is_real = self._is_real(x, mask)  # B S
        q, (k, v) = self.heads.queries(x), self.heads.keys_values(x)  # B H S K
        positions = self._positions(is_real)  # B N C
        blocks = F.pad(q, (0, 0, 0, -q.size(2) % self.reach)).unflatten(2, (-1, self.reach))  # B H N Q K
        heads = self.heads.score(
            blocks, gather_positions(k, positions), gather_positions(v, positions), self._visible(positions, is_real)
        )  # B H N Q K
        heads = heads.flatten(2, 3)[:, :, : x.size(1)]  # B H S K
        if self.n_global:
            first = self.heads.score(q[:, :, : self.n_global], k, v, is_real[:, None, None])
            heads = torch.cat([first, heads[:, :, self.n_global :]], dim=2)
        return self.heads.merge(heads)

    def _step(self, x: Tensor, cache: LayerCache) -> Tensor:
        k, v = self.heads.keys_values(x)  # R H 1 K
        if cache.length:
            k = torch.cat([cache.tensors["k"][:, :, -self.reach :], k], dim=2)  # R H T K
            v = torch.cat([cache.tensors["v"][:, :, -self.reach :], v], dim=2)
        cache.tensors = {"k": k, "v": v}
        visible = torch.ones(1, k.size(2), dtype=torch.bool, device=x.device)
        return self.heads.merge(self.heads.score(self.heads.queries(x), k, v, visible))

    def _is_real(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if self.causal else mask[:, 0, 0]  # B S

    def _positions(self, is_real: Tensor) -> Tensor:
        """Return the positions that each block may see (B N C): global ones, a window, random blocks; -1 for none."""
        reach, n_blocks = self.reach, math.ceil(is_real.size(1) / self.reach)
        starts = torch.arange(0, n_blocks * reach, reach, device=is_real.device).unsqueeze(1)  # N 1
        window = starts + torch.arange(-reach, reach if self.causal else 2 * reach, device=is_real.device)  # N C
        first = torch.arange(self.n_global, device=is_real.device).expand(n_blocks, -1)
        fixed = torch.cat([first, window], dim=1).expand(len(is_real), -1, -1)
        positions = torch.cat([fixed, self._random_positions(is_real, n_blocks)], dim=2)  # B N C
        return positions.masked_fill(positions >= n_blocks * reach, -1).clamp_min(-1)

    def _random_positions(self, is_real: Tensor, n_blocks: int) -> Tensor:
        """Return the positions in each block's random blocks. They depend on the sentence, but not on its padding."""
        blocks_in_sentence = ((is_real.sum(dim=1) + self.reach - 1) // self.reach).clamp_min(1)  # B
        blocks = self.draws[:n_blocks] % blocks_in_sentence[:, None, None]  # B N, random blocks
        is_repeated = (blocks.unsqueeze(-1) == blocks.unsqueeze(-2)).tril(-1).any(dim=-1)
        blocks = blocks.masked_fill(is_repeated, n_blocks)  # beyond the end, which nothing sees
        return (blocks.unsqueeze(-1) * self.reach + torch.arange(self.reach, device=blocks.device)).flatten(2)

    def _visible(self, positions: Tensor, is_real: Tensor) -> Tensor:
        """Return which of a block's positions (B N C) each of its queries may see, none of them twice: B 1 N Q C."""
        n_blocks, n_columns = positions.shape[1:]
        query = torch.arange(n_blocks * self.reach, device=positions.device).view(1, n_blocks, self.reach, 1)
        distance = positions.unsqueeze(2) - query  # B N Q C
        near = distance.abs() <= self.reach
        column = torch.arange(n_columns, device=positions.device)
        n_window = (2 if self.causal else 3) * self.reach
        is_global, is_random = column < self.n_global, column >= self.n_global + n_window
        in_window = near & ~is_random & (distance <= 0 if self.causal else ~is_global)
        elsewhere = ~near & is_random
        allowed = is_global | (in_window | elsewhere) & (positions >= self.n_global).unsqueeze(2)
        padded = F.pad(is_real, (0, n_blocks * self.reach - is_real.size(1)))
        real = padded.gather(1, positions.clamp_min(0).flatten(1)).view_as(positions) & (positions >= 0)  # B N C
        # Every position sees itself, so that padding has something to attend to.
        itself = (distance == 0) & ~is_global & ~is_random
        return (allowed & real.unsqueeze(2) | itself).unsqueeze(1)

    def weights(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return the weights of all positions, by the definition: full attention under a mask."""
        return self.heads.weights(x, self.dense_mask(x, mask))  # B H S S

    def dense_mask(self, x: Tensor, mask: Tensor) -> Tensor:
        """Return which position sees which, as a mask for full attention: B 1 S S."""
        is_real = self._is_real(x, mask)
        index = torch.arange(x.size(1), device=x.device)
        distance = index - index.unsqueeze(1)  # S S
        seen = (distance.abs() <= self.reach) | (index < self.n_global) | (index < self.n_global).unsqueeze(1)
        seen = (seen & (distance <= 0) if self.causal else seen).expand(len(x), -1, -1)  # B S S
        positions = self._random_positions(is_real, math.ceil(x.size(1) / self.reach))
        drawn = (positions.unsqueeze(2) == index.unsqueeze(1)).any(dim=-1)  # B N S
        seen = seen | drawn.repeat_interleave(self.reach, dim=1)[:, : x.size(1)]
        return (seen & is_real.unsqueeze(1) | (distance == 0)).unsqueeze(1)


def gather_positions(x: Tensor, positions: Tensor) -> Tensor:
    """Return keys or values (B H S K) at these positions (B N C): B H N C K."""
    index = positions.clamp(0, x.size(2) - 1).flatten(1)[:, None, :, None].expand(-1, x.size(1), -1, x.size(3))
    gathered: Tensor = x.gather(2, index).unflatten(2, positions.shape[1:])
    return gathered


class Linformer(nn.Module):
    """Attention to keys and values that are projected to a fixed length (Wang et al., 2020)."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = MultiHeadAttention(config, make_score(config))
        self.of_keys = nn.Parameter(torch.empty(config.projected_length, config.max_len))  # P S
        self.of_values = nn.Parameter(torch.empty(config.projected_length, config.max_len))  # P S
        for projection in (self.of_keys, self.of_values):
            nn.init.normal_(projection, std=config.projected_length**-0.5)

    def forward(self, x: Tensor, mask: Tensor, cache: LayerCache | None = None) -> Tensor:
        k, v = (x * mask.mT for x in self.heads.keys_values(x))  # padding is projected as zeros
        k, v = self.of_keys[:, : x.size(1)] @ k, self.of_values[:, : x.size(1)] @ v  # B H P K
        visible = torch.ones(1, k.size(2), dtype=torch.bool, device=x.device)
        return self.heads.merge(self.heads.score(self.heads.queries(x), k, v, visible))
