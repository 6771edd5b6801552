"""The words that can occur in a translation, by the words of its source.

The map to logits is the largest matrix product of a decoding step, and nearly all of what it computes is about words
that cannot come. A shortlist is learned from the training text: for each source word the target words that it is
likeliest to be translated by (IBM Model 1; Brown et al., 1993).

Shapes: B sentences, S source length, V vocabulary, C candidates of a word, U words that can be said in a batch.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from multihead.storage.files import atomic_file
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, PLACE

FILE = "shortlist.safetensors"
NEVER_GENERATED = [PAD_ID, BOS_ID]  # but an unknown word may be said: an imported model has learned when


@dataclass(frozen=True, slots=True)
class CandidateTokens:
    """What can be said in a batch, and by which of its sentences."""

    ids: Tensor  # U, rising
    barred: Tensor  # B U: 0 where a sentence may say the word, -inf where not
    end: int  # where the end symbol stands in `ids`

    def of(self, sentences: Tensor) -> "CandidateTokens":
        return CandidateTokens(self.ids, self.barred[sentences], self.end)


@dataclass(frozen=True, slots=True)
class Shortlist:
    """For each source word its candidates, and what is always possible."""

    candidates: Tensor  # V C; the end symbol where there are fewer
    frequent: Tensor  # target words

    def words(self, source_ids: Tensor) -> CandidateTokens:
        """What the sentences of a batch (B S) can say: a sentence's words depend on that sentence alone."""
        source_ids = source_ids % PLACE
        n_sentences, vocab_size = len(source_ids), len(self.candidates)
        candidates = self.candidates[source_ids.where(source_ids != PAD_ID, EOS_ID)].flatten(1)  # B S·C
        allowed = torch.zeros(n_sentences, vocab_size, dtype=torch.bool, device=source_ids.device)  # B V
        allowed[:, self.frequent] = True
        allowed.scatter_(1, source_ids, True)  # names and numbers stay as they are
        allowed.scatter_(1, candidates, True)
        allowed[:, EOS_ID] = True
        allowed[:, NEVER_GENERATED] = False
        ids = allowed.any(dim=0).nonzero().flatten()  # U
        barred = torch.zeros(n_sentences, len(ids), device=ids.device).masked_fill_(~allowed[:, ids], -math.inf)
        return CandidateTokens(ids, barred, end=int(torch.searchsorted(ids, EOS_ID)))

    def joined(self, other: "Shortlist") -> "Shortlist":
        """What either of them lets a source say."""
        candidates = torch.cat([self.candidates, other.candidates], dim=1).sort(dim=1).values
        candidates[:, 1:][candidates[:, 1:] == candidates[:, :-1]] = EOS_ID  # each word once
        last = (candidates == EOS_ID).sort(dim=1, stable=True).indices
        width = max(1, int((candidates != EOS_ID).sum(dim=1).max()))
        candidates = candidates.gather(1, last)
        return Shortlist(candidates[:, :width], torch.cat([self.frequent, other.frequent]).unique())

    def to(self, device: torch.device) -> "Shortlist":
        return Shortlist(self.candidates.to(device), self.frequent.to(device))

    def save(self, folder: Path) -> None:
        kind = torch.int16 if len(self.candidates) <= torch.iinfo(torch.int16).max else torch.int32
        tensors = {"candidates": self.candidates.to(kind), "frequent": self.frequent.to(kind)}
        with atomic_file(folder / FILE) as aside:
            save_file(tensors, aside)
            aside.chmod(0o644)


def load_shortlist(folder: Path) -> Shortlist | None:
    """The shortlist of a model, if it has one."""
    path = folder / FILE
    if not path.exists():
        return None
    tensors = load_file(path)
    return Shortlist(tensors["candidates"].long(), tensors["frequent"].long())
