"""The Transformer of "Attention Is All You Need", §3 in the order of §3.

Shapes: B batch, S source length, T target length, D d_model, F d_ff, H heads, K d_k or d_v, V vocabulary;
while decoding, R rows: the hypotheses of all sentences, one after the other, of which a sentence has W at most.
Masks are boolean, True = may attend, and broadcast to B H T S. They are made in `Transformer` alone.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.dropout import Dropout
from multihead.model.incremental import BeamRows, DecoderState, KeysValues, LayerCache, Memory, append_to_cache
from multihead.model.positions import sinusoids

MAX_KEYS_UNFUSED = (
    64  # keys up to which CPUs train faster by eq. (1) as it is printed: the fused kernel is made for long texts
)


class Score(Protocol):
    """What weighs the keys of each query, and draws from the values."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor: ...

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor: ...


class Mixer(Protocol):
    """What lets the places of a sequence know of each other: self-attention in the paper."""

    def __call__(self, x: Tensor, mask: Tensor, past: LayerCache | None = None) -> Tensor: ...


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


# §3.2 Attention


def masked_softmax(scores: Tensor, mask: Tensor) -> Tensor:
    precise = torch.promote_types(scores.dtype, torch.float32)
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1, dtype=precise)  # B H T S


def attention_weights(q: Tensor, k: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """The softmax of eq. (1): how much each query draws from each key; `scale` takes the place of 1/√d_k."""
    return masked_softmax(q @ k.mT * (scale or 1 / math.sqrt(q.size(-1))), mask)  # B H T S


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """Eq. (1) as it is printed: the definition that `fast_attention` is tested against."""
    return attention_weights(q, k, mask, scale).to(v.dtype) @ v  # B H T K


def fast_attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor, scale: float | None = None) -> Tensor:
    """Eq. (1) by a kernel that never holds the weights, wherever that one is faster.

    Outside training it is the same one for every length: the padding of a batch must not change a translation.
    """
    if q.device.type != "cpu" or not q.requires_grad:
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)  # B H T K
    # In bfloat16 the gradient of this kernel takes fourteen times as long on CPUs, and small products gain nothing.
    q, k, v = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (q, k, v))
    with torch.autocast("cpu", enabled=False):
        if k.size(2) <= MAX_KEYS_UNFUSED:
            return attention(q, k, v, mask, scale)
        return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=scale)  # B H T K


class ScaledDotProduct(nn.Module):
    """§3.2.1, which does not show its weights; whoever wants to see them asks for `weights`."""

    def forward(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
        return fast_attention(q, k, v, mask)  # B H T K

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
        return attention_weights(q, k, mask)  # B H T S


class MultiHeadAttention(nn.Module):
    """§3.2.2. `keys_values` is apart from `forward`, so that a decoder may keep what it has already projected."""

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
        past: LayerCache | None = None,
        kv: KeysValues | None = None,
        rows: "BeamRows | None" = None,
    ) -> Tensor:
        """The three uses of §3.2.3: a sequence attends to itself and its past, unless `kv` are those of another."""
        q = self.queries(x)  # B H T K, or R H 1 K
        k, v = kv or self._own_keys_values(x, mask, past)  # B H S K
        heads = self.score(q if rows is None else rows.fold(q), k, v, mask)  # B H T K
        return self.merge(heads if rows is None else rows.unfold(heads))

    def merge(self, heads: Tensor) -> Tensor:
        out: Tensor = self.w_o(heads.transpose(1, 2).flatten(2))  # B T D
        return out

    def weights(self, x: Tensor, mask: Tensor, kv: KeysValues | None = None) -> Tensor:
        """How much each place of x draws from each place that it may attend to."""
        k, _ = kv or self.keys_values(x)
        return self.score.weights(self.queries(x), k, mask)  # B H T S

    def _own_keys_values(self, x: Tensor, mask: Tensor, past: LayerCache | None) -> KeysValues:
        k, v = self.keys_values(x)  # B H T K, or R H 1 K
        if past is None:
            return k, v
        at = mask.size(1) - 1
        return append_to_cache(past, "k", k, at), append_to_cache(past, "v", v, at)  # R H T K

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


# §3.1 Encoder and decoder stacks


class Residual(nn.Module):
    """LayerNorm(x + Sublayer(x)) around each sub-layer (§3.1), with dropout on the sub-layer's output (§5.4).

    With `norm="pre"` the sub-layer sees a normalised x instead and the sum is left alone; each stack then ends
    in one more LayerNorm.
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

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.residual_1(x, lambda y: self.self_attention(y, mask))
        x = self.residual_2(x, self.feed_forward)
        return x


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, then feed-forward."""

    def __init__(self, config: ModelConfig, self_attention: Mixer, cross_attention: MultiHeadAttention) -> None:
        super().__init__()
        self.self_attention = self_attention
        self.cross_attention = cross_attention
        self.feed_forward = FeedForward(config)
        self.residual_1, self.residual_2, self.residual_3 = Residual(config), Residual(config), Residual(config)

    def forward(self, x: Tensor, mask: Tensor, memory: "Memory", past: LayerCache | None = None) -> Tensor:
        x = self.residual_1(x, lambda y: self.self_attention(y, mask, past))
        x = self.residual_2(x, lambda y: self.cross_attention(y, memory.mask, kv=memory.kv, rows=memory.rows))
        x = self.residual_3(x, self.feed_forward)
        return x


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """What makes the attention of a layer, given its number; variants.py has others than the paper's."""

    encoder: Callable[[int], Mixer]
    decoder: Callable[[int], Mixer]
    cross: Callable[[], MultiHeadAttention]
    structure: nn.Module | None = None  # reads what a source is known to have beside the order of its words

    @staticmethod
    def of_the_paper(config: ModelConfig) -> "Blocks":
        if config.variants:
            raise ValueError(f"{config.variants[0]} is not in the paper: variants.build_model makes such a model")
        return Blocks(
            encoder=lambda _: MultiHeadAttention(config),
            decoder=lambda _: MultiHeadAttention(config),
            cross=lambda: MultiHeadAttention(config),
        )


