"""Attention weights of a sentence and its translation, as a view of the trace.

Shapes as in attention_maps.py.
"""

import numpy as np

from multihead.inspection.attention_maps import Array, AttentionMaps
from multihead.inspection.trace import Trace, record_trace
from multihead.model.transformer import Transformer
from multihead.text.dependency_trees import NO_HEAD
from multihead.text.tokenizer import BOS_ID, EOS_ID, SubwordTokenizer


def record_attention(  # noqa: PLR0913 - a sentence, and what reads it
    model: Transformer,
    tokenizer: SubwordTokenizer,
    source_ids: list[int],
    target_ids: list[int],
    source_heads: list[int] | None = None,
    alignment_layer: int | None = None,
) -> AttentionMaps:
    """Return the attention maps of a sentence and its translation, both given without special tokens.

    `alignment_layer` is the decoder layer that aligns words, by default the last. The start symbol takes one position,
    so the last piece of a translation that fills all of them is left out.
    """
    source, target = [*source_ids, EOS_ID], [BOS_ID, *target_ids][: model.config.max_len]
    heads = None if source_heads is None else [*source_heads, NO_HEAD]
    trace = record_trace(model, source, target, heads)
    encoder, decoder, cross = _weights(trace, model)
    written = [*target_ids, EOS_ID][: len(target)]
    return AttentionMaps(
        source_tokens=tokenizer.readable(source),
        target_tokens=tokenizer.readable(target),
        encoder=encoder,
        decoder=decoder,
        cross=cross,
        alignment_layer=len(cross) - 1 if alignment_layer is None else alignment_layer,
        probabilities=trace["probabilities"][np.arange(len(written)), written],
    )


def record(
    model: Transformer, source_ids: list[int], target_ids: list[int], source_heads: list[int] | None = None
) -> tuple[Array, Array, Array]:
    """Return the encoder (L H S S), decoder (L H T T) and cross weights (L H T S) of a teacher-forced pass."""
    return _weights(record_trace(model, source_ids, target_ids, source_heads), model)


def _weights(trace: Trace, model: Transformer) -> tuple[Array, Array, Array]:
    def stack(name: str, n_layers: int) -> Array:
        layers = [trace[key] for layer in range(n_layers) if (key := name.format(layer)) in trace]
        return np.stack(layers) if layers else np.zeros((0, model.config.n_heads, 0, 0), dtype=np.float32)

    return (
        stack("encoder.{}.self.weights", model.config.encoder_layers),
        stack("decoder.{}.self.weights", model.config.decoder_layers),
        stack("decoder.{}.cross.weights", model.config.decoder_layers),
    )
