"""The Transformer of "Attention Is All You Need": §3, in the order of §3.

Shapes: B batch, S source length, T target length, D d_model, F d_ff, H heads, K d_k or d_v, V vocabulary; while
decoding, R rows: the hypotheses of all sentences, one after the other (incremental.py).
Masks are boolean, True = may attend, and broadcast to B H T S. They are created in `Transformer` only.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.dropout import Dropout
from multihead.model.incremental import BeamRows, DecoderState, KeysValues, LayerCache, Memory
from multihead.model.positions import sinusoids

# On CPUs, training is faster with eq. (1) as printed for up to this many keys; the fused kernel is made for long texts.
MAX_KEYS_UNFUSED = 64

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


class Mixer(Protocol):
    """The sub-layer that passes information between the positions of a sequence: self-attention in the paper.

    With `cache`, x is one more token, and the cache holds what is needed of earlier ones. Sources with a dependency
    tree have `distances` (B 1 S S) too, which only self-attention takes.
    """

    def __call__(self, x: Tensor, mask: Tensor, cache: LayerCache | None = ..., **distances: Tensor) -> Tensor: ...


class Score(Protocol):
    """The function inside multi-head attention that weighs the keys of each query and sums the values.

    `weights` has the same arguments without v, and returns the weights. Only relative positions take `distances`.
    """

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor, **distances: Tensor) -> Tensor: ...

    @property
    def weights(self) -> Callable[..., Tensor]: ...


class Cross(Protocol):
    """The sub-layer through which a decoder sees the source: attention over the encoder's output in the paper.

    `keys_values` takes the encoder's output once per sentence. `weights` returns how much each position of x draws from
    each position of the source (B H T S).
    """

    def __call__(self, x: Tensor, mask: Tensor, *, memory: Memory) -> Tensor: ...

    def keys_values(self, x: Tensor) -> KeysValues: ...

    @property
    def weights(self) -> Callable[..., Tensor]: ...


# §3.1 Encoder and decoder stacks


class Residual(nn.Module):
    """LayerNorm(x + Sublayer(x)) around each sub-layer (§3.1), with dropout on the sub-layer's output (§5.4).

    With `norm="pre"` the sub-layer's input is normalized instead of the sum, and each stack ends in one more LayerNorm.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(config.d_model)
        self.dropout = Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        y = sublayer(self.norm(x) if self.pre_norm else x)
        x = x + self.dropout(y)
        return x if self.pre_norm else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig, self_attention: Mixer) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.feed_forward = FeedForward(config)
        self.residual_1, self.residual_2 = Residual(config), Residual(config)

    def forward(self, x: Tensor, mask: Tensor, distances: Tensor | None = None) -> Tensor:
        options: dict[str, Any] = {} if distances is None else {"distances": distances}
        x = self.residual_1(x, lambda y: self.self_attention(y, mask, **options))
        x = self.residual_2(x, self.feed_forward)
        return x


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, then feed-forward."""

    def __init__(self, config: ModelConfig, self_attention: Mixer, cross_attention: Cross) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = FeedForward(config)
        self.residual_1, self.residual_2, self.residual_3 = Residual(config), Residual(config), Residual(config)

    def forward(self, x: Tensor, mask: Tensor, memory: Memory, cache: LayerCache | None = None) -> Tensor:
        x = self.residual_1(x, lambda y: self.self_attention(y, mask, cache))
        x = self.residual_2(x, lambda y: self.cross_attention(y, memory.mask, memory=memory))
        x = self.residual_3(x, self.feed_forward)
        return x


# §3.2 Attention


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """Return eq. (1) as printed. This is the definition that `fast_attention` is tested against."""
    return attention_weights(q, k, mask, scale).to(v.dtype) @ v  # B H T K


def attention_weights(q: Tensor, k: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """Return the softmax of eq. (1): how much each query draws from each key. `scale` replaces 1/√d_k."""
    return masked_softmax(q @ k.mT * (scale or 1 / math.sqrt(q.size(-1))), mask)  # B H T S


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    """Return the softmax over the keys that may be attended to, computed in at least float32."""
    precise = torch.promote_types(scores.dtype, torch.float32)
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1, dtype=precise)  # B H T S


def fast_attention(  # noqa: PLR0913 - eq. (1) and how to compute it
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor,
    scale: float | None = None,
    *,
    training: bool,
    is_causal: bool = False,
) -> Tensor:
    """Return eq. (1), by a fused kernel that never stores the weights wherever that kernel is faster.

    Outside of training the kernel is the same for every length, because the padding of a batch must not change a
    translation. With `is_causal`, the mask hides what follows each query: on GPUs the fastest kernel (flash attention)
    supports that, but no other mask.
    """
    if is_causal and q.device.type != "cpu":
        return causal_attention(q, k, v, scale)  # B H T K
    if q.device.type != "cpu" or not training:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)  # B H T K
    # On CPUs this kernel's gradient is fourteen times slower in bfloat16, and small products gain nothing from it.
    q, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
    with torch.autocast("cpu", enabled=False):
        if k.size(2) <= MAX_KEYS_UNFUSED:
            return attention(q, k, v, mask, scale)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)  # B H T K


def causal_attention(q: Tensor, k: Tensor, v: Tensor, scale: float | None = None) -> Tensor:
    """Return eq. (1) with the look-ahead mask; a single query, as in decoding, sees all keys."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=q.size(2) > 1, scale=scale)  # B H T K