class Transformer(nn.Module):
    """Source and target ids in, logits out: `logits = Transformer(config)(source_ids, target_ids)`."""

    def __init__(self, config: ModelConfig, parts: Blocks | None = None) -> None:
        super().__init__()
        self.config = config
        parts = parts or Blocks.of_the_paper(config)
        self._make_embeddings(config)
        self.dropout = Dropout(config.dropout)
        self.structure = parts.structure
        self.encoder = nn.ModuleList(EncoderLayer(config, parts.encoder(n)) for n in range(config.encoder_layers))
        self.decoder = nn.ModuleList(
            DecoderLayer(config, parts.decoder(n), parts.cross()) for n in range(config.decoder_layers)
        )
        pre_norm = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()
        self.apply(_initialize)

    def _make_embeddings(self, config: ModelConfig) -> None:
        """§3.4: source embedding, target embedding and the map to logits share one matrix unless `tie` says less."""
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

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Logits of the token after each of `target_ids` (B T), given `source_ids` (B S)."""
        logits: Tensor = self.output(self.hidden(source_ids, target_ids))  # B T V
        return logits

    def hidden(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """The decoder's output, before the map to logits."""
        memory, memory_mask = self.encode(source_ids)  # B S D, B 1 1 S
        x = self.embed(self.target_embedding, target_ids)  # B T D
        # The look-ahead mask also hides the target's padding, which is always later than what is real.
        mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()  # T T
        for layer, memory_kv in zip(self.decoder, self.memory_keys_values(memory), strict=True):
            x = layer(x, mask, Memory(memory_kv, memory_mask))
        hidden: Tensor = self.decoder_norm(x)  # B T D
        return hidden

    def encode(self, source_ids: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's output, and the mask that hides the source's padding."""
        mask = (source_ids != self.config.pad_id)[:, None, None, :]  # B 1 1 S
        if self.structure is None:
            x, seen = self.embed(self.source_embedding, source_ids), mask  # B S D
        else:
            ids, depth, seen = self.structure(source_ids, mask)
            x = self.embed(self.source_embedding, ids) + depth  # B S D
        for layer in self.encoder:
            x = layer(x, seen)
        x = self.encoder_norm(x)
        return x, mask

    def start(self, source_ids: Tensor, words: Tensor | None = None) -> DecoderState:
        """Run the encoder once, and project the cross keys and values of every decoder layer once.

        With `words`, ids in the order of the logits that `step` gives, nothing else can be said.
        """
        memory, memory_mask = self.encode(source_ids)
        weight, bias = self.output.weight, self.output.bias
        return DecoderState(
            memory_kv=self.memory_keys_values(memory),
            memory_mask=memory_mask,
            output=(weight, bias) if words is None else (weight[words], None if bias is None else bias[words]),
            rows=BeamRows.of(torch.arange(len(source_ids), device=source_ids.device), len(source_ids)),
            past=[{} for _ in self.decoder],
        )

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Logits (R V) of the token after `ids` (R), one token of each row; `state` remembers those before."""
        x = self.embed(self.target_embedding, ids.unsqueeze(1), start=state.n_decoded)  # R 1 D
        state.n_decoded += 1
        mask = torch.ones(1, state.n_decoded, dtype=torch.bool, device=x.device)  # the past is all visible
        for layer, memory_kv, past in zip(self.decoder, state.memory_kv, state.past, strict=True):
            x = layer(x, mask, Memory(memory_kv, state.memory_mask, state.rows), past)
        return F.linear(self.decoder_norm(x.squeeze(1)), *state.output)  # R V

    def memory_keys_values(self, memory: Tensor) -> list[KeysValues]:
        """What each decoder layer attends to, projected once a sentence."""
        layers = cast(Iterable[DecoderLayer], self.decoder)
        return [layer.cross_attention.keys_values(memory) for layer in layers]  # of each layer, B H S K

    def embed(self, embedding: nn.Embedding, ids: Tensor, start: int = 0) -> Tensor:
        """§3.4 and §3.5: embeddings times √d_model, plus positions; dropout on the sum (§5.4)."""
        end = start + ids.size(1)
        if end > self.config.max_len:
            raise ValueError(f"{end} tokens are more than the {self.config.max_len} positions of this model")
        x: Tensor = self.dropout(embedding(ids) * math.sqrt(self.config.d_model) + self.positions[start:end])  # B T D
        return x


def _initialize(module: nn.Module) -> None:
    """The paper is silent on this; as in its first public code: Glorot, embeddings N(0, d_model^-0.5)."""
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
    fused = module.w_q.out_features + module.w_k.out_features + module.w_v.out_features
    bound = math.sqrt(6 / (module.w_q.in_features + fused))  # Glorot over q, k and v as the one matrix they were
    for linear in (module.w_q, module.w_k, module.w_v):
        nn.init.uniform_(linear.weight, -bound, bound)
    nn.init.xavier_uniform_(module.w_o.weight)
    for linear in (module.w_q, module.w_k, module.w_v, module.w_o):
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)
