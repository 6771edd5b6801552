"""The attention and the token scores of hypotheses, from a second pass that is forced to their tokens.

Shapes: N hypotheses, S source length, T output length, D d_model, K tokens of all hypotheses, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import cast

import torch
from torch import Tensor

from multihead.inspection.attention_maps import Array, between_pieces
from multihead.model.incremental import Memory
from multihead.model.transformer import DecoderLayer, Transformer
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID
from multihead.translation.engine import Hypothesis, SearchResult
from multihead.translation.search.candidates import CandidateTokens

MAX_LOGITS = 1 << 23  # computed at a time, so that a large vocabulary needs no more memory than the search
MAX_HYPOTHESES = 64  # in one pass


@torch.inference_mode()
def add_details(  # noqa: PLR0913 - a search, and its results
    models: Sequence[Transformer],
    alignment_layer: int,
    source_ids: Tensor,
    source_heads: Tensor | None,
    candidates: CandidateTokens | None,
    results: Sequence[SearchResult],
    n_best: int,
) -> None:
    """Set the attention and token scores of the `n_best` hypotheses of each sentence of `source_ids` (B S)."""
    places = [
        (sentence, hypotheses, rank)
        for sentence, result in enumerate(results)
        for hypotheses in [result.finished or result.truncated]
        for rank in range(min(n_best, len(hypotheses)))
    ]
    for first in range(0, len(places), MAX_HYPOTHESES):
        chunk = places[first : first + MAX_HYPOTHESES]
        sentences = torch.tensor([sentence for sentence, *_ in chunk]).to(source_ids.device, non_blocking=True)  # N
        forced = ForcedPass(
            source_ids[sentences],
            None if source_heads is None else source_heads[sentences],
            candidates.select(sentences) if candidates else None,
            [hypotheses[rank] for _, hypotheses, rank in chunk],
        )
        for (_, hypotheses, rank), detailed in zip(chunk, forced.run(models, alignment_layer), strict=True):
            hypotheses[rank] = detailed


class ForcedPass:
    """A pass over hypotheses with their sources."""

    def __init__(
        self,
        source_ids: Tensor,
        source_heads: Tensor | None,
        candidates: CandidateTokens | None,
        hypotheses: Sequence[Hypothesis],
    ) -> None:
        self.source_ids, self.source_heads, self.candidates = source_ids, source_heads, candidates  # N S
        self.hypotheses = hypotheses
        outputs = [one.tokens + [EOS_ID] * one.finished for one in hypotheses]
        longest = max(map(len, outputs))
        padded = [ids + [EOS_ID] * (longest - len(ids)) for ids in outputs]
        self.outputs = torch.tensor(padded, device=source_ids.device).view(len(outputs), longest)  # N T
        self.lengths = [len(ids) for ids in outputs]
        self.is_token = torch.arange(longest) < torch.tensor(self.lengths).unsqueeze(1)  # N T

    def run(self, models: Sequence[Transformer], alignment_layer: int) -> list[Hypothesis]:
        """Return the hypotheses with details: the attention of the first model, the scores of all together."""
        if not self.outputs.size(1):
            return list(self.hypotheses)
        passes = [self._decode(model, alignment_layer) for model in models]
        weights = passes[0][1]  # N T S
        log_probs = torch.stack(
            [self._log_probs(model, hidden) for model, (hidden, _) in zip(models, passes, strict=True)]
        )
        together = log_probs.logsumexp(dim=0) - math.log(len(models))  # K
        scores = together.split(self.lengths)
        attention = [
            None if weights is None else self._between_pieces(row, one, weights[row])
            for row, one in enumerate(self.hypotheses)
        ]
        return [
            replace(one, attention=attention[row], token_scores=scores[row].tolist())
            for row, one in enumerate(self.hypotheses)
        ]

    def _decode(self, model: Transformer, alignment_layer: int) -> tuple[Tensor, Tensor | None]:
        """Return the decoder's output (N T D), and the cross-attention of a layer as the mean of its heads (N T S)."""
        inputs = torch.cat([torch.full_like(self.outputs[:, :1], BOS_ID), self.outputs[:, :-1]], dim=1)
        if not model.config.attends_to_source:
            return model.hidden(self.source_ids, inputs, self.source_heads), None
        memory, memory_mask = model.encode(self.source_ids, self.source_heads)
        x = embedded = model.embed(model.target_embedding, inputs)
        mask = torch.ones(x.size(1), x.size(1), dtype=torch.bool, device=x.device).tril()
        layers = cast(Sequence[DecoderLayer], model.decoder)
        aligning = layers[alignment_layer]
        for layer, memory_kv in zip(layers, model.memory_keys_values(memory), strict=True):
            memory_of_layer = Memory(memory_kv, memory_mask, inputs=embedded)
            if layer is aligning:
                weights = _cross_weights(layer, x, mask, memory_of_layer).mean(dim=1)
            x = layer(x, mask, memory_of_layer)
        return model.decoder_norm(x), weights

    def _log_probs(self, model: Transformer, hidden: Tensor) -> Tensor:
        """Return the log-probability of each token of all hypotheses (K)."""
        hypotheses, steps = self.is_token.nonzero().to(hidden.device).unbind(1)  # K
        rows, tokens = hidden[hypotheses, steps], self.outputs[hypotheses, steps]  # K D, K
        size = max(1, MAX_LOGITS // model.config.vocab_size)
        parts = []
        for first in range(0, len(rows), size):
            part = slice(first, first + size)
            logits = model.output(rows[part])  # K V
            chosen = logits.gather(1, tokens[part].unsqueeze(1)).squeeze(1)
            if self.candidates:
                logits = logits[:, self.candidates.ids] + self.candidates.log_mask[hypotheses[part]]
            parts.append(chosen - logits.logsumexp(dim=1))
        return torch.cat(parts)

    def _between_pieces(self, row: int, hypothesis: Hypothesis, weights: Tensor) -> Array:
        n_source = int((self.source_ids[row] != PAD_ID).sum()) - 1
        return between_pieces(weights[: len(hypothesis.tokens), :n_source].float().cpu().numpy())


def _cross_weights(layer: DecoderLayer, x: Tensor, mask: Tensor, memory: Memory) -> Tensor:
    """Return the cross-attention of a decoder layer (N H T S), given its input."""
    x = layer.residual_1(x, lambda y: layer.self_attention(y, mask))
    queries = layer.residual_2.norm(x) if layer.residual_2.pre_norm else x
    return layer.cross_attention.weights(queries, memory.mask, memory=memory)