class ScaledDotProduct(nn.Module):
    """§3.2.1. `forward` does not expose the weights; `weights` computes them for inspection.

    In the decoder's self-attention, `is_causal` says that every mask is the look-ahead mask.
    """

    def __init__(self, is_causal: bool = False) -> None:
        super().__init__()
        self.is_causal = is_causal

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return fast_attention(q, k, v, mask, training=self.training, is_causal=self.is_causal)  # B H T K

    def scores(self, q: Tensor, k: Tensor) -> Tensor:
        return q @ k.mT / math.sqrt(q.size(-1))  # B H T S

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        return attention_weights(q, k, mask)  # B H T S


class MultiHeadAttention(nn.Module):
    """§3.2.2. `keys_values` is separate from `forward`, so that a decoder can project its memory once."""

    def __init__(self, config: ModelConfig, score: Score | None = None) -> None:
        super().__init__()
        self.score = score or ScaledDotProduct()
        heads, bias = config.n_heads, config.attention_bias
        self.n_heads = heads
        self.w_q = nn.Linear(config.d_model, heads * config.d_k, bias=bias)
        self.w_k = nn.Linear(config.d_model, heads * config.d_k, bias=bias)
        self.w_v = nn.Linear(config.d_model, heads * config.d_v, bias=bias)
        self.w_o = nn.Linear(heads * config.d_v, config.d_model, bias=bias)

    def queries(self, x: Tensor) -> Tensor:
        return self._split_heads(self.w_q(x))  # B H T K

    def keys_values(self, x: Tensor) -> KeysValues:
        return self._split_heads(self.w_k(x)), self._split_heads(self.w_v(x))  # B H S K

    def forward(
        self,
        x: Tensor,
        mask: Tensor,
        cache: LayerCache | None = None,
        *,
        memory: Memory | None = None,
        distances: Tensor | None = None,
    ) -> Tensor:
        """The three uses of §3.2.3: x attends to itself and to what is cached, or to another sequence in `memory`."""
        q = self.queries(x)  # B H T K, or R H 1 K
        k, v = memory.kv if memory else self._own_keys_values(x, cache)  # B H S K
        rows = memory.rows if memory else None
        options = {} if distances is None else {"distances": distances}
        heads = self.score(q if rows is None else rows.fold(q), k, v, mask, **options)  # B H T K
        return self.merge(heads if rows is None else rows.unfold(heads))

    def merge(self, heads: Tensor) -> Tensor:
        """Concatenate the heads and project them with W^O."""
        out: Tensor = self.w_o(heads.transpose(1, 2).flatten(2))  # B T D
        return out

    def weights(self, x: Tensor, mask: Tensor, memory: Memory | None = None, distances: Tensor | None = None) -> Tensor:
        """Return how much each position of x draws from each position that it may attend to."""
        k, _ = memory.kv if memory else self.keys_values(x)
        options = {} if distances is None else {"distances": distances}
        return self.score.weights(self.queries(x), k, mask, **options)  # B H T S

    def _own_keys_values(self, x: Tensor, cache: LayerCache | None) -> KeysValues:
        k, v = self.keys_values(x)  # B H T K, or R H 1 K
        return (k, v) if cache is None else (cache.append("k", k), cache.append("v", v))  # R H T K

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.n_heads, -1).transpose(1, 2)  # B H T K


