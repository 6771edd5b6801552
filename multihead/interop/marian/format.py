"""Hugging Face Marian, the format of OPUS-MT: the paper's Transformer under other names.

The differences are converted exactly in both directions: sines precede cosines, special tokens have other ids, the
decoder starts with the padding token, and attention and logits always have biases, zero if necessary.

Our encoder and decoder have the same heads and the same d_ff: smaller layers are filled up with zeros, which change no
output and stay zero in training. Our languages share one vocabulary: separate ones are merged, and a piece that only
the source has is never generated. An imported model keeps its configuration and the files of its vocabulary in
`marian/`, so that an export restores them.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Annotated

import numpy as np
from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass

from multihead.config.fields import format_validation_error
from multihead.config.schema import ModelConfig
from multihead.errors import UserError
from multihead.interop.marian.folder import MarianFolder
from multihead.interop.marian.vocabulary import UNKNOWN, Vocabulary, read_vocabulary
from multihead.interop.weight_layout import InnerSizes
from multihead.storage.arrays import Array
from multihead.storage.model_folder import what_else
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, SPECIAL_TOKENS

ORIGIN = "marian"  # folder in an imported model, with the files below
ORIGINALS = ("config.json", "vocab.json", "target_vocab.json", "source.spm", "target.spm", "tokenizer_config.json")
MISSING = -1  # the id of a piece in the vocabulary of the language that does not have it
MAX_PADDING = 16  # times the numbers in a stack; a small file could ask for any amount
MAX_TOKENS = 511  # of a sentence that is not split: Marian reads up to 512 with the end symbol

Names = dict[str, str]  # module of Marian -> our module

_ATTENTION = {"q_proj": "w_q", "k_proj": "w_k", "v_proj": "w_v", "out_proj": "w_o"}
_SELF_ATTENTION: Names = {
    **{f"self_attn.{marian}": f"self_attention.{native}" for marian, native in _ATTENTION.items()},
    "self_attn_layer_norm": "residual_1.norm",
    "fc1": "feed_forward.w_1",
    "fc2": "feed_forward.w_2",
}
_ENCODER_LAYER: Names = {**_SELF_ATTENTION, "final_layer_norm": "residual_2.norm"}
_DECODER_LAYER: Names = {
    **_SELF_ATTENTION,
    **{f"encoder_attn.{marian}": f"cross_attention.{native}" for marian, native in _ATTENTION.items()},
    "encoder_attn_layer_norm": "residual_2.norm",
    "final_layer_norm": "residual_3.norm",
}
SHARED, SOURCE, TARGET, OUTPUT = (
    "model.shared.weight",
    "model.encoder.embed_tokens.weight",
    "model.decoder.embed_tokens.weight",
    "lm_head.weight",
)
OUTPUT_BIAS = "final_logits_bias"
POSITIONS = ("model.encoder.embed_positions.weight", "model.decoder.embed_positions.weight")
ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "swish": "swish", "silu": "swish"}  # name in Marian -> our name
_MODEL_AXIS = {"w_o": 0, "w_2": 0, "norm": 0}  # axis of d_model; the last one in all other weights


def layers(encoder_layers: int, decoder_layers: int) -> Iterator[tuple[str, str]]:
    """Yield the name of each module of each layer in Marian, and our name."""
    for stack, n_layers, table in (
        ("encoder", encoder_layers, _ENCODER_LAYER),
        ("decoder", decoder_layers, _DECODER_LAYER),
    ):
        for n in range(n_layers):
            for marian_name, native_name in table.items():
                yield f"model.{stack}.layers.{n}.{marian_name}", f"{stack}.{n}.{native_name}"


def stack_of(native_name: str) -> str:
    """Return the stack that one of our modules belongs to."""
    return native_name.partition(".")[0]


def permute_model_axis(name: str, array: Array, order: Array) -> Array:
    """Return an array, given its native name, with the axis of d_model in another order."""
    module, _, kind = name.rpartition(".")
    axis = _MODEL_AXIS.get(module.rpartition(".")[2], -1)
    has_model_axis = kind == "weight" or axis == 0  # the bias of a projection into heads or d_ff has none
    return np.take(array, order, axis) if has_model_axis else array


Size = Annotated[int, Field(ge=1, le=1_000_000)]
Layers = Annotated[int, Field(ge=1, le=200)]
Id = Annotated[int, Field(ge=0)]


@checked_dataclass(frozen=True, kw_only=True, config=ConfigDict(extra="ignore"))
class MarianConfig:
    """The fields of config.json that are read; the defaults are those of transformers."""

    model_type: str
    vocab_size: Size
    d_model: Annotated[int, Field(ge=2, le=65_536)]
    encoder_layers: Layers
    decoder_layers: Layers
    encoder_attention_heads: Size
    decoder_attention_heads: Size
    encoder_ffn_dim: Size
    decoder_ffn_dim: Size
    pad_token_id: Id
    eos_token_id: Id
    decoder_start_token_id: Id
    max_position_embeddings: Annotated[int, Field(ge=2, le=65_536)] = 1024
    decoder_vocab_size: Size | None = None
    activation_function: str = "gelu"
    dropout: float = 0.1
    scale_embedding: bool = False
    share_encoder_decoder_embeddings: bool = True
    tie_word_embeddings: bool = True
    normalize_before: bool = False
    normalize_embedding: bool = False
    add_final_layer_norm: bool = False

    @property
    def target_vocab_size(self) -> int:
        return self.decoder_vocab_size or self.vocab_size

    def inner_sizes(self, stack: str) -> InnerSizes:
        """Return the sizes of the encoder's or decoder's layers."""
        is_encoder = stack == "encoder"
        n_heads = self.encoder_attention_heads if is_encoder else self.decoder_attention_heads
        width = self.d_model // n_heads
        return InnerSizes(n_heads, width, width, self.encoder_ffn_dim if is_encoder else self.decoder_ffn_dim)

    @property
    def common_sizes(self) -> InnerSizes:
        """The least sizes that the layers of both stacks fit into."""
        return InnerSizes(*map(max, self.inner_sizes("encoder"), self.inner_sizes("decoder")))

    @property
    def unsupported_reason(self) -> str | None:
        """Why this model cannot be imported, or None."""
        heads = (self.encoder_attention_heads, self.decoder_attention_heads)
        ffn_dims = (self.encoder_ffn_dim, self.decoder_ffn_dim)
        for wrong, reason in (
            (any(self.d_model % number for number in heads), "d_model is not a multiple of the number of heads"),
            (
                any(max(pair) > MAX_PADDING * min(pair) for pair in (heads, ffn_dims)),
                f"encoder and decoder differ by more than {MAX_PADDING} times in the number of heads or in ffn_dim",
            ),
            (
                self.share_encoder_decoder_embeddings and self.target_vocab_size != self.vocab_size,
                f"{self.vocab_size} source pieces and {self.target_vocab_size} target pieces cannot share their "
                "embeddings",
            ),
            (self.activation_function not in ACTIVATIONS, f"the activation is {self.activation_function}"),
            (self.normalize_before, "LayerNorm precedes the sub-layers"),
            (self.normalize_embedding, "embeddings have a LayerNorm"),
            (self.add_final_layer_norm, "a stack ends with an additional LayerNorm"),
            (not 0 <= self.dropout < 1, f"dropout is {self.dropout}"),
        ):
            if wrong:
                return reason
        return None


def read_config(files: MarianFolder) -> MarianConfig:
    document = files.json("config.json")
    if "model_type" not in document and "format" in document:
        raise UserError(f"{files.path} is already a model of Multihead")
    if (kind := document.get("model_type")) != "marian":
        what = (
            f"it is of type {str(kind)[:40]}" if kind else what_else(files.path) or "its config.json has no model_type"
        )
        raise UserError(f"{files.path} is not a Marian model of Hugging Face: {what}")
    try:
        config: MarianConfig = TypeAdapter(MarianConfig).validate_python(document)
    except ValidationError as error:
        raise UserError(f"{files.path}/config.json: {format_validation_error(error)}") from None
    if reason := config.unsupported_reason:
        raise UserError(f"{files.path} cannot be imported: {reason}")
    return config


@dataclass(frozen=True, slots=True, kw_only=True)
class VocabularyMapping:
    """How our ids map to those of Marian, and the ids of special tokens there."""

    pieces: list[str]  # by native id
    source_ids: list[int]  # of Marian by native id, or MISSING
    target_ids: list[int]  # the same, unless the vocabularies are separate
    start_id: int  # first input of the decoder
    pad_id: int
    eos_id: int
    is_native: bool = False  # the ids are the same

    @property
    def is_separate(self) -> bool:
        return self.source_ids != self.target_ids

    @property
    def start_is_padding(self) -> bool:
        """Whether Marian has no start token; ours is then a copy of its padding token."""
        return self.start_id == self.pad_id

    def native_ids(self, marian_ids: list[int]) -> Array:
        """Return our ids in the order of those of Marian, given `source_ids` or `target_ids`."""
        order = np.argsort(marian_ids, kind="stable")[marian_ids.count(MISSING) :]
        return order[order != BOS_ID] if self.start_is_padding else order

    @staticmethod
    def native(pieces: list[str]) -> "VocabularyMapping":
        ids = list(range(len(pieces)))
        return VocabularyMapping(
            pieces=pieces, source_ids=ids, target_ids=ids, start_id=BOS_ID, pad_id=PAD_ID, eos_id=EOS_ID, is_native=True
        )


def map_vocabulary(config: MarianConfig, vocabulary: Vocabulary) -> VocabularyMapping:
    """Put the special tokens first, as in our vocabularies, and keep the order of all other pieces.

    With separate vocabularies, those of the source come before those that only the target has.
    """
    pad_id, eos_id, start_id = config.pad_token_id, config.eos_token_id, config.decoder_start_token_id
    sides = (vocabulary.source_pieces, vocabulary.target_pieces)
    symbols, target_symbols = ([pad_id, side.index(UNKNOWN), start_id, eos_id] for side in sides)
    for side, ids in zip(sides, (symbols, target_symbols), strict=True):
        if max(ids) >= len(side) or len({pad_id, ids[1], eos_id}) < 3 or start_id in (ids[1], eos_id):
            raise UserError(f"the ids of the padding, unknown, start and end tokens cannot be {ids}")
    if any(sides[0][id] != sides[1][id] for id in (pad_id, start_id, eos_id)):
        raise UserError(
            f"the ids of the padding, start and end tokens, {[pad_id, start_id, eos_id]}, are different pieces in "
            "vocab.json and target_vocab.json"
        )
    numbers = [
        {piece: id for id, piece in enumerate(side) if id not in ids}
        for side, ids in zip(sides, (set(symbols), set(target_symbols)), strict=True)
    ]
    others = list(dict.fromkeys(chain(*numbers)))
    source_ids, target_ids = (
        [*ids, *(side.get(piece, MISSING) for piece in others)]
        for ids, side in zip((symbols, target_symbols), numbers, strict=True)
    )
    if vocabulary.is_native and source_ids != list(range(len(sides[0]))):
        raise UserError(f"the special tokens of tokenizer.json are not those of config.json, {symbols}")
    return VocabularyMapping(
        pieces=[*SPECIAL_TOKENS, *others],
        source_ids=source_ids,
        target_ids=target_ids,
        start_id=start_id,
        pad_id=pad_id,
        eos_id=eos_id,
        is_native=vocabulary.is_native,
    )


def read_original(origin: Path, model: ModelConfig, with_models: bool = True) -> tuple[MarianConfig, VocabularyMapping]:
    """Return the configuration and the vocabulary that an imported model of this shape had in Marian."""
    folder = MarianFolder(origin)
    config = read_config(folder)
    vocabulary = map_vocabulary(config, read_vocabulary(folder, with_models))
    if (model.vocab_size, InnerSizes.of(model)) != (len(vocabulary.pieces), config.common_sizes):
        raise UserError(f"{origin} is damaged: it does not have the vocabulary or the shape of the model")
    return config, vocabulary
