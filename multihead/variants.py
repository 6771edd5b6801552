"""What stands in the place of the paper's parts, each with the signature of what it replaces, to be compared with it.

A score weighs the keys of each query (`model.Score`); a mixer lets the places of a sequence know of each other
(`model.Mixer`). One that is made for a decoder is causal: no place sees a later one, and given its `past` it takes one
step at a time. Padding is always behind what is real, so that a causal mixer need not know of it.

Shapes as in model.py, and N blocks of Q places that see C places each, P projected length, C2 = 2 · distance + 1.
"""

import math
import random
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config import ModelConfig
from multihead.model import (
    Mixer,
    MultiHeadAttention,
    Parts,
    Past,
    ScaledDotProduct,
    Score,
    Transformer,
    attention_weights,
    fast_attention,
    masked_softmax,
    sinusoids,
)
from multihead.tokenizer import PLACE
from multihead.trees import depths_and_distances

HIDDEN = 1 << 30  # a distance at which nothing is seen
DILATIONS = 5  # ByteNet doubles the dilation from layer to layer, from 1 to 16, and begins anew

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
        visible = mask if mask.dtype == torch.bool else mask != HIDDEN
        return masked_softmax(scores / math.sqrt(q.size(-1)), visible)  # B H T S

    def _distances(self, scores: Tensor, mask: Tensor) -> Tensor:
        """From each query to each key, as places in the tables: B H T S."""
        n_queries, n_keys = scores.shape[-2:]
        keys = torch.arange(n_keys, device=scores.device)
        along = keys - keys[n_keys - n_queries :].unsqueeze(1)  # T S
        distances = along if mask.dtype == torch.bool else mask
        return (distances.clamp(-self.farthest, self.farthest) + self.farthest).expand(scores.shape)


class Tree(nn.Module):
    """Wang et al. (2019): positions from a dependency tree, beside those of the sentence.

    The depth of a word is encoded as a position is, and mapped by a matrix; the distance of two words in the tree, with
    its sign from their order, takes the place of their distance in the sentence (`RelativeScore`).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w_depth = nn.Linear(config.d_model, config.d_model, bias=False)
        self.depths: Tensor
        self.register_buffer("depths", sinusoids(config.max_len + 1, config.d_model), persistent=False)

    def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The ids, what is added to their embeddings (B S D), and distances to what may be seen (B 1 S S)."""
        depths, distances = depths_and_distances(tokens)
        return tokens % PLACE, self.w_depth(self.depths[depths]), distances.unsqueeze(1).where(mask, HIDDEN)


# Mixers: attention to some places instead of all


