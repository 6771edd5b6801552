"""The Transformer of "Attention Is All You Need", §3 in the order of §3.

Shapes: B batch, S source length, T target length, D d_model, F d_ff, H heads, K d_k or d_v, V vocabulary,
W beam width.
Masks are boolean, True = may attend, and broadcast to B H T S. They are made in `Transformer` alone.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config import ModelConfig

KeysValues = tuple[Tensor, Tensor]  # both B H S K
Past = dict[str, Tensor]  # what one decoder layer keeps of earlier steps; axis 0 is the row

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu, "swish": F.silu}


# §3.2 Attention


def attention_weights(q: Tensor, k: Tensor, mask: Tensor) -> Tensor:
    """The softmax of eq. (1): how much each query draws from each key."""
    scores = q @ k.mT / math.sqrt(q.size(-1))  # B H T S
    return scores.masked_fill(~mask, -torch.inf).softmax(dim=-1)  # B H T S


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    """Eq. (1) as it is printed: the definition that the fused kernel in `MultiHeadAttention` is tested against."""
    return attention_weights(q, k, mask) @ v  # B H T K


class MultiHeadAttention(nn.Module):
    """§3.2.2. `keys_values` is apart from `forward`, so that a decoder may keep what it has already projected."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
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

    def forward(self, x: Tensor, kv: KeysValues, mask: Tensor) -> Tensor:
        heads = F.scaled_dot_product_attention(self.queries(x), *kv, attn_mask=mask)  # B H T K
        out: Tensor = self.w_o(heads.transpose(1, 2).flatten(2))  # B T D
        return out

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
        self.dropout = nn.Dropout(config.dropout)
        self.pre_norm = config.norm == "pre"

    def forward(self, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        y = sublayer(self.norm(x) if self.pre_norm else x)
        x = x + self.dropout(y)
        return x if self.pre_norm else self.norm(x)


class EncoderLayer(nn.Module):
    """Self-attention, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.feed_forward = FeedForward(config)
        self.residual_1, self.residual_2 = Residual(config), Residual(config)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.residual_1(x, lambda y: self.self_attention(y, self.self_attention.keys_values(y), mask))
        x = self.residual_2(x, self.feed_forward)
        return x


class DecoderLayer(nn.Module):
    """Masked self-attention, attention over the encoder's output, then feed-forward."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention(config)
        self.cross_attention = MultiHeadAttention(config)
        self.feed_forward = FeedForward(config)
        self.residual_1, self.residual_2, self.residual_3 = Residual(config), Residual(config), Residual(config)

    def forward(
        self, x: Tensor, mask: Tensor, memory_kv: KeysValues, memory_mask: Tensor, past: Past | None = None
    ) -> Tensor:
        x = self.residual_1(x, lambda y: self._attend_to_itself(y, mask, past))
        x = self.residual_2(x, lambda y: self._attend_to_memory(y, memory_kv, memory_mask))
        x = self.residual_3(x, self.feed_forward)
        return x

    def _attend_to_itself(self, x: Tensor, mask: Tensor, past: Past | None) -> Tensor:
        k, v = self.self_attention.keys_values(x)  # BW H T K
        if past is not None:
            if past:
                k, v = torch.cat([past["k"], k], dim=2), torch.cat([past["v"], v], dim=2)
            past["k"], past["v"] = k, v
        x = self.self_attention(x, (k, v), mask)
        return x

    def _attend_to_memory(self, x: Tensor, kv: KeysValues, mask: Tensor) -> Tensor:
        # Beams of one sentence are merely more queries on the same memory: fold them into the query axis, and
        # neither copy nor reorder the encoder's output.
        folded = x.reshape(kv[0].size(0), -1, x.size(-1))  # B W·T D
        x = self.cross_attention(folded, kv, mask).view_as(x)  # BW T D
        return x


# §3.5 Positional encoding


def sinusoids(max_len: int, d_model: int) -> Tensor:
    """§3.5: sin(pos / 10000^(2i/d_model)) in the even dimensions, the cosine of the same in the odd ones."""
    position = torch.arange(max_len, dtype=torch.float64).unsqueeze(1)
    angle = position * 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1).float()  # max_len D


# The whole model


@dataclass(slots=True)
class DecoderState:
    """What decoding keeps between steps: the encoder's side once a sentence, the decoder's side once a beam."""

    memory_kv: list[KeysValues]  # of each layer, B H S K
    memory_mask: Tensor  # B 1 1 S
    past: list[Past]  # of each layer, axis 0 has BW rows
    n_decoded: int = 0

    def reorder(self, rows: Tensor) -> None:
        """Make row i continue from what row `rows[i]` was."""
        self.past = [{name: kept[rows] for name, kept in layer.items()} for layer in self.past]

    def keep_sentences(self, sentences: Tensor) -> None:
        """Go on with these sentences only; `reorder` selects their rows."""
        self.memory_kv = [(k[sentences], v[sentences]) for k, v in self.memory_kv]
        self.memory_mask = self.memory_mask[sentences]


