"""TODO."""

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from multihead.model.incremental import BeamRows, DecoderState
from multihead.model.transformer import Transformer
from multihead.translation.search.candidates import CandidateTokens


class Ensemble:
    """One or several models that vote: the mean of their probabilities. All share a vocabulary."""

    def __init__(self, models: Sequence[Transformer], source_ids: Tensor, words: CandidateTokens | None = None) -> None:
        self._models, self._words = models, words
        self._states: list[DecoderState] = [model.start(source_ids, words.ids if words else None) for model in models]

    def step(self, ids: Tensor) -> Tensor:
        """Log-probabilities of the next token for each row: R V."""
        steps = [model.step(ids, state) for model, state in zip(self._models, self._states, strict=True)]
        votes = [self._only_allowed(logits).log_softmax(dim=-1) for logits in steps]
        return votes[0] if len(votes) == 1 else torch.stack(votes).logsumexp(dim=0) - math.log(len(votes))

    @property
    def rows(self) -> BeamRows:
        """The same for all models."""
        return self._states[0].rows

    def _only_allowed(self, logits: Tensor) -> Tensor:
        if self._words is None:
            return logits
        return logits.add_(self._words.log_mask[self.rows.sentence])  # each sentence has words of its own

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Go on with these rows, and if only some sentences have rows left, with those."""
        for state in self._states:
            state.reorder(rows)
            if sentences is not None:
                state.keep_sentences(sentences)
        if sentences is not None and self._words is not None:
            self._words = self._words.select(sentences)


def length_limits(models: Sequence[Transformer], source_ids: Tensor, max_extra: int) -> Tensor:
    """The longest output of each sentence, the end symbol counted: §6.1's input + 50, as far as positions reach."""
    longest = min(model.config.max_len for model in models)
    return ((source_ids != models[0].config.pad_id).sum(dim=1) + max_extra).clamp(max=longest)
