"""TODO."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, cast

import torch
from torch import Tensor, nn

from multihead.inspection.attention_maps import AttentionMaps
from multihead.model.transformer import DecoderLayer, EncoderLayer, MultiHeadAttention, Transformer
from multihead.text.dependency_trees import NO_HEAD
from multihead.text.tokenizer import BOS_ID, EOS_ID, SubwordTokenizer

Weights = dict[object, Tensor]  # by the module whose they are


def record_attention(
    model: Transformer,
    tokenizer: SubwordTokenizer,
    source_ids: list[int],
    target_ids: list[int],
    source_heads: list[int] | None = None,
) -> AttentionMaps:
    """Record a sentence and its translation, both given without control symbols.

    The last piece of a translation that fills all positions is left out, as the start symbol takes one of them.
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


# Recording


@torch.inference_mode()
def record(
    model: Transformer, source_ids: list[int], target_ids: list[int], source_heads: list[int] | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Encoder (L H S S), decoder (L H T T) and cross weights (L H T S) of one teacher-forced pass over one sentence."""
    encoder, decoder = cast(Sequence[EncoderLayer], model.encoder), cast(Sequence[DecoderLayer], model.decoder)
    of_encoder = [layer.self_attention for layer in encoder]
    of_decoder = [layer.self_attention for layer in decoder]
    of_cross = [layer.cross_attention for layer in decoder]
    device = next(model.parameters()).device
    with _evaluating(model), _recording([*of_encoder, *of_decoder, *of_cross]) as weights:
        source, target = (torch.tensor([ids], device=device) for ids in (source_ids, target_ids))
        model.hidden(source, target, None if source_heads is None else torch.tensor([source_heads], device=device))
    nothing = torch.zeros(0, model.config.n_heads, 0, 0)
    return (
        _stack(weights, of_encoder, nothing),
        _stack(weights, of_decoder, nothing),
        _stack(weights, of_cross, nothing),
    )


def _stack(weights: Weights, modules: Sequence[object], nothing: Tensor) -> Tensor:
    found = [weights[module] for module in modules if module in weights]
    return torch.cat(found).float().cpu() if found else nothing  # L H T S: the batch was one sentence


@contextmanager
def _recording(modules: Sequence[object]) -> Iterator[Weights]:
    """The weights of each module's next pass, by module; of those that have some."""
    weights: Weights = {}

    def hook(module: nn.Module, inputs: tuple[Tensor, Tensor], options: dict[str, Any], _: Tensor) -> None:
        # The fused kernel never shows its weights, so they are computed once more, by the definition.
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
    """Without dropout, and as it was afterwards."""
    was_training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(was_training)