# §3.3 Position-wise feed-forward networks


class FeedForward(nn.Module):
    """Eq. (2): the same two linear maps at every position, max(0, x W1 + b1) W2 + b2."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w_1 = nn.Linear(config.d_model, config.d_ff)
        self.w_2 = nn.Linear(config.d_ff, config.d_model)
        self.activation = ACTIVATIONS[config.activation]

    def forward(self, x: Tensor) -> Tensor:
        x = self.activation(self.w_1(x))  # B T F
        x = self.w_2(x)  # B T D
        return x


# The whole model, with §3.4 Embeddings and softmax, and §3.5 Positional encoding


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Constructors of the attention in each layer, given the layer's number. build.py has those of variants."""

    encoder: Callable[[int], Mixer]
    decoder: Callable[[int], Mixer]
    cross: Callable[[], Cross]
    structure: nn.Module | None = None  # adds what is known of a source beside its order: variants.tree.Tree

    @staticmethod
    def standard(config: ModelConfig) -> "Blocks":
        """Return the blocks of the paper."""
        if config.variants:
            raise ValueError(f"{config.variants[0]} is not in the paper: use multihead.model.build_model")
        return Blocks(
            encoder=lambda _: MultiHeadAttention(config),
            decoder=lambda _: MultiHeadAttention(config, ScaledDotProduct(is_causal=True)),
            cross=lambda: MultiHeadAttention(config),
        )


