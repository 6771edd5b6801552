"""Record attention weights with forward hooks, so that the model needs no code for it.

Shapes as in attention_maps.py.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from multihead.inspection.attention_maps import Array, AttentionMaps
from multihead.model.transformer import DecoderLayer, EncoderLayer, MultiHeadAttention, Transformer
from multihead.text.dependency_trees import NO_HEAD
from multihead.text.tokenizer import BOS_ID, EOS_ID, SubwordTokenizer

Weights = dict[object, Tensor]  # by module


def record_attention(
    model: Transformer,
    tokenizer: SubwordTokenizer,
    source_ids: list[int],
    target_ids: list[int],
    source_heads: list[int] | None = None,
) -> AttentionMaps:
    """Return the attention maps of a sentence and its translation, both given without special tokens.

    The start symbol takes one position, so the last piece of a translation that fills all of them is left out.
    """
    source, target = [*source_ids, EOS_ID], [BOS_ID, *target_ids][: model.config.max_len]
    heads = None if source_heads is None else [*source_heads, NO_HEAD]
    encoder, decoder, cross = record(model, source, target, heads)
    return AttentionMaps(
        source_tokens=tokenizer.readable(source),
        target_tokens=tokenizer.readable(target),
        encoder=encoder,
        decoder=decoder,
        cross=cross,
    )


@torch.inference_mode()
def record(
    model: Transformer, source_ids: list[int], target_ids: list[int], source_heads: list[int] | None = None
) -> tuple[Array, Array, Array]:
    """Return the encoder (L H S S), decoder (L H T T) and cross weights (L H T S) of a teacher-forced pass."""
    encoder, decoder = cast(Sequence[EncoderLayer], model.encoder), cast(Sequence[DecoderLayer], model.decoder)
    in_encoder = [layer.self_attention for layer in encoder]
    in_decoder = [layer.self_attention for layer in decoder]
    across = [layer.cross_attention for layer in decoder]
    device = next(model.parameters()).device
    with _evaluating(model), _recording([*in_encoder, *in_decoder, *across]) as weights:
        source, target = (torch.tensor([ids], device=device) for ids in (source_ids, target_ids))
        model.hidden(source, target, None if source_heads is None else torch.tensor([source_heads], device=device))
    n_heads = model.config.n_heads
    return (
        _stack(weights, in_encoder, n_heads),
        _stack(weights, in_decoder, n_heads),
        _stack(weights, across, n_heads),
    )


def _stack(weights: Weights, modules: Sequence[object], n_heads: int) -> Array:
    """Return the weights of the modules that have some: L H T S, since the batch was one sentence."""
    recorded = [weights[module] for module in modules if module in weights]
    empty = torch.zeros(0, n_heads, 0, 0)
    array: Array = torch.cat(recorded or [empty]).float().cpu().numpy()
    return array


@contextmanager
def _recording(modules: Sequence[object]) -> Iterator[Weights]:
    """Collect the weights of each module's next pass; modules without attention weights are skipped."""
    weights: Weights = {}

    def hook(module: nn.Module, inputs: tuple[Tensor, Tensor], options: dict[str, Any], _: Tensor) -> None:
        # The fused kernel does not return its weights, so they are computed again, by the definition.
        x, mask = inputs[:2]
        others = {name: options[name] for name in ("kv", "distances") if name in options}
        weights[module] = cast(MultiHeadAttention, module).weights(x, mask, **others)  # 1 H T S

    handles = [
        module.register_forward_hook(hook, with_kwargs=True)
        for module in cast(Sequence[nn.Module], modules)
        if hasattr(module, "weights")
    ]
    try:
        yield weights
    finally:
        for handle in handles:
            handle.remove()


@contextmanager
def _evaluating(model: Transformer) -> Iterator[None]:
    """Turn off dropout, and restore the mode afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