class Transformer(nn.Module):
    """Source and target ids in, logits out: `logits = Transformer(config)(source_ids, target_ids)`."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.config = config
        self._make_embeddings(config)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = nn.ModuleList(EncoderLayer(config) for _ in range(config.encoder_layers))
        self.decoder = nn.ModuleList(DecoderLayer(config) for _ in range(config.decoder_layers))
        pre_norm = config.norm == "pre"
        self.encoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()
        self.decoder_norm = nn.LayerNorm(config.d_model) if pre_norm else nn.Identity()
        self.apply(_initialise)

    def _make_embeddings(self, config: ModelConfig) -> None:
        """§3.4: source embedding, target embedding and the map to logits share one matrix unless `tie` says less."""
        self.source_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.target_embedding = (
            self.source_embedding if config.tie == "all" else nn.Embedding(config.vocab_size, config.d_model)
        )
        self.output = nn.Linear(config.d_model, config.vocab_size, bias=config.output_bias)
        if config.tie != "none":
            self.output.weight = self.target_embedding.weight
        if config.positions == "learned":
            self.positions = nn.Parameter(torch.empty(config.max_len, config.d_model))
            nn.init.normal_(self.positions, std=config.d_model**-0.5)
        else:
            self.register_buffer("positions", sinusoids(config.max_len, config.d_model), persistent=False)

    def forward(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """Logits of the token after each of `target_ids` (B T), given `source_ids` (B S)."""
        logits: Tensor = self.output(self.hidden(source_ids, target_ids))  # B T V
        return logits

    def hidden(self, source_ids: Tensor, target_ids: Tensor) -> Tensor:
        """The decoder's output, before the map to logits."""
        memory, memory_mask = self.encode(source_ids)  # B S D, B 1 1 S
        x = self._embed(self.target_embedding, target_ids)  # B T D
        # The look-ahead mask also hides the target's padding, which is always later than what is real.
        mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()  # T T
        for layer, memory_kv in zip(self.decoder, self._memory_keys_values(memory), strict=True):
            x = layer(x, mask, memory_kv, memory_mask)
        hidden: Tensor = self.decoder_norm(x)  # B T D
        return hidden

    def encode(self, source_ids: Tensor) -> tuple[Tensor, Tensor]:
        """The encoder's output, and the mask that hides the source's padding."""
        mask = (source_ids != self.config.pad_id)[:, None, None, :]  # B 1 1 S
        x = self._embed(self.source_embedding, source_ids)  # B S D
        for layer in self.encoder:
            x = layer(x, mask)
        x = self.encoder_norm(x)
        return x, mask

    def start(self, source_ids: Tensor) -> DecoderState:
        """Run the encoder once, and project the cross keys and values of every decoder layer once."""
        memory, memory_mask = self.encode(source_ids)
        return DecoderState(self._memory_keys_values(memory), memory_mask, past=[{} for _ in self.decoder])

    def step(self, ids: Tensor, state: DecoderState) -> Tensor:
        """Logits (BW V) of the token after `ids` (BW), one token of each row; `state` remembers those before."""
        x = self._embed(self.target_embedding, ids.unsqueeze(1), start=state.n_decoded)  # BW 1 D
        state.n_decoded += 1
        mask = torch.ones(1, state.n_decoded, dtype=torch.bool, device=x.device)  # the past is all visible
        for layer, memory_kv, past in zip(self.decoder, state.memory_kv, state.past, strict=True):
            x = layer(x, mask, memory_kv, state.memory_mask, past)
        logits: Tensor = self.output(self.decoder_norm(x)).squeeze(1)  # BW V
        return logits

    def _memory_keys_values(self, memory: Tensor) -> list[KeysValues]:
        layers = cast(Iterable[DecoderLayer], self.decoder)
        return [layer.cross_attention.keys_values(memory) for layer in layers]  # of each layer, B H S K

    def _embed(self, embedding: nn.Embedding, ids: Tensor, start: int = 0) -> Tensor:
        """§3.4 and §3.5: embeddings times √d_model, plus positions; dropout on the sum (§5.4)."""
        end = start + ids.size(1)
        if end > self.config.max_len:
            raise ValueError(f"{end} tokens are more than the {self.config.max_len} positions of this model")
        x: Tensor = self.dropout(embedding(ids) * math.sqrt(self.config.d_model) + self.positions[start:end])  # B T D
        return x


def count_parameters(model: nn.Module) -> int:
    """Trainable numbers, a shared matrix counted once."""
    return sum(parameter.numel() for parameter in model.parameters())


def _initialise(module: nn.Module) -> None:
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
            _initialise_attention(module)
        case Transformer() if module.config.tie == "none":
            nn.init.normal_(module.output.weight, std=module.config.d_model**-0.5)


def _initialise_attention(module: MultiHeadAttention) -> None:
    fused = module.w_q.out_features + module.w_k.out_features + module.w_v.out_features
    bound = math.sqrt(6 / (module.w_q.in_features + fused))  # Glorot over q, k and v as the one matrix they were
    for linear in (module.w_q, module.w_k, module.w_v):
        nn.init.uniform_(linear.weight, -bound, bound)
    nn.init.xavier_uniform_(module.w_o.weight)
    for linear in (module.w_q, module.w_k, module.w_v, module.w_o):
        if linear.bias is not None:
            nn.init.zeros_(linear.bias)
