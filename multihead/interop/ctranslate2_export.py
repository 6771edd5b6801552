"""Export to CTranslate2: a table from its names to ours, and int8 quantization. In float32 the results are equal."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from multihead.config.schema import ModelConfig
from multihead.errors import UserError
from multihead.interop.weight_layout import head_width, pad_heads, read_weights
from multihead.model.positions import sinusoids
from multihead.storage.arrays import Array, Arrays
from multihead.storage.files import atomic_directory, check_writable
from multihead.storage.model_folder import ModelFolder
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import BOS_ID, EOS_ID, SPECIAL_TOKENS, UNK_ID

VOCABULARY_MAP = "vmap.txt"  # the shortlist, as CTranslate2 calls it
N_SPECIAL = len(SPECIAL_TOKENS)
LAYER_NORM_EPSILON = 1e-5  # of torch.nn.LayerNorm
INT8 = ("int8", "int8_float32")
# CTranslate2 itself quantizes to 127. But CPUs without VNNI add pairs of products in 16 bits, which overflow: on such a
# CPU the error of log-probabilities was 0.071 with 127 and 0.031 with 96, and 91% of the translations equaled those of
# float32 instead of 81%.
MAX_INT8 = 96
RELATIVE = "model.positions=relative"

Table = dict[str, tuple[str, ...]]  # a module of CTranslate2 -> our modules that are stacked into it

_EMBEDDINGS: Table = {
    "encoder.embeddings.0": ("source_embedding",),
    "decoder.embeddings": ("target_embedding",),
    "decoder.projection": ("output",),
}
_FINAL_NORMS: Table = {  # with norm=pre
    "encoder.layer_norm": ("encoder_norm",),
    "decoder.layer_norm": ("decoder_norm",),
}
_SELF_ATTENTION: Table = {
    "self_attention.linear.0": ("self_attention.w_q", "self_attention.w_k", "self_attention.w_v"),
    "self_attention.linear.1": ("self_attention.w_o",),
    "self_attention.layer_norm": ("residual_1.norm",),
}
_ENCODER_LAYER: Table = {
    **_SELF_ATTENTION,
    "ffn.linear_0": ("feed_forward.w_1",),
    "ffn.linear_1": ("feed_forward.w_2",),
    "ffn.layer_norm": ("residual_2.norm",),
}
_DECODER_LAYER: Table = {
    **_SELF_ATTENTION,
    "attention.linear.0": ("cross_attention.w_q",),
    "attention.linear.1": ("cross_attention.w_k", "cross_attention.w_v"),
    "attention.linear.2": ("cross_attention.w_o",),
    "attention.layer_norm": ("residual_2.norm",),
    "ffn.linear_0": ("feed_forward.w_1",),
    "ffn.linear_1": ("feed_forward.w_2",),
    "ffn.layer_norm": ("residual_3.norm",),
}
_ACTIVATIONS = {"relu": "RELU", "gelu": "GELU", "swish": "SWISH"}


def unsupported_by_ctranslate2(config: ModelConfig) -> str | None:
    """Return why CTranslate2 cannot run this shape, or None if it can."""
    if others := [name for name in config.variants if name != RELATIVE]:
        return f"CTranslate2 does not support {others[0]}"
    if config.activation not in _ACTIVATIONS:
        return f"CTranslate2 does not support model.activation={config.activation}"
    widest = max(config.vocab_size, config.max_len, config.d_ff, 3 * config.n_heads * head_width(config))
    if 4 * widest * config.d_model >= 2**32:  # the format has 32 bits for the size in bytes
        return f"CTranslate2 cannot store a matrix of {widest:,} x {config.d_model:,} numbers: it is over 4 GB"
    return None


def export_ctranslate2(model: ModelFolder, output: Path, quantization: str = "float32") -> None:
    """Write a model for CTranslate2; whatever cannot be exported is refused before a file is written.

    Its vocabulary is the pieces of tokenizer.json, which is copied: CTranslate2 translates `encode(text).tokens` of the
    `tokenizers` library, and appends the end symbol itself.
    """
    import ctranslate2 as library

    quantizations = library.specs.model_spec.ACCEPTED_MODEL_TYPES
    if reason := unsupported_by_ctranslate2(model.config.model):
        raise UserError(reason)
    if quantization not in quantizations:
        raise UserError(f"CTranslate2 has no quantization '{quantization}': use one of {', '.join(quantizations)}")
    tokenizer = model.tokenizer()
    pieces = tokenizer.pieces()
    if len(set(pieces)) != len(pieces):
        raise UserError(f"{model.path}/tokenizer.json has a piece twice, which CTranslate2 does not support")
    check_writable(output, "model.bin", "a CTranslate2 export")
    in_int8 = quantization in INT8
    specification = _specification(library, model, in_int8)
    specification.register_source_vocabulary(pieces)
    specification.register_target_vocabulary(pieces)
    specification.validate()
    specification.optimize(quantization=None if in_int8 else quantization)
    with atomic_directory(output) as temporary:
        specification.save(str(temporary))
        (temporary / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
        if shortlist := model.shortlist():
            (temporary / VOCABULARY_MAP).write_text(_vocabulary_map(shortlist, pieces), encoding="utf-8")


def _vocabulary_map(shortlist: Shortlist, pieces: Sequence[str]) -> str:
    """Return a shortlist as CTranslate2 reads it: lines of a piece, a tab and its candidates, the frequent first."""

    def line(piece: str, candidates: Iterable[int]) -> str:
        return f"{piece}\t{' '.join(pieces[id] for id in dict.fromkeys(candidates) if id >= N_SPECIAL)}\n"

    ids = range(N_SPECIAL, len(pieces))
    candidates_by_id = zip(ids, shortlist.candidates[N_SPECIAL:].tolist(), strict=True)
    always = line("", shortlist.frequent.tolist())
    return always + "".join(line(pieces[id], [*candidates, id]) for id, candidates in candidates_by_id)


def _specification(library: Any, model: ModelFolder, in_int8: bool) -> Any:
    """Return the model in the classes of CTranslate2."""
    config, specs, weights = model.config.model, library.specs, read_weights(model)
    is_relative = config.positions == "relative"
    shape = {
        "num_heads": config.n_heads,
        "head_dim": head_width(config),
        "pre_norm": config.norm == "pre",
        "activation": specs.Activation[_ACTIVATIONS[config.activation]],
        "relative_position": is_relative,
    }
    result = specs.TransformerSpec(
        specs.TransformerEncoderSpec(config.encoder_layers, **shape),
        specs.TransformerDecoderSpec(
            config.decoder_layers, alignment_layer=model.alignment_layer, alignment_heads=config.n_heads, **shape
        ),
    )
    result.config.unk_token, result.config.bos_token = SPECIAL_TOKENS[UNK_ID], SPECIAL_TOKENS[BOS_ID]
    result.config.decoder_start_token, result.config.eos_token = SPECIAL_TOKENS[BOS_ID], SPECIAL_TOKENS[EOS_ID]
    result.config.add_source_eos = True
    result.config.layer_norm_epsilon = LAYER_NORM_EPSILON
    for name, native_names in _names(config):
        _fill(_find(result, name), native_names, weights, config, in_int8)
    for stack, layers in (("encoder", result.encoder), ("decoder", result.decoder)):
        if is_relative:
            _fill_relative(layers.layer, stack, weights, head_width(config))
        else:  # by default CTranslate2 counts positions from 1 and puts cosines after sines
            layers.position_encodings.encodings = _positions(config, weights)
    return result


def _positions(config: ModelConfig, weights: Arrays) -> Array:
    match config.positions:
        case "learned":
            return weights["positions"]
        case "none":
            return np.zeros((config.max_len, config.d_model), np.float32)
    return sinusoids(config.max_len, config.d_model)


def _fill_relative(layers: Sequence[Any], stack: str, weights: Arrays, width: int) -> None:
    for n, layer in enumerate(layers):
        for name in ("keys", "values"):
            table = weights[f"{stack}.{n}.self_attention.score.{name}"]
            padded = np.pad(table, ((0, 0), (0, width - table.shape[1])))
            setattr(layer.self_attention, f"relative_position_{name}", padded)


def _names(config: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each module of CTranslate2 for this shape, with our modules that are stacked into it."""
    yield from _EMBEDDINGS.items()
    if config.norm == "pre":
        yield from _FINAL_NORMS.items()
    stacks = (
        ("encoder", config.encoder_layers, _ENCODER_LAYER),
        ("decoder", config.decoder_layers, _DECODER_LAYER),
    )
    for stack, n_layers, table in stacks:
        for n in range(n_layers):
            for name, native_names in table.items():
                yield f"{stack}.layer.{n}.{name}", tuple(f"{stack}.{n}.{native}" for native in native_names)


