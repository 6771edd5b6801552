"""The Transformer of "Attention Is All You Need", §3 in the order of §3.

Shapes: B batch, S source length, T target length, D d_model, F d_ff, H heads, K d_k or d_v, V vocabulary;
while decoding, R rows: the hypotheses of all sentences, one after the other, of which a sentence has W at most.
Masks are boolean, True = may attend, and broadcast to B H T S. They are made in `Transformer` alone.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config import ModelConfig

SHORT = 64  # keys up to which CPUs train faster by eq. (1) as it is printed: the fused kernel is made for long texts
ROOM = 8  # steps that a decoder makes room for at a time

KeysValues = tuple[Tensor, Tensor]  # both B H S K
Past = dict[str, Tensor]  # what one decoder layer keeps of earlier steps; axis 0 is the row


class Score(Protocol):
    """What weighs the keys of each query, and draws from the values."""

    def __call__(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor: ...

    def weights(self, q: Tensor, k: Tensor, mask: Tensor) -> Tensor: ...


class Mixer(Protocol):
    """What lets the places of a sequence know of each other: self-attention in the paper."""

    def __call__(self, x: Tensor, mask: Tensor, past: Past | None = None) -> Tensor: ...


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
        if k.size(2) <= SHORT:
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
        past: Past | None = None,
        kv: KeysValues | None = None,
        rows: "Rows | None" = None,
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

    def _own_keys_values(self, x: Tensor, mask: Tensor, past: Past | None) -> KeysValues:
        k, v = self.keys_values(x)  # B H T K, or R H 1 K
        if past is None:
            return k, v
        at = mask.size(1) - 1
        return _remember(past, "k", k, at), _remember(past, "v", v, at)  # R H T K

    def _split_heads(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:-1], self.n_heads, -1).transpose(1, 2)  # B H T K


def _remember(past: Past, name: str, new: Tensor, at: int) -> Tensor:
    """Add this step's keys or values (R H 1 K) to those before; room is made for some steps at a time, so that most
    steps copy nothing."""
    if at % ROOM == 0:
        room = new.new_empty(*new.shape[:2], ROOM, new.size(3))
        past[name] = torch.cat([past[name], room], dim=2) if past.get(name) is not None else room
    past[name][:, :, at] = new.squeeze(2)
    return past[name][:, :, : at + 1]  # R H T K


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


# §5.4 Dropout


class Dropout(nn.Module):
    """Sets a share of the numbers to zero while training, and scales the rest so that the mean stays.

    On CPUs torch draws a number of 64 bits for each; a quarter of that is plenty, and takes a quarter of the time.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * kept(x.shape, self.p) if x.device.type == "cpu" else F.dropout(x, self.p)


def kept(shape: torch.Size, p: float) -> Tensor:
    """1 / (1 - p) where a number is kept, 0 where it is dropped, from 16 random bits for each."""
    n_dropped = round(p * 2**16)  # of the 2^16 values that 16 bits can have
    bits = torch.empty(math.ceil(shape.numel() / 4), dtype=torch.int64).random_(-(2**63), None)
    is_kept = bits.view(torch.int16)[: shape.numel()] >= n_dropped - 2**15
    return is_kept.float().mul_(2**16 / (2**16 - n_dropped)).view(shape)


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

    def forward(self, x: Tensor, mask: Tensor, memory: "Memory", past: Past | None = None) -> Tensor:
        x = self.residual_1(x, lambda y: self.self_attention(y, mask, past))
        x = self.residual_2(x, lambda y: self.cross_attention(y, memory.mask, kv=memory.kv, rows=memory.rows))
        x = self.residual_3(x, self.feed_forward)
        return x


# §3.5 Positional encoding


def sinusoids(max_len: int, d_model: int) -> Tensor:
    """§3.5: sin(pos / 10000^(2i/d_model)) in the even dimensions, the cosine of the same in the odd ones."""
    position = torch.arange(max_len, dtype=torch.float64).unsqueeze(1)
    angle = position * 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :d_model].float()  # max_len D


