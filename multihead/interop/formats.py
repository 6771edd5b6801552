"""The formats a model can be exported to."""

from collections.abc import Callable
from pathlib import Path

from multihead.config.schema import ModelConfig
from multihead.errors import UsageError, UserError
from multihead.interop.ctranslate2_export import export_ctranslate2, unsupported_by_ctranslate2
from multihead.interop.marian.exporter import export_marian, unsupported_by_marian
from multihead.interop.marian.format import ORIGIN
from multihead.interop.onnx_export import export_onnx, unsupported_by_onnx
from multihead.storage.model_folder import ModelFolder

FLOAT32 = "float32"
UNSUPPORTED: dict[str, Callable[[ModelConfig], str | None]] = {
    "ctranslate2": unsupported_by_ctranslate2,
    "marian": unsupported_by_marian,
    "onnx": unsupported_by_onnx,
}
EXPORTERS: dict[str, Callable[[ModelFolder, Path], None]] = {"marian": export_marian, "onnx": export_onnx}


def export(folder: Path, name: str, output: Path, quantization: str = FLOAT32) -> None:
    """Export the model in `folder`; a shape that the format cannot express is refused before a file is written."""
    if name not in UNSUPPORTED:
        raise UsageError(f"unknown format '{name}'; valid names: {', '.join(UNSUPPORTED)}")
    if name != "ctranslate2" and quantization != FLOAT32:
        raise UsageError(f"--format {name} writes {FLOAT32}; --quantization {quantization} requires ctranslate2")
    model = ModelFolder.open(folder)
    if reason := _unsupported(name, model.config.model, folder):
        raise UserError(f"{folder} cannot be exported to {name}: {reason}")
    if name == "ctranslate2":
        export_ctranslate2(model, output, quantization)
    else:
        EXPORTERS[name](model, output)


def _unsupported(name: str, config: ModelConfig, folder: Path | None) -> str | None:
    if name == "marian" and folder and (folder / ORIGIN).is_dir():
        return unsupported_by_marian(config, is_imported=True)
    return UNSUPPORTED[name](config)


def describe_export_support(config: ModelConfig, folder: Path | None = None) -> str:
    """Return which formats a shape can be exported to, and why not to the others; `folder` is that of the model."""
    reasons = {name: _unsupported(name, config, folder) for name in UNSUPPORTED}
    supported = ", ".join(name for name, reason in reasons.items() if not reason) or "none"
    others = "; ".join(f"not {name}: {reason}" for name, reason in reasons.items() if reason)
    return f"export formats: {supported}" + (f" ({others})" if others else "")
