"""TODO."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

CACHE_CHUNK = 8  # steps that a decoder makes room for at a time

KeysValues = tuple[Tensor, Tensor]  # both B H S K
LayerCache = dict[str, Tensor]  # what one decoder layer keeps of earlier steps; axis 0 is the row


def append_to_cache(past: LayerCache, name: str, new: Tensor, at: int) -> Tensor:
    """Add this step's keys or values (R H 1 K) to those before; room is made for some steps at a time, so that most
    steps copy nothing."""
    if at % CACHE_CHUNK == 0:
        room = new.new_empty(*new.shape[:2], CACHE_CHUNK, new.size(3))
        past[name] = torch.cat([past[name], room], dim=2) if past.get(name) is not None else room
    past[name][:, :, at] = new.squeeze(2)
    return past[name][:, :, : at + 1]  # R H T K


# The whole model


@dataclass(frozen=True, slots=True)
class BeamRows:
    """Hypotheses of one sentence are merely more queries on the same memory.

    Cross-attention lays them side by side in the query axis, so that the encoder's output is neither copied nor
    reordered; sentences with fewer leave some places unused, and only there.
    """

    sentence: Tensor  # R: whose each row is; rows of one sentence follow each other
    place: Tensor  # R: sentence · W + which of its rows this is
    n_sentences: int
    width: int  # W

    @staticmethod
    def of(sentence: Tensor, n_sentences: int) -> "BeamRows":
        """The rows of these sentences (R), of which there are `n_sentences`, some maybe without a row."""
        counts = sentence.bincount(minlength=n_sentences)  # B
        first, width = counts.cumsum(0) - counts, int(counts.max())
        place = sentence * width + torch.arange(len(sentence), device=sentence.device) - first[sentence]
        return BeamRows(sentence, place, n_sentences, width)

    def spread(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """R … to B W …"""
        spread = x.new_full((self.n_sentences * self.width, *x.shape[1:]), fill)
        spread[self.place] = x
        return spread.view(self.n_sentences, self.width, *x.shape[1:])

    def fold(self, q: Tensor) -> Tensor:
        return self.spread(q.squeeze(2)).transpose(1, 2)  # B H W K

    def unfold(self, heads: Tensor) -> Tensor:
        return heads.transpose(1, 2).flatten(0, 1)[self.place].unsqueeze(2)  # R H 1 K


class Memory(NamedTuple):
    """The encoder's output, as a decoder layer attends to it."""

    kv: KeysValues
    mask: Tensor
    rows: BeamRows | None = None  # while decoding


@dataclass(slots=True)
class DecoderState:
    """What decoding keeps between steps: the encoder's side once a sentence, the decoder's side once a row."""

    memory_kv: list[KeysValues]  # of each layer, B H S K
    memory_mask: Tensor  # B 1 1 S
    output: tuple[Tensor, Tensor | None]  # weight and bias of the map to logits, of the words that may be said
    rows: BeamRows
    past: list[LayerCache]  # of each layer, axis 0 has R rows
    n_decoded: int = 0

    def reorder(self, rows: Tensor) -> None:
        """Make row i continue from what row `rows[i]` was."""
        self.past = [{name: kept.index_select(0, rows) for name, kept in layer.items()} for layer in self.past]
        self.rows = BeamRows.of(self.rows.sentence[rows], self.rows.n_sentences)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Go on with these sentences only; no row may be of another."""
        self.memory_kv = [(k[sentences], v[sentences]) for k, v in self.memory_kv]
        self.memory_mask = self.memory_mask[sentences]
        self.rows = BeamRows.of(torch.searchsorted(sentences, self.rows.sentence), len(sentences))