def _find(specification: Any, path: str) -> Any:
    for name in path.split("."):
        specification = specification[int(name)] if name.isdigit() else getattr(specification, name)
    return specification


def _fill(layer: Any, native_names: Sequence[str], weights: Arrays, config: ModelConfig, in_int8: bool) -> None:
    is_norm, width = native_names[0].endswith("norm"), head_width(config)
    for attribute, norm_attribute in {"weight": "gamma", "bias": "beta"}.items():
        arrays = [
            pad_heads(native, weights[f"{native}.{attribute}"], config, width)
            for native in native_names
            if f"{native}.{attribute}" in weights
        ]
        if arrays and in_int8 and attribute == "weight" and not is_norm:
            layer.weight, layer.weight_scale = quantize(np.concatenate(arrays))
        elif arrays:
            setattr(layer, norm_attribute if is_norm else attribute, np.concatenate(arrays))


def quantize(weight: Array) -> tuple[Array, Array]:
    """Return each row as integers up to MAX_INT8, and the factors that the rows were multiplied by."""
    largest = np.abs(weight).max(axis=1).clip(min=np.float32(np.finfo(np.float32).tiny * MAX_INT8))
    scale = np.reciprocal(largest) * np.float32(MAX_INT8)
    return np.rint(weight * scale[:, None]).astype(np.int8), scale
