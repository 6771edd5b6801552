"""The graphs of an ONNX export, traced from a torch model: see `onnx_export` for their inputs and outputs."""

import contextlib
import logging
import warnings
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from multihead.model.incremental import Memory
from multihead.model.transformer import DecoderLayer, MultiHeadAttention, Transformer
from multihead.text.tokenizer import EOS_ID

ENCODER, DECODER = "encoder.onnx", "decoder.onnx"
OPSET = 18


class Encoder(nn.Module):
    """The encoder, with the keys and values that decoder layers attend to."""

    def __init__(self, model: Transformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, source_ids: Tensor) -> tuple[Tensor, ...]:
        memory, mask = self.model.encode(source_ids)  # B S D, B 1 1 S
        return mask[:, 0, 0], *chain.from_iterable(self.model.memory_keys_values(memory))


class DecoderStep(nn.Module):
    """`Transformer.decode_step` without preallocated cache, and with one row for each sentence."""

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
            visible = torch.ones(1, k.size(2), dtype=torch.bool)  # a step sees all of the past
            out: Tensor = self_attention(y, visible, memory=Memory((k, v), visible))
            return out

        x = layer.residual_1(x, attend_to_itself)
        x = layer.residual_2(x, lambda y: layer.cross_attention(y, memory.mask, memory=memory))
        x = layer.residual_3(x, layer.feed_forward)
        return x


@torch.no_grad()
def write_graphs(model: Transformer, folder: Path) -> None:
    """Write `encoder.onnx` and `decoder.onnx`."""
    config, layers = model.config, range(model.config.decoder_layers)
    memory_names, past_names, present_names = (
        [f"{name}.{n}.{part}" for n in layers for part in "kv"] for name in ("memory", "past", "present")
    )
    batch, length, steps = (
        torch.export.Dim("batch"),
        torch.export.Dim("source_length", max=config.max_len),
        torch.export.Dim("steps", max=config.max_len - 1),
    )
    source_ids = torch.full((2, 3), EOS_ID)  # an example input; torch.export treats sizes 0 and 1 as constants
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
        program = torch.onnx.export(
            module.eval(),
            example,
            input_names=names[0],
            output_names=names[1],
            dynamic_shapes=shapes,
            opset_version=OPSET,
            dynamo=True,
            verbose=False,
        )
    assert program is not None  # it is None if a file is named
    _remove_metadata(program.model)
    program.save(path, external_data=False)  # one file, which onnxruntime reads from any folder


def _remove_metadata(model: Any) -> None:
    """Remove what the exporter records for debugging: stack traces with paths of this machine, names of modules."""
    graph = model.graph
    values = [*graph.inputs, *graph.initializers.values()]
    for node in graph.all_nodes():
        node.metadata_props.clear()
        values += node.outputs
    for item in (model, graph, *values):
        item.metadata_props.clear()


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Silence warnings about the internals of the exporter and about missing torchvision."""
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