class Transformer(nn.Module):
    """Source and target ids in, logits out: `logits = Transformer(config)(source_ids, target_ids)`."""

    def __init__(self, config: ModelConfig, blocks: Blocks | None = None) -> None:
        super().__init__()
        self.config = config
        blocks = blocks or Blocks.standard(config)
        self._make_embeddings(config)
        self.dropout = Dropout(config.dropout)
        self.structure = blocks.structure
        self.encoder = nn.ModuleList(EncoderLayer(config, blocks.encoder(n)) for n in range(config.encoder_layers))
        self.decoder = nn.ModuleList(
            DecoderLayer(config, blocks.decoder(n), blocks.cross()) for n in range(config.decoder_layers)
        )
        pre_norm = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()
        self.apply(_initialize)

    def _make_embeddings(self, config: ModelConfig) -> None:
        """§3.4: both embeddings and the map to logits share one matrix, unless `tie_embeddings` says otherwise."""
        self.source_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.target_embedding = (
            self.source_embedding if config.tie_embeddings == "all" else nn.Embedding(config.vocab_size, config.d_model)
        )
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=config.output_bias)
        if config.tie_embeddings != "none":
            self.output.weight = self.target_embedding.weight
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_len, config.d_model))
            nn.init.normal_(self.positions, std=config.d_model**-0.5)
        else:
            table = torch.from_numpy(sinusoids(config.max_len, config.d_model))
            is_absolute = config.positions in ("sinusoidal", "tree")  # the others have none, or theirs in the attention
            self.register_buffer("positions", table if is_absolute else table.zero_(), persistent=False)

    def forward(self, source_ids: Tensor, target_ids: Tensor, source_heads: Tensor | None = None) -> Tensor:
        """Return the logits of the token after each of `target_ids` (B T), given `source_ids` (B S).

        `source_heads` (B S) are the heads of a dependency tree, for a model with `positions="tree"`.
        """
        logits: Tensor = self.output(self.hidden(source_ids, target_ids, source_heads))  # B T V
        return logits

    def hidden(self, source_ids: Tensor, target_ids: Tensor, source_heads: Tensor | None = None) -> Tensor:
        """Return the decoder's output, before the map to logits."""
        memory, memory_mask = self.encode(source_ids, source_heads)  # B S D, B 1 1 S
        x = inputs = self.embed(self.target_embedding, target_ids)  # B T D
        # The look-ahead mask also hides the target's padding, which comes after all real tokens.
        mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()  # T T
        for layer, memory_kv in zip(self.decoder, self.memory_keys_values(memory), strict=True):
            x = layer(x, mask, Memory(memory_kv, memory_mask, inputs=inputs))
        hidden: Tensor = self.decoder_norm(x)  # B T D
        return hidden

    def encode(self, source_ids: Tensor, source_heads: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return the encoder's output, and the mask that hides the source's padding."""
        mask = (source_ids != self.config.pad_id)[:, None, None, :]  # B 1 1 S
        x, distances = self.embed(self.source_embedding, source_ids), None  # B S D
        if self.structure is not None:
            depths, distances = self.structure(source_ids, source_heads)
            x = x + depths
        for layer in self.encoder:
            x = layer(x, mask, distances)
        x = self.encoder_norm(x)
        return x, mask

    def start_decoding(
        self, source_ids: Tensor, allowed: Tensor | None = None, source_heads: Tensor | None = None
    ) -> DecoderState:
        """Run the encoder, and project the keys and values of cross-attention for every decoder layer.

        With `allowed`, only these token ids can be generated, and `decode_step` returns their logits in this order.
        """
        memory, memory_mask = self.encode(source_ids, source_heads)
        weight, bias = self.output.weight, self.output.bias
        return DecoderState(
            memory_kv=self.memory_keys_values(memory),
            memory_mask=memory_mask,
            output=(weight, bias) if allowed is None else (weight[allowed], None if bias is None else bias[allowed]),
            rows=BeamRows.of_sentences(torch.arange(len(source_ids)), len(source_ids), source_ids.device),
            caches=[LayerCache() for _ in self.decoder],
        )

    def decode_step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Return the logits (R V) of the token after `ids` (R), the latest token of each row, and update `state`."""
        x = inputs = self.embed(self.target_embedding, ids.unsqueeze(1), first=state.length)  # R 1 D
        mask = torch.ones(1, state.length + 1, dtype=torch.bool, device=x.device)  # all tokens so far are visible
        for layer, memory_kv, cache in zip(self.decoder, state.memory_kv, state.caches, strict=True):
            x = layer(x, mask, Memory(memory_kv, state.memory_mask, state.rows, inputs), cache)
        for cache in state.caches:
            cache.length += 1
        return F.linear(self.decoder_norm(x.squeeze(1)), *state.output)  # R V

    def memory_keys_values(self, memory: Tensor) -> list[KeysValues]:
        """Return the keys and values that each decoder layer attends to, projected once per sentence."""
        layers = cast(Iterable[DecoderLayer], self.decoder)
        return [layer.cross_attention.keys_values(memory) for layer in layers]  # per layer, B H S K

    def embed(self, embedding: nn.Embedding, ids: Tensor, first: int = 0) -> Tensor:
        """§3.4 and §3.5: embeddings times √d_model, plus positions from `first` on; dropout on the sum (§5.4)."""
        end = first + ids.size(1)
        if end > self.config.max_len:
            raise ValueError(f"{end} tokens are more than the {self.config.max_len} positions of this model")
        x: Tensor = self.dropout(embedding(ids) * math.sqrt(self.config.d_model) + self.positions[first:end])  # B T D
        return x


def _initialize(module: nn.Module) -> None:
    """Initialize as in the authors' first public code, since the paper does not say how: Glorot, and
    N(0, d_model^-0.5) for embeddings."""
    match module:
        case nn.Embedding():
            nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
        case FeedForward():
            nn.init.xavier_uniform_(module.w_1.weight)
            nn.init.xavier_uniform_(module.w_2.weight)
            nn.init.zeros_(module.w_1.bias)
            nn.init.zeros_(module.w_2.bias)
        case MultiHeadAttention():
            _initialize_attention(module)
        case Transformer() if module.config.tie_embeddings == "none":
            nn.init.normal_(module.output.weight, std=module.config.d_model**-0.5)


def _initialize_attention(module: MultiHeadAttention) -> None:
    linears = [linear for linear in module.children() if isinstance(linear, nn.Linear)]
    *inputs, w_o = linears  # of q, k and v, and W^O
    bound = math.sqrt(6 / (w_o.out_features + sum(linear.out_features for linear in inputs)))
    for linear in inputs:  # Glorot over q, k and v as one matrix, as in that code
        nn.init.uniform_(linear.weight, -bound, bound)
    nn.init.xavier_uniform_(w_o.weight)
    for linear in linears:
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)
