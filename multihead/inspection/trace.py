"""Every tensor of one forward pass by its name, recorded by hooks on the model's own modules.

    trace = model.trace("Where is the station?")
    trace["encoder.0.self.scores"]        # H S S
    trace["decoder.1.cross.weights"]      # H T S

Names are those of the lesson's engine (lesson/assets/engine.js):

    source.embedding source.scaled source.positions source.input    and the same of target
    encoder.N.self   q k v products scores masked weights heads concat output, sum, norm
    encoder.N.ffn    inner active output, sum, norm
    decoder.N.self   decoder.N.cross   decoder.N.ffn                as in the encoder
    memory hidden logits probabilities

A layer whose tokens are mixed by something else than attention has `output`, `sum` and `norm` only. Shapes: S source
length, T target length, H heads.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn

from multihead.errors import UserError
from multihead.model.transformer import (
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    MultiHeadAttention,
    Residual,
    ScaledDotProduct,
    Transformer,
)
from multihead.model.variants.luong import LocalP
from multihead.model.variants.memory_network import MemoryNetwork
from multihead.model.variants.neural_gpu import NeuralGPU
from multihead.model.variants.scores import DotProduct

Recorded = dict[str, Tensor]
Watch = Callable[[object, Callable[..., None]], None]  # registers a hook on a module


class Trace(Mapping[str, np.ndarray[Any, Any]]):
    """The tensors of one sentence and its translation, by name, as numpy arrays in float32."""

    def __init__(
        self, tensors: Mapping[str, np.ndarray[Any, Any]], source_ids: list[int], target_ids: list[int]
    ) -> None:
        self._tensors = dict(tensors)
        self.source_ids, self.target_ids = source_ids, target_ids  # with their control symbols

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def __repr__(self) -> str:
        n_source, n_target = len(self.source_ids), len(self.target_ids)
        return f"<Trace of {n_source} source and {n_target} target tokens: {len(self)} tensors>"


@torch.inference_mode()
def record_trace(
    model: Transformer, source_ids: list[int], target_ids: list[int], source_heads: list[int] | None = None
) -> Trace:
    """Record a teacher-forced pass; ids come with their control symbols, as `Transformer.forward` takes them."""
    if isinstance(model, NeuralGPU):
        raise UserError("a Neural GPU has no attention, and no layers that could be shown")
    device = next(model.parameters()).device
    source, target = (torch.tensor([ids], device=device) for ids in (source_ids, target_ids))
    heads = None if source_heads is None else torch.tensor([source_heads], device=device)
    tensors: Recorded = {}
    with evaluating(model), _recording(model, tensors):
        logits = model(source, target, heads)
    if isinstance(model, MemoryNetwork):
        tensors |= _hops(model, source, target)
    _record_embeddings(model, source, "source", model.source_embedding, tensors)
    _record_embeddings(model, target, "target", model.target_embedding, tensors)
    tensors |= {"logits": logits, "probabilities": logits.float().softmax(dim=-1)}
    arrays = {name: tensor.squeeze(0).float().cpu().numpy() for name, tensor in tensors.items()}
    return Trace(arrays, source_ids, target_ids)


def _hops(model: MemoryNetwork, source: Tensor, target: Tensor) -> Recorded:
    """Return the hops as layers of an encoder that is the same for every token, the last one also as what words see."""
    hops = model.hop_weights(source)  # 1 1 S
    tensors = {
        f"encoder.{n}.self.weights": hop.unsqueeze(1).expand(-1, -1, hop.size(-1), -1) for n, hop in enumerate(hops)
    }
    for n in range(len(model.decoder)):
        tensors[f"decoder.{n}.cross.weights"] = hops[-1].unsqueeze(1).expand(-1, -1, target.size(1), -1)
    return tensors


def _record_embeddings(model: Transformer, ids: Tensor, side: str, embedding: nn.Embedding, tensors: Recorded) -> None:
    rows = embedding(ids)  # 1 S D
    tensors[f"{side}.embedding"] = rows
    tensors[f"{side}.scaled"] = rows * rows.size(-1) ** 0.5
    tensors[f"{side}.positions"] = model.positions[: ids.size(1)].unsqueeze(0)


@contextmanager
def evaluating(model: Transformer) -> Iterator[None]:
    """Turn off dropout, and restore the mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)


