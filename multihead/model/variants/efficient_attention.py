"""TODO."""

import math
import random

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.incremental import LayerCache
from multihead.model.transformer import MultiHeadAttention
from multihead.model.variants.scores import make_score

# Mixers: attention to some places instead of all


class SparseAttention(nn.Module):
    """Self-attention restricted to a neighbourhood (§4), or with BigBird's global and random places in addition.

    A place sees those that are at most half a window away. With `n_global`, the first places see all others and are
    seen by all; with `n_random`, each block of half a window also sees so many blocks anywhere in its own sentence.
    Time and memory grow with window · length: only what may be seen is gathered and multiplied.
    """

    def __init__(self, config: ModelConfig, layer: int, causal: bool, n_global: int = 0, n_random: int = 0) -> None:
        super().__init__()
        self.heads = MultiHeadAttention(config, make_score(config))
        self.causal, self.n_global = causal, n_global
        self.reach = max(1, config.window // 2)  # also the places of a block
        n_blocks = math.ceil(config.max_len / self.reach)
        rng = random.Random(layer)
        draws = [[rng.randrange(2**31) for _ in range(n_random)] for _ in range(n_blocks)]
        self.draws: Tensor
        self.register_buffer("draws", torch.tensor(draws, dtype=torch.int64).view(n_blocks, n_random), persistent=False)

    def forward(self, x: Tensor, mask: Tensor, past: LayerCache | None = None) -> Tensor:
        if past is not None:
            return self._step(x, past)
        is_real = self._is_real(x, mask)  # B S
        q, (k, v) = self.heads.queries(x), self.heads.keys_values(x)  # B H S K
        places = self._places(is_real)  # B N C
        blocks = F.pad(q, (0, 0, 0, -q.size(2) % self.reach)).unflatten(2, (-1, self.reach))  # B H N Q K
        heads = self.heads.score(
            blocks, gather_positions(k, places), gather_positions(v, places), self._visible(places, is_real)
        )  # B H N Q K
        heads = heads.flatten(2, 3)[:, :, : x.size(1)]  # B H S K
        if self.n_global:
            first = self.heads.score(q[:, :, : self.n_global], k, v, is_real[:, None, None])
            heads = torch.cat([first, heads[:, :, self.n_global :]], dim=2)
        return self.heads.merge(heads)

    def _step(self, x: Tensor, past: LayerCache) -> Tensor:
        for name, new in zip("kv", self.heads.keys_values(x), strict=True):
            before = past[name][:, :, -self.reach :] if name in past else new[:, :, :0]
            past[name] = torch.cat([before, new], dim=2)  # R H T K
        visible = torch.ones(1, past["k"].size(2), dtype=torch.bool, device=x.device)
        return self.heads.merge(self.heads.score(self.heads.queries(x), past["k"], past["v"], visible))

    def _is_real(self, x: Tensor, mask: Tensor) -> Tensor:
        return torch.ones(x.shape[:2], dtype=torch.bool, device=x.device) if self.causal else mask[:, 0, 0]  # B S

    def _places(self, is_real: Tensor) -> Tensor:
        """What the places of each block may see: global ones, a window, random blocks; -1 where there is none."""
        reach, n_blocks = self.reach, math.ceil(is_real.size(1) / self.reach)
        starts = torch.arange(0, n_blocks * reach, reach, device=is_real.device).unsqueeze(1)  # N 1
        window = starts + torch.arange(-reach, reach if self.causal else 2 * reach, device=is_real.device)  # N C
        first = torch.arange(self.n_global, device=is_real.device).expand(n_blocks, -1)
        fixed = torch.cat([first, window], dim=1).expand(len(is_real), -1, -1)
        places = torch.cat([fixed, self._random_places(is_real, n_blocks)], dim=2)  # B N C
        return places.masked_fill(places >= n_blocks * reach, -1).clamp_min(-1)

    def _random_places(self, is_real: Tensor, n_blocks: int) -> Tensor:
        """The places of each block's random blocks; they depend on a sentence alone, and not on its padding."""
        of_sentence = ((is_real.sum(dim=1) + self.reach - 1) // self.reach).clamp_min(1)  # B
        blocks = self.draws[:n_blocks] % of_sentence[:, None, None]  # B N, random blocks
        again = (blocks.unsqueeze(-1) == blocks.unsqueeze(-2)).tril(-1).any(dim=-1)
        blocks = blocks.masked_fill(again, n_blocks)  # beyond the end, where nothing is
        return (blocks.unsqueeze(-1) * self.reach + torch.arange(self.reach, device=blocks.device)).flatten(2)

    def _visible(self, places: Tensor, is_real: Tensor) -> Tensor:
        """Which of a block's places (B N C) each of its queries may see: B 1 N Q C. None is seen twice."""
        n_blocks, n_columns = places.shape[1:]
        here = torch.arange(n_blocks * self.reach, device=places.device).view(1, n_blocks, self.reach, 1)
        distance = places.unsqueeze(2) - here  # B N Q C
        near = distance.abs() <= self.reach
        column = torch.arange(n_columns, device=places.device)
        n_window = (2 if self.causal else 3) * self.reach
        is_global, is_random = column < self.n_global, column >= self.n_global + n_window
        in_window = near & ~is_random & (distance <= 0 if self.causal else ~is_global)
        elsewhere = ~near & is_random
        allowed = is_global | (in_window | elsewhere) & (places >= self.n_global).unsqueeze(2)
        padded = F.pad(is_real, (0, n_blocks * self.reach - is_real.size(1)))
        real = padded.gather(1, places.clamp_min(0).flatten(1)).view_as(places) & (places >= 0)  # B N C
        # A place always sees itself, so that not even padding has nothing to see.
        itself = (distance == 0) & ~is_global & ~is_random
        return (allowed & real.unsqueeze(2) | itself).unsqueeze(1)

    def weights(self, x: Tensor, mask: Tensor) -> Tensor:
        """Of all places, by the definition: a full attention that is masked."""
        return self.heads.weights(x, self.dense_mask(x, mask))  # B H S S

    def dense_mask(self, x: Tensor, mask: Tensor) -> Tensor:
        """Who sees whom, as a mask of full attention: B 1 S S."""
        is_real = self._is_real(x, mask)
        here = torch.arange(x.size(1), device=x.device)
        distance = here - here.unsqueeze(1)  # S S
        seen = (distance.abs() <= self.reach) | (here < self.n_global) | (here < self.n_global).unsqueeze(1)
        seen = (seen & (distance <= 0) if self.causal else seen).expand(len(x), -1, -1)  # B S S
        places = self._random_places(is_real, math.ceil(x.size(1) / self.reach))
        drawn = (places.unsqueeze(2) == here.unsqueeze(1)).any(dim=-1)  # B N S
        seen = seen | drawn.repeat_interleave(self.reach, dim=1)[:, : x.size(1)]
        return (seen & is_real.unsqueeze(1) | (distance == 0)).unsqueeze(1)


def gather_positions(kept: Tensor, places: Tensor) -> Tensor:
    """Keys or values (B H S K) at these places (B N C): B H N C K."""
    index = places.clamp(0, kept.size(2) - 1).flatten(1)[:, None, :, None].expand(-1, kept.size(1), -1, kept.size(3))
    found: Tensor = kept.gather(2, index).unflatten(2, places.shape[1:])
    return found


class Linformer(nn.Module):
    """Wang et al. (2020): the length of keys and values is projected to a fixed one, and queries attend to that."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = MultiHeadAttention(config, make_score(config))
        self.of_keys = nn.Parameter(torch.empty(config.projected_length, config.max_len))  # P S
        self.of_values = nn.Parameter(torch.empty(config.projected_length, config.max_len))  # P S
        for projection in (self.of_keys, self.of_values):
            nn.init.normal_(projection, std=config.projected_length**-0.5)

    def forward(self, x: Tensor, mask: Tensor, past: LayerCache | None = None) -> Tensor:
        k, v = (kept * mask.mT for kept in self.heads.keys_values(x))  # padding is projected as zeros
        k, v = self.of_keys[:, : x.size(1)] @ k, self.of_values[:, : x.size(1)] @ v  # B H P K
        visible = torch.ones(1, k.size(2), dtype=torch.bool, device=x.device)
        return self.heads.merge(self.heads.score(self.heads.queries(x), k, v, visible))
