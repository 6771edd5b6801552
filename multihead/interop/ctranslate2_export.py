"""The same model for CTranslate2: a table of its names and ours, written once and kept beside the model.

Its numbers are ours to the last digits in float32.
"""

import hashlib
import importlib.util
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.errors import UserError
from multihead.interop.weight_layout import head_width, pad_heads
from multihead.model.transformer import Transformer
from multihead.model.weights import weights_of
from multihead.storage.files import atomic_directory, can_overwrite
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import BOS_ID, EOS_ID, SPECIAL_TOKENS, UNK_ID, SubwordTokenizer

FORMAT = 2  # of an export; another number makes those that are kept beside a model stale
FINGERPRINT_FILE = "multihead.json"  # what an export was made from
VOCABULARY_MAP = "vmap.txt"  # what CTranslate2 calls a shortlist
N_SPECIAL = len(SPECIAL_TOKENS)
INT8 = ("int8", "int8_float32")
# CTranslate2 takes 127. But processors without VNNI add pairs of products in 16 bits, which overflow: on such a one the
# error of log-probabilities was 0.071 with 127, 0.031 with 96; and 91 % of texts were those of float32, not 81 %.
MAX_INT8 = 96
RELATIVE = "model.positions=relative"

Table = dict[str, tuple[str, ...]]  # a module of theirs -> those of ours that are stacked into it

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


# Export


def unsupported_by_ctranslate2(config: ModelConfig) -> str:
    """Why CTranslate2 cannot run this shape, in words; empty if it can."""
    if others := [name for name in config.variants if name != RELATIVE]:
        return f"CTranslate2 has attention as in the paper, not {others[0]}"
    if config.activation not in _ACTIVATIONS:
        return f"CTranslate2 does not have the activation {config.activation}"
    widest = max(config.vocab_size, config.max_len, config.d_ff, 3 * config.n_heads * head_width(config))
    if 4 * widest * config.d_model >= 2**32:  # it writes sizes in bytes as 32 bits
        return f"CTranslate2 stores no matrix of {widest:,} x {config.d_model:,} numbers: that is over 4 GB"
    return ""


def export_ctranslate2(
    model: Transformer,
    tokenizer: SubwordTokenizer,
    folder: Path,
    quantization: str = "float32",
    shortlist: Shortlist | None = None,
) -> None:
    """Write the model for CTranslate2. Refused before a file is written if it cannot be run.

    The vocabulary is the pieces of tokenizer.json, which lies beside it: `encode(text).tokens` of the `tokenizers`
    library is what CTranslate2 translates, and it adds the end symbol itself.
    """
    library = import_ctranslate2()
    pieces = tokenizer.pieces()
    known = library.specs.model_spec.ACCEPTED_MODEL_TYPES
    if reason := unsupported_by_ctranslate2(model.config):
        raise UserError(reason)
    if quantization not in known:
        raise UserError(f"CTranslate2 has no quantization '{quantization}': take one of {', '.join(known)}")
    if len(set(pieces)) != len(pieces) or len(pieces) != model.config.vocab_size:
        raise UserError(f"a model of {model.config.vocab_size} pieces does not fit a tokenizer of {len(pieces)}")
    if not can_overwrite(folder, "model.bin"):
        raise UserError(f"{folder} is there already, and is not an export of CTranslate2: give another folder")
    in_int8 = quantization in INT8
    specification = _specification(library, model, in_int8)
    specification.register_source_vocabulary(pieces)
    specification.register_target_vocabulary(pieces)
    specification.validate()
    specification.optimize(quantization=None if in_int8 else quantization)
    with atomic_directory(folder) as aside:
        specification.save(str(aside))
        (aside / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")
        if shortlist:
            (aside / VOCABULARY_MAP).write_text(_vocabulary_map(shortlist, pieces), encoding="utf-8")
        stamp = fingerprint(model, tokenizer, quantization, shortlist)
        (aside / FINGERPRINT_FILE).write_text(json.dumps(stamp, indent=2), encoding="utf-8")


def _vocabulary_map(shortlist: Shortlist, pieces: Sequence[str]) -> str:
    """A shortlist as CTranslate2 reads it: a word, a tab, and what may be said for it; no word at all for always."""

    def line(word: str, candidates: Iterable[int]) -> str:
        return f"{word}\t{' '.join(pieces[id] for id in dict.fromkeys(candidates) if id >= N_SPECIAL)}\n"

    words = range(N_SPECIAL, len(pieces))
    by_word = zip(words, shortlist.candidates[N_SPECIAL:].tolist(), strict=True)
    return line("", shortlist.frequent.tolist()) + "".join(line(pieces[id], [*said, id]) for id, said in by_word)


def has_ctranslate2() -> bool:
    return importlib.util.find_spec("ctranslate2") is not None


def import_ctranslate2() -> Any:
    try:
        import ctranslate2
    except ImportError:
        raise UserError("CTranslate2 is not installed: pip install 'multihead[interop]'") from None
    return ctranslate2


def _specification(library: Any, model: Transformer, in_int8: bool) -> Any:
    """The model in the classes of CTranslate2."""
    config, specs = model.config, library.specs
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
        specs.TransformerDecoderSpec(config.decoder_layers, **shape),
    )
    result.config.unk_token, result.config.bos_token = SPECIAL_TOKENS[UNK_ID], SPECIAL_TOKENS[BOS_ID]
    result.config.decoder_start_token, result.config.eos_token = SPECIAL_TOKENS[BOS_ID], SPECIAL_TOKENS[EOS_ID]
    result.config.add_source_eos = True
    result.config.layer_norm_epsilon = nn.LayerNorm(1).eps
    for theirs, ours in _names(config):
        _fill(_find(result, theirs), [(name, model.get_submodule(name)) for name in ours], config, in_int8)
    for stack, layers in ((result.encoder, model.encoder), (result.decoder, model.decoder)):
        if is_relative:
            _fill_relative(stack.layer, layers, head_width(config))
        else:  # without a table it would begin at 1, cosines behind the sines
            stack.position_encodings.encodings = model.positions.detach().cpu().clone()
    return result


