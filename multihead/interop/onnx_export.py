"""The same model as two ONNX graphs: the encoder, and one step of the decoder with what it keeps between steps.

    encoder.onnx   source_ids (B S) -> memory_mask (B S), memory.L.k and memory.L.v (B H S K) for each layer L
    decoder.onnx   ids (B), memory_mask, memory.L.*, past.L.k and past.L.v (B H T K) -> logits (B V), present.L.*

`past` is empty (T = 0) at first, and `present` of a step is `past` of the next. Batch and lengths are free.
"""

import contextlib
import importlib.util
import json
import logging
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.errors import UserError
from multihead.model.incremental import Memory
from multihead.model.transformer import DecoderLayer, MultiHeadAttention, Transformer
from multihead.storage.files import atomic_directory, can_overwrite
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, SubwordTokenizer

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
SETTINGS = "onnx.json"  # what a program needs to know beside the graphs
OPSET = 18


class Encoder(nn.Module):
    """The encoder, and the keys and values that decoder layers attend to."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source_ids: Tensor) -> tuple[Tensor, ...]:
        memory, mask = self.model.encode(source_ids)  # B S D, B 1 1 S
        return mask[:, 0, 0], *chain.from_iterable(self.model.memory_keys_values(memory))


class DecoderStep(nn.Module):
    """`Transformer.step` without the room that it makes for steps to come, and with a row for each sentence."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor, memory_mask: Tensor, memory: list[Tensor], past: list[Tensor]) -> tuple[Tensor, ...]:
        model, n_decoded = self.model, past[0].size(2)
        x = model.embed(model.target_embedding, ids.unsqueeze(1), n_decoded)  # B 1 D
        present: list[Tensor] = []
        for n, layer in enumerate(cast(Iterable[DecoderLayer], model.decoder)):
            here = slice(2 * n, 2 * n + 2)
            keys, values = memory[here]
            x = self._layer(layer, x, Memory((keys, values), memory_mask[:, None, None, :]), past[here], present)
        logits: Tensor = model.output(model.decoder_norm(x.squeeze(1)))  # B V
        return logits, *present

    @staticmethod
    def _layer(layer: DecoderLayer, x: Tensor, memory: Memory, past: list[Tensor], present: list[Tensor]) -> Tensor:
        def attend_to_itself(y: Tensor) -> Tensor:
            self_attention = cast(MultiHeadAttention, layer.self_attention)
            new = self_attention.keys_values(y)
            k, v = (torch.cat(both, dim=2) for both in zip(past, new, strict=True))  # B H T+1 K
            present.extend((k, v))
            visible = torch.ones(1, k.size(2), dtype=torch.bool)  # the past is all visible
            out: Tensor = self_attention(y, visible, kv=(k, v))
            return out

        x = layer.residual_1(x, attend_to_itself)
        x = layer.residual_2(x, lambda y: layer.cross_attention(y, memory.mask, kv=memory.kv))
        x = layer.residual_3(x, layer.feed_forward)
        return x


def unsupported_by_onnx(config: ModelConfig) -> str:
    """Why these graphs cannot be this shape, in words; empty if they can."""
    return (
        f"a step of the decoder is written for attention as in the paper, not for {config.variants[0]}"
        if config.variants
        else ""
    )


def export_onnx(model: Transformer, tokenizer: SubwordTokenizer, output: Path) -> None:
    """Write both graphs, the tokenizer, and the settings that a program needs to decode with them."""
    _check_library()
    if reason := unsupported_by_onnx(model.config):
        raise UserError(reason)
    if not can_overwrite(output, ENCODER):
        raise UserError(f"{output} is there already, and is not an export to ONNX: give another folder")
    config = model.config
    settings = {
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
    with atomic_directory(output) as aside:
        _write_graphs(model.cpu().eval(), aside)
        (aside / "tokenizer.json").write_text(tokenizer.json_with_eos(), encoding="utf-8")
        (aside / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


@torch.no_grad()
def _write_graphs(model: Transformer, folder: Path) -> None:
    config, layers = model.config, range(model.config.decoder_layers)
    memory_names, past_names, present_names = (
        [f"{name}.{n}.{part}" for n in layers for part in "kv"] for name in ("memory", "past", "present")
    )
    batch, length, steps = (
        torch.export.Dim("batch"),
        torch.export.Dim("source_length", max=config.max_len),
        torch.export.Dim("steps", max=config.max_len - 1),
    )
    source_ids = torch.full((2, 3), EOS_ID)  # an example; sizes of 0 and 1 would be taken for fixed ones
    mask, *memory = Encoder(model)(source_ids)
    past = [torch.zeros(2, config.n_heads, 5, width) for _ in layers for width in (config.d_k, config.d_v)]
    _write(
        folder / ENCODER,
        Encoder(model),
        example=(source_ids,),
        shapes={"source_ids": {0: batch, 1: length}},
        names=(["source_ids"], ["memory_mask", *memory_names]),
    )
    _write(
        folder / DECODER,
        DecoderStep(model),
        example=(source_ids[:, 0], mask, memory, past),
        shapes={
            "ids": {0: batch},
            "memory_mask": {0: batch, 1: length},
            "memory": [{0: batch, 2: length}] * len(memory),
            "past": [{0: batch, 2: steps}] * len(past),
        },
        names=(["ids", "memory_mask", *memory_names, *past_names], ["logits", *present_names]),
    )


def _write(
    path: Path,
    module: nn.Module,
    *,
    example: tuple[Any, ...],
    shapes: dict[str, Any],
    names: tuple[list[str], list[str]],
) -> None:
    with _quiet():
        torch.onnx.export(
            module.eval(),
            example,
            path,
            input_names=names[0],
            output_names=names[1],
            dynamic_shapes=shapes,
            opset_version=OPSET,
            dynamo=True,
            external_data=False,  # one file, which onnxruntime reads from any folder
            verbose=False,
        )


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """The exporter warns of its own insides, and of torchvision, which nobody asked for."""
    logger = logging.getLogger("torch.onnx")
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FutureWarning)
            warnings.filterwarnings("ignore", message="# The axis name", category=UserWarning)
            yield
    finally:
        logger.setLevel(before)


def _check_library() -> None:
    if any(importlib.util.find_spec(name) is None for name in ("onnx", "onnxscript")):
        raise UserError("ONNX is not installed: pip install 'multihead[interop]'")
