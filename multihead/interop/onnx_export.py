"""Export to two ONNX graphs: the encoder, and one decoding step with its cache as inputs and outputs.

    encoder.onnx   source_ids (B S) -> memory_mask (B S), memory.L.k and memory.L.v (B H S K) for each layer L
    decoder.onnx   ids (B), memory_mask, memory.L.*, past.L.k and past.L.v (B H T K) -> logits (B V), present.L.*

`past` is empty (T = 0) at the first step, and `present` of a step is `past` of the next. B, S and T are dynamic.
"""

import json
from pathlib import Path

from multihead.config.schema import ModelConfig
from multihead.errors import UserError, require
from multihead.storage.files import atomic_directory, check_writable
from multihead.storage.model_folder import ModelFolder
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID

SETTINGS = "onnx.json"  # what a program needs to know beside the graphs


def unsupported_by_onnx(config: ModelConfig) -> str | None:
    """Return why these graphs cannot express this shape, or None if they can."""
    return f"the decoding step does not support {config.variants[0]}" if config.variants else None


def export_onnx(model: ModelFolder, output: Path) -> None:
    """Write both graphs, the tokenizer, and the settings that a program needs to decode with them."""
    require("torch", extra="train", purpose="an export to ONNX")
    for module in ("onnx", "onnxscript"):
        require(module, extra="interop")
    from multihead.interop.onnx_graphs import ENCODER, write_graphs
    from multihead.model.weights import load_model

    if reason := unsupported_by_onnx(model.config.model):
        raise UserError(reason)
    check_writable(output, ENCODER, "an ONNX export")
    transformer, tokenizer, _ = load_model(model.path)
    with atomic_directory(output) as temporary:
        write_graphs(transformer, temporary)
        (temporary / "tokenizer.json").write_text(tokenizer.json_with_eos(), encoding="utf-8")
        (temporary / SETTINGS).write_text(json.dumps(_settings(model.config.model), indent=2) + "\n", encoding="utf-8")


def _settings(config: ModelConfig) -> dict[str, int]:
    return {
        "pad_id": PAD_ID,
        "start_id": BOS_ID,
        "eos_id": EOS_ID,
        "decoder_layers": config.decoder_layers,
        "n_heads": config.n_heads,
        "d_k": config.d_k,
        "d_v": config.d_v,
        "vocab_size": config.vocab_size,
        "max_len": config.max_len,
    }