def _fill_relative(theirs: Sequence[Any], ours: nn.ModuleList, width: int) -> None:
    for their_layer, our_layer in zip(theirs, ours, strict=True):
        score = our_layer.get_submodule("self_attention.score")
        for name in ("keys", "values"):
            table = score.get_parameter(name).detach().cpu().float()
            wide = F.pad(table, (0, width - table.size(1)))
            setattr(their_layer.self_attention, f"relative_position_{name}", wide.clone())


def _names(config: ModelConfig) -> Iterator[tuple[str, tuple[str, ...]]]:
    """The whole table for this shape."""
    yield from _EMBEDDINGS.items()
    if config.norm == "pre":
        yield from _FINAL_NORMS.items()
    stacks = (
        ("encoder", config.encoder_layers, _ENCODER_LAYER),
        ("decoder", config.decoder_layers, _DECODER_LAYER),
    )
    for stack, n_layers, table in stacks:
        for n in range(n_layers):
            for theirs, ours in table.items():
                yield f"{stack}.layer.{n}.{theirs}", tuple(f"{stack}.{n}.{name}" for name in ours)


def _find(specification: Any, path: str) -> Any:
    for name in path.split("."):
        specification = specification[int(name)] if name.isdigit() else getattr(specification, name)
    return specification


def _fill(theirs: Any, ours: Sequence[tuple[str, nn.Module]], config: ModelConfig, in_int8: bool) -> None:
    is_norm, width = isinstance(ours[0][1], nn.LayerNorm), head_width(config)
    for attribute, name in {"weight": "gamma", "bias": "beta"}.items():
        parts = [(our_name, getattr(module, attribute, None)) for our_name, module in ours]
        tensors = [
            pad_heads(our_name, part.detach().cpu().float(), config, width)
            for our_name, part in parts
            if part is not None
        ]
        if tensors and in_int8 and attribute == "weight" and not is_norm:
            theirs.weight, theirs.weight_scale = _quantized(torch.cat(tensors))
        elif tensors:
            # A new tensor, even of one part: quantization works in place, and would reach the model's own numbers.
            setattr(theirs, name if is_norm else attribute, torch.cat(tensors))


def _quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Each row in whole numbers up to LARGEST, and by how much it was multiplied."""
    scale = MAX_INT8 / weight.abs().amax(dim=1).clamp_min(torch.finfo(torch.float32).tiny * MAX_INT8)
    return (weight * scale.unsqueeze(1)).round().to(torch.int8), scale


def fingerprint(
    model: Transformer, tokenizer: SubwordTokenizer, quantization: str, shortlist: Shortlist | None
) -> dict[str, object]:
    """All that an export is a function of."""
    digest = hashlib.sha256(json.dumps(asdict(model.config)).encode() + tokenizer.to_json().encode())
    for name, tensor in sorted(weights_of(model).items()):
        digest.update(name.encode())
        digest.update(tensor.cpu().contiguous().numpy().data)
    for array in (shortlist.candidates, shortlist.frequent) if shortlist else ():
        digest.update(np.ascontiguousarray(array).data)
    versions = {"format": FORMAT, "ctranslate2": import_ctranslate2().__version__}
    return {**versions, "quantization": quantization, "sha256": digest.hexdigest()}