class SparseAttention(nn.Module):
    """Self-attention restricted to a neighbourhood (§4), or with BigBird's global and random places in addition.

    A place sees those that are at most half a window away. With `n_global`, the first places see all others and are
    seen by all; with `n_random`, each block of half a window also sees so many blocks anywhere in its own sentence.
    Time and memory grow with window · length: only what may be seen is gathered and multiplied.
    """

    def __init__(self, config: ModelConfig, layer: int, causal: bool, n_global: int = 0, n_random: int = 0) -> None:
        super().__init__()
        self.heads = MultiHeadAttention(config, score_of(config))
        self.causal, self.n_global = causal, n_global
        self.reach = max(1, config.window // 2)  # also the places of a block
        n_blocks = math.ceil(config.max_len / self.reach)
        rng = random.Random(layer)
        draws = [[rng.randrange(2**31) for _ in range(n_random)] for _ in range(n_blocks)]
        self.draws: Tensor
        self.register_buffer("draws", torch.tensor(draws, dtype=torch.int64).view(n_blocks, n_random), persistent=False)

    def forward(self, x: Tensor, mask: Tensor, past: Past | None = None) -> Tensor:
        if past is not None:
            return self._step(x, past)
        is_real = self._is_real(x, mask)  # B S
        q, (k, v) = self.heads.queries(x), self.heads.keys_values(x)  # B H S K
        places = self._places(is_real)  # B N C
        blocks = F.pad(q, (0, 0, 0, -q.size(2) % self.reach)).unflatten(2, (-1, self.reach))  # B H N Q K
        heads = self.heads.score(blocks, _at(k, places), _at(v, places), self._visible(places, is_real))  # B H N Q K
        heads = heads.flatten(2, 3)[:, :, : x.size(1)]  # B H S K
        if self.n_global:
            first = self.heads.score(q[:, :, : self.n_global], k, v, is_real[:, None, None])
            heads = torch.cat([first, heads[:, :, self.n_global :]], dim=2)
        return self.heads.merge(heads)

    def _step(self, x: Tensor, past: Past) -> Tensor:
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


def _at(kept: Tensor, places: Tensor) -> Tensor:
    """Keys or values (B H S K) at these places (B N C): B H N C K."""
    index = places.clamp(0, kept.size(2) - 1).flatten(1)[:, None, :, None].expand(-1, kept.size(1), -1, kept.size(3))
    found: Tensor = kept.gather(2, index).unflatten(2, places.shape[1:])
    return found


class Linformer(nn.Module):
    """Wang et al. (2020): the length of keys and values is projected to a fixed one, and queries attend to that."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.heads = MultiHeadAttention(config, score_of(config))
        self.of_keys = nn.Parameter(torch.empty(config.projected_length, config.max_len))  # P S
        self.of_values = nn.Parameter(torch.empty(config.projected_length, config.max_len))  # P S
        for projection in (self.of_keys, self.of_values):
            nn.init.normal_(projection, std=config.projected_length**-0.5)

    def forward(self, x: Tensor, mask: Tensor, past: Past | None = None) -> Tensor:
        k, v = (kept * mask.mT for kept in self.heads.keys_values(x))  # padding is projected as zeros
        k, v = self.of_keys[:, : x.size(1)] @ k, self.of_values[:, : x.size(1)] @ v  # B H P K
        visible = torch.ones(1, k.size(2), dtype=torch.bool, device=x.device)
        return self.heads.merge(self.heads.score(self.heads.queries(x), k, v, visible))


# Mixers: recurrence and convolution


class Recurrent(nn.Module):
    """An LSTM or GRU; in the encoder one half of it reads from the other end."""

    def __init__(self, config: ModelConfig, causal: bool, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        n_back = 0 if causal else config.d_model // 2
        self.forwards = kind(config.d_model, config.d_model - n_back, batch_first=True)
        self.backwards = kind(config.d_model, n_back, batch_first=True) if n_back else None

    def forward(self, x: Tensor, mask: Tensor, past: Past | None = None) -> Tensor:
        if past is not None:
            return self._step(x, past)
        y: Tensor = self.forwards(x)[0]  # B S D
        if self.backwards is None:
            return y
        order = _from_the_end(mask[:, 0, 0]).unsqueeze(-1)  # B S 1
        z: Tensor = self.backwards(x.gather(1, order.expand_as(x)))[0]
        return torch.cat([y, z.gather(1, order.expand_as(z))], dim=-1)  # B S D

    def _step(self, x: Tensor, past: Past) -> Tensor:
        names = "hc" if isinstance(self.forwards, nn.LSTM) else "h"
        before = tuple(past[name].unsqueeze(0) for name in names) if past else None  # 1 R D
        y, after = self.forwards(x, before[0] if before and len(names) == 1 else before)
        for name, state in zip(names, after if len(names) > 1 else (after,), strict=True):
            past[name] = state.squeeze(0)  # R D
        out: Tensor = y
        return out


def _from_the_end(is_real: Tensor) -> Tensor:
    """Where each place of a sentence is found if it is read from its end; padding stays where it is: B S."""
    here = torch.arange(is_real.size(1), device=is_real.device)
    last = is_real.sum(dim=1, keepdim=True) - 1
    return torch.where(here <= last, last - here, here)


class Convolution(nn.Module):
    """A convolution over `kernel` places that are `dilation` apart: around a place, or up to it if it is causal.

    Separable: each of d_model on its own, then a linear map of all. Gated: half of what comes out decides how much of
    the other half is let through (Gehring et al., 2017).
    """

    def __init__(
        self, config: ModelConfig, causal: bool, *, dilation: int = 1, separable: bool = False, gated: bool = False
    ) -> None:
        super().__init__()
        d_model, reach = config.d_model, (config.kernel - 1) * dilation
        self.before = reach if causal else reach // 2
        self.after = reach - self.before
        self.causal = causal
        self.convolution = nn.Conv1d(
            d_model,
            2 * d_model if gated else d_model,
            config.kernel,
            dilation=dilation,
            groups=d_model if separable else 1,
        )
        self.last = nn.GLU() if gated else nn.Linear(d_model, d_model) if separable else nn.Identity()

    def forward(self, x: Tensor, mask: Tensor, past: Past | None = None) -> Tensor:
        if past is not None:
            x = past["x"] = torch.cat([past["x"][:, 1:] if past else x.new_zeros(len(x), self.before, x.size(2)), x], 1)
        else:
            x = x if self.causal else x * mask[:, 0].mT  # what is not there is zero: padding as well as what is beyond
            x = F.pad(x, (0, 0, self.before, self.after))
        out: Tensor = self.last(self.convolution(x.mT).mT)  # B T D
        return out


# Models


def score_of(config: ModelConfig) -> Score:
    """What weighs keys, but for relative positions, which are those of self-attention alone."""
    scores: dict[str, Callable[[], Score]] = {
        "scaled": ScaledDotProduct,
        "dot": DotProduct,
        "additive": partial(Additive, config),
    }
    return scores[config.score]()


def self_attention(config: ModelConfig, causal: bool) -> MultiHeadAttention:
    """Full attention; relative positions are in both stacks, those of a tree in the encoder, as there is no other."""
    is_relative = config.positions == "relative" or (config.positions == "tree" and not causal)
    return MultiHeadAttention(config, RelativeScore(config) if is_relative else score_of(config))


MIXERS: dict[str, Callable[[ModelConfig, int, bool], Mixer]] = {  # made from a layer's number and whether it is causal
    "attention": lambda config, _, causal: self_attention(config, causal),
    "local": lambda config, layer, causal: SparseAttention(config, layer, causal),
    "bigbird": lambda config, layer, causal: SparseAttention(
        config, layer, causal, config.global_tokens, config.random_blocks
    ),
    "linformer": lambda config, _, causal: Linformer(config),
    "lstm": lambda config, _, causal: Recurrent(config, causal, nn.LSTM),
    "gru": lambda config, _, causal: Recurrent(config, causal, nn.GRU),
    "convolution": lambda config, _, causal: Convolution(config, causal),
    "dilated": lambda config, layer, causal: Convolution(config, causal, dilation=2 ** (layer % DILATIONS)),
    "separable": lambda config, _, causal: Convolution(config, causal, separable=True),
    "gated": lambda config, _, causal: Convolution(config, causal, gated=True),
}


def build_model(config: ModelConfig) -> Transformer:
    """The model of this configuration: the paper's, or with what it names in the place of the paper's parts."""
    parts = Parts(
        encoder=lambda layer: MIXERS[config.encoder_mixer](config, layer, False),
        decoder=lambda layer: MIXERS[config.decoder_mixer](config, layer, True),
        cross=lambda: MultiHeadAttention(config, score_of(config)),
        structure=Tree(config) if config.positions == "tree" else None,
    )
    return Transformer(config, parts)
