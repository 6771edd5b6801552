"""The formats that a model can leave for, in one table: what each can express, and who writes it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from multihead.config.schema import ModelConfig, RunConfig
from multihead.errors import UsageError, UserError
from multihead.interop.ctranslate2_export import export_ctranslate2, unsupported_by_ctranslate2
from multihead.interop.marian.exporter import export_marian, unsupported_by_marian
from multihead.interop.onnx_export import export_onnx, unsupported_by_onnx
from multihead.model.transformer import Transformer
from multihead.model.weights import load_model
from multihead.storage.shortlist import load_shortlist
from multihead.text.tokenizer import SubwordTokenizer

FULL = "float32"


@dataclass(frozen=True, slots=True)
class Loaded:
    """A model with what belongs to it."""

    folder: Path
    model: Transformer
    tokenizer: SubwordTokenizer
    config: RunConfig


@dataclass(frozen=True, slots=True)
class Format:
    why_not: Callable[[ModelConfig], str]  # why a shape cannot be expressed, in words; empty if it can
    write: Callable[[Loaded, Path, str], None]  # to this folder, with numbers of this kind


def _to_ctranslate2(it: Loaded, output: Path, quantization: str) -> None:
    export_ctranslate2(it.model, it.tokenizer, output, quantization, load_shortlist(it.folder))


def _to_marian(it: Loaded, output: Path, quantization: str) -> None:
    _only_in_full("marian", quantization)
    export_marian(it.model, it.tokenizer, it.config, output, it.folder)


def _to_onnx(it: Loaded, output: Path, quantization: str) -> None:
    _only_in_full("onnx", quantization)
    export_onnx(it.model, it.tokenizer, output)


def _only_in_full(name: str, quantization: str) -> None:
    if quantization != FULL:
        raise UsageError(f"--format {name} writes {FULL}: --quantization {quantization} is for ctranslate2")


FORMATS = {
    "ctranslate2": Format(unsupported_by_ctranslate2, _to_ctranslate2),
    "marian": Format(unsupported_by_marian, _to_marian),
    "onnx": Format(unsupported_by_onnx, _to_onnx),
}


def export(folder: Path, name: str, output: Path, quantization: str = FULL) -> None:
    """The model in `folder` in another format; refused before a file is written if that cannot express it."""
    if name not in FORMATS:
        raise UsageError(f"there is no format '{name}'; there are {', '.join(FORMATS)}")
    model, tokenizer, config = load_model(folder)
    if reason := FORMATS[name].why_not(config.model):
        raise UserError(f"{folder} cannot be exported: {reason}")
    FORMATS[name].write(Loaded(folder, model, tokenizer, config), output, quantization)


def describe_export_support(config: ModelConfig) -> str:
    """Which formats a shape can leave for, in a sentence."""
    reasons = {name: format.why_not(config) for name, format in FORMATS.items()}
    able = [name for name, reason in reasons.items() if not reason]
    unable = [f"; not to {name}: {reason}" for name, reason in reasons.items() if reason]
    return f"can be exported to {', '.join(able) or 'no other engine'}{''.join(unable)}"
