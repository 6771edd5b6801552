"""Several models decoding together: the mean of their probabilities.

Shapes: B sentences, R live hypotheses (rows), V vocabulary (with a shortlist: the candidate tokens of the batch).
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from multihead.model.incremental import BeamRows, DecoderState
from multihead.model.transformer import Transformer
from multihead.translation.search.candidates import CandidateTokens


class Ensemble:
    """One or several models with the same vocabulary, and their decoder states for a batch."""

    def __init__(
        self,
        models: Sequence[Transformer],
        source_ids: Tensor,
        candidates: CandidateTokens | None = None,
        source_heads: Tensor | None = None,
    ) -> None:
        self._models, self._candidates = models, candidates
        ids = candidates.ids if candidates else None
        self._states: list[DecoderState] = [model.start_decoding(source_ids, ids, source_heads) for model in models]

    @property
    def rows(self) -> BeamRows:
        """Which row belongs to which sentence; the same for all models."""
        return self._states[0].rows

    def step(self, ids: Tensor) -> Tensor:
        """Return the log-probabilities of the next token (R V), given the last token of each row (R)."""
        logits = [model.decode_step(ids, state) for model, state in zip(self._models, self._states, strict=True)]
        log_probs = [self._mask(one).log_softmax(dim=-1) for one in logits]
        if len(log_probs) == 1:
            return log_probs[0]
        return torch.stack(log_probs).logsumexp(dim=0) - math.log(len(log_probs))

    def _mask(self, logits: Tensor) -> Tensor:
        if self._candidates is None:
            return logits
        return logits.add_(self._candidates.log_mask[self.rows.sentence])  # candidates differ between sentences

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Continue from these rows; if `sentences` is given, drop all other sentences, which must have no rows.

        Both are numbers on the CPU.
        """
        for state in self._states:
            state.reorder(rows)
            if sentences is not None:
                state.keep_sentences(sentences)
        if sentences is not None and self._candidates is not None:
            self._candidates = self._candidates.select(sentences)


def length_limits(models: Sequence[Transformer], source_ids: Tensor, max_extra: int) -> Tensor:
    """Return the maximum output length of each sentence, including the end symbol.

    §6.1 allows the input length + 50; the positions of the model are a second limit.
    """
    max_len = min(model.config.max_len for model in models)
    return ((source_ids != models[0].config.pad_id).sum(dim=1) + max_extra).clamp(max=max_len)
