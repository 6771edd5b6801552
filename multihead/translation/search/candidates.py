"""The tokens that a shortlist allows in the translations of a batch.

Shapes: B sentences, S source length, V vocabulary, C candidates of a token, U tokens allowed in a batch.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import EOS_ID, NEVER_GENERATED, PAD_ID


@dataclass(frozen=True, slots=True)
class CandidateTokens:
    """The tokens allowed in a batch, and which of its sentences may use them."""

    ids: Tensor  # U, ascending
    log_mask: Tensor  # B U: 0 where a sentence may use the token, -inf elsewhere
    end: int  # index of the end symbol in `ids`

    def select(self, sentences: Tensor) -> "CandidateTokens":
        """Return the tokens of these sentences, given by their numbers."""
        rows = sentences.to(self.log_mask.device, non_blocking=True)
        return CandidateTokens(self.ids, self.log_mask[rows], self.end)


class Candidates:
    """A shortlist as tensors on the device of the search."""

    def __init__(self, shortlist: Shortlist, device: torch.device) -> None:
        self._candidates = torch.from_numpy(shortlist.candidates).to(device)  # V C
        self._frequent = torch.from_numpy(shortlist.frequent).to(device)

    def for_batch(self, source_ids: Tensor) -> CandidateTokens:
        """Return the tokens allowed for each sentence (B S), which do not depend on the rest of the batch."""
        n_sentences, vocab_size = len(source_ids), len(self._candidates)
        candidates = self._candidates[source_ids.where(source_ids != PAD_ID, EOS_ID)].flatten(1)  # B S·C
        allowed = torch.zeros(n_sentences, vocab_size, dtype=torch.bool, device=source_ids.device)  # B V
        allowed[:, self._frequent] = True
        allowed.scatter_(1, source_ids, True)  # names and numbers are copied
        allowed.scatter_(1, candidates, True)
        allowed[:, EOS_ID] = True
        allowed[:, NEVER_GENERATED] = False
        ids = allowed.any(dim=0).nonzero().flatten()  # U
        log_mask = torch.zeros(n_sentences, len(ids), device=ids.device).masked_fill_(~allowed[:, ids], -math.inf)
        return CandidateTokens(ids, log_mask, end=int(torch.searchsorted(ids, EOS_ID)))