@contextmanager
def _recording(model: Transformer, tensors: Recorded) -> Iterator[None]:
    """Fill `tensors` during the next pass."""
    handles = []

    def watch(module: object, hook: Callable[..., None]) -> None:
        handles.append(cast(nn.Module, module).register_forward_hook(hook, with_kwargs=True))

    for number, layer in enumerate(model.encoder):
        if isinstance(layer, EncoderLayer):
            _watch_layer(layer, f"encoder.{number}", ("self", "ffn"), tensors, watch)
    for number, block in enumerate(cast("list[DecoderLayer]", model.decoder)):
        _watch_layer(block, f"decoder.{number}", ("self", "cross", "ffn"), tensors, watch)
    for side, stack in (("source", model.encoder), ("target", model.decoder)):
        watch(stack[0], _keep_input(f"{side}.input", tensors))
    for norm, name in ((model.encoder_norm, "memory"), (model.decoder_norm, "hidden")):
        watch(norm, _keep_output(name, tensors))
        if isinstance(norm, nn.LayerNorm):
            watch(norm, _keep_statistics(name, tensors))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _watch_layer(
    layer: EncoderLayer | DecoderLayer, name: str, parts: tuple[str, ...], tensors: Recorded, watch: Watch
) -> None:
    """Keep the tensors of a layer's sub-layers, which `residual_1`, `residual_2` … surround in this order."""
    for number, part in enumerate(parts, start=1):
        _watch_residual(getattr(layer, f"residual_{number}"), f"{name}.{part}", tensors, watch)
    watch(layer.self_attention, _keep_attention(f"{name}.self", tensors))
    if isinstance(layer, DecoderLayer):
        watch(layer.cross_attention, _keep_attention(f"{name}.cross", tensors))
    _watch_feed_forward(layer.feed_forward, f"{name}.ffn", tensors, watch)


def _keep_input(name: str, tensors: Recorded) -> Callable[..., None]:
    def hook(_module: nn.Module, inputs: tuple[Tensor, ...], _options: Any, _output: Tensor) -> None:
        tensors[name] = inputs[0]

    return hook


def _keep_output(name: str, tensors: Recorded) -> Callable[..., None]:
    def hook(_module: nn.Module, _inputs: Any, _options: Any, output: Tensor) -> None:
        tensors[name] = output

    return hook


def _watch_residual(residual: Residual, name: str, tensors: Recorded, watch: Watch) -> None:
    """Keep the sum and its norm; the sum is the norm's input, or with pre-norm the residual's output."""

    def keep_norm(_module: nn.Module, inputs: tuple[Tensor], _options: Any, output: Tensor) -> None:
        tensors[f"{name}.norm"] = output
        if not residual.pre_norm:
            tensors[f"{name}.sum"] = inputs[0]

    def keep_sum(_module: nn.Module, _inputs: Any, _options: Any, output: Tensor) -> None:
        if residual.pre_norm:
            tensors[f"{name}.sum"] = output

    watch(residual.norm, keep_norm)
    watch(residual.norm, _keep_statistics(f"{name}.norm", tensors))
    watch(residual, keep_sum)


def _keep_statistics(name: str, tensors: Recorded) -> Callable[..., None]:
    """Keep the mean and the deviation that a LayerNorm divides by."""

    def hook(module: nn.LayerNorm, inputs: tuple[Tensor], _options: Any, _output: Tensor) -> None:
        tensors[f"{name}.mean"] = inputs[0].mean(dim=-1)
        tensors[f"{name}.deviation"] = (inputs[0].var(dim=-1, correction=0) + module.eps).sqrt()

    return hook


def _watch_feed_forward(module: FeedForward, name: str, tensors: Recorded, watch: Watch) -> None:
    def keep_inner(_module: nn.Module, _inputs: Any, _options: Any, output: Tensor) -> None:
        tensors[f"{name}.inner"], tensors[f"{name}.active"] = output, module.activation(output)

    watch(module.w_1, keep_inner)
    watch(module, _keep_output(f"{name}.output", tensors))


def _keep_attention(name: str, tensors: Recorded) -> Callable[..., None]:
    """Keep every step of an attention module; the fused kernel shows none of them, so they are computed again."""

    def hook(module: nn.Module, inputs: tuple[Tensor, Tensor], options: dict[str, Any], output: Tensor) -> None:
        tensors[f"{name}.output"] = output
        x, mask = inputs[:2]
        if isinstance(module, MultiHeadAttention):
            distances = {"distances": options["distances"]} if options.get("distances") is not None else {}
            kv = options["memory"].kv if options.get("memory") else module.keys_values(x)
            tensors.update(
                {f"{name}.{step}": tensor for step, tensor in _steps(module, x, mask, kv, distances).items()}
            )
        elif hasattr(module, "weights"):  # sparse attention, shown as the dense one that it stands for
            memory = {"memory": options["memory"]} if options.get("memory") else {}
            tensors[f"{name}.weights"] = cast(Any, module).weights(x, mask, **memory)

    return hook


def _steps(
    module: MultiHeadAttention, x: Tensor, mask: Tensor, kv: tuple[Tensor, Tensor], distances: dict[str, Tensor]
) -> Recorded:
    """Eq. (1) step by step, for one sentence: 1 H T K, or 1 H T S."""
    q, (k, v) = module.queries(x), kv
    score = cast(Any, module.score)
    scores = score.scores(q, k, **distances)
    heads = score.forward(q, k, v, mask, **distances)  # not a call: no hook is told of this second pass
    steps: Recorded = {"q": q, "k": k, "v": v}
    if isinstance(score, ScaledDotProduct | DotProduct | LocalP):
        steps["products"] = q @ k.mT
    elif not distances and not hasattr(score, "values"):
        steps["products"] = scores  # additive scores are not divided by anything
    steps |= {"scores": scores, "masked": scores.masked_fill(~mask, -torch.inf)}
    steps |= {"weights": score.weights(q, k, mask, **distances), "heads": heads}
    return {**steps, "concat": heads.transpose(1, 2).flatten(2)}