# The whole model


@dataclass(frozen=True, slots=True)
class Rows:
    """Hypotheses of one sentence are merely more queries on the same memory.

    Cross-attention lays them side by side in the query axis, so that the encoder's output is neither copied nor
    reordered; sentences with fewer leave some places unused, and only there.
    """

    sentence: Tensor  # R: whose each row is; rows of one sentence follow each other
    place: Tensor  # R: sentence · W + which of its rows this is
    n_sentences: int
    width: int  # W

    @staticmethod
    def of(sentence: Tensor, n_sentences: int) -> "Rows":
        """The rows of these sentences (R), of which there are `n_sentences`, some maybe without a row."""
        counts = sentence.bincount(minlength=n_sentences)  # B
        first, width = counts.cumsum(0) - counts, int(counts.max())
        place = sentence * width + torch.arange(len(sentence), device=sentence.device) - first[sentence]
        return Rows(sentence, place, n_sentences, width)

    def spread(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """R … to B W …"""
        spread = x.new_full((self.n_sentences * self.width, *x.shape[1:]), fill)
        spread[self.place] = x
        return spread.view(self.n_sentences, self.width, *x.shape[1:])

    def fold(self, q: Tensor) -> Tensor:
        return self.spread(q.squeeze(2)).transpose(1, 2)  # B H W K

    def unfold(self, heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(0, 1)[self.place].unsqueeze(2)  # R H 1 K


class Memory(NamedTuple):
    """The encoder's output, as a decoder layer attends to it."""

    kv: KeysValues
    mask: Tensor
    rows: Rows | None = None  # while decoding


@dataclass(slots=True)
class DecoderState:
    """What decoding keeps between steps: the encoder's side once a sentence, the decoder's side once a row."""

    memory_kv: list[KeysValues]  # of each layer, B H S K
    memory_mask: Tensor  # B 1 1 S
    output: tuple[Tensor, Tensor | None]  # weight and bias of the map to logits, of the words that may be said
    rows: Rows
    past: list[Past]  # of each layer, axis 0 has R rows
    n_decoded: int = 0

    def reorder(self, rows: Tensor) -> None:
        """Make row i continue from what row `rows[i]` was."""
        self.past = [{name: kept.index_select(0, rows) for name, kept in layer.items()} for layer in self.past]
        self.rows = Rows.of(self.rows.sentence[rows], self.rows.n_sentences)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Go on with these sentences only; no row may be of another."""
        self.memory_kv = [(k[sentences], v[sentences]) for k, v in self.memory_kv]
        self.memory_mask = self.memory_mask[sentences]
        self.rows = Rows.of(torch.searchsorted(sentences, self.rows.sentence), len(sentences))


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What makes the attention of a layer, given its number; variants.py has others than the paper's."""

    encoder: Callable[[int], Mixer]
    decoder: Callable[[int], Mixer]
    cross: Callable[[], MultiHeadAttention]
    structure: nn.Module | None = None  # reads what a source is known to have beside the order of its words

    @staticmethod
    def of_the_paper(config: ModelConfig) -> "Parts":
        if config.variants:
            raise ValueError(f"{config.variants[0]} is not in the paper: variants.build_model makes such a model")
        return Parts(
            encoder=lambda _: MultiHeadAttention(config),
            decoder=lambda _: MultiHeadAttention(config),
            cross=lambda: MultiHeadAttention(config),
        )


class Transformer(nn.Module):
    """Source and target ids in, logits out: `logits = Transformer(config)(source_ids, target_ids)`."""

    def __init__(self, config: ModelConfig, parts: Parts | None = None) -> None:
        super().__init__()
        self.config = config
        parts = parts or Parts.of_the_paper(config)
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
            table = sinusoids(config.max_len, config.d_model)
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
            rows=Rows.of(torch.arange(len(source_ids), device=source_ids.device), len(source_ids)),
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
