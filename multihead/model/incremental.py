"""What decoding keeps between steps: caches of the decoder's layers, the projected memory, and the rows of the beam.

Shapes as in transformer.py: R rows, which are the hypotheses of all sentences, at most W of one sentence.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

CACHE_CHUNK = 8  # steps for which a cache allocates memory at a time

KeysValues = tuple[Tensor, Tensor]  # both B H S K


@dataclass(slots=True)
class LayerCache:
    """What one decoder layer remembers of the tokens so far: tensors by name, whose axis 0 is the row."""

    length: int = 0  # tokens so far; `Transformer.decode_step` counts them
    tensors: dict[str, Tensor] = field(default_factory=dict)

    def append(self, name: str, new: Tensor) -> Tensor:
        """Append the keys or values of the current token (R H 1 K), and return those of all tokens (R H T K).

        Memory is allocated for several steps at a time, so that most steps copy nothing.
        """
        if self.length % CACHE_CHUNK == 0:
            room = new.new_empty(*new.shape[:2], CACHE_CHUNK, new.size(3))
            self.tensors[name] = torch.cat([self.tensors[name], room], dim=2) if self.length else room
        stored = self.tensors[name]
        stored[:, :, self.length] = new.squeeze(2)
        return stored[:, :, : self.length + 1]

    def reorder(self, rows: Tensor) -> None:
        """Make row i continue row `rows[i]`."""
        self.tensors = {name: tensor.index_select(0, rows) for name, tensor in self.tensors.items()}


@dataclass(frozen=True, slots=True)
class BeamRows:
    """Which sentence each row belongs to.

    In cross-attention the hypotheses of a sentence are several queries on one memory: rows are laid side by side in the
    query axis, so that the encoder's output is neither copied nor reordered. A sentence with fewer than W rows leaves
    slots empty.
    """

    sentence: Tensor  # R: the sentence of each row; rows of one sentence are adjacent
    slot: Tensor  # R: sentence · W + the number of the row within its sentence
    sentence_on_cpu: Tensor  # R: `sentence`, so that reordering does not wait for a GPU
    n_sentences: int
    width: int  # W

    @staticmethod
    def of_sentences(sentence: Tensor, n_sentences: int, device: torch.device) -> "BeamRows":
        """Return the rows of these sentences (R, on the CPU) for a device; a sentence may have none."""
        counts = sentence.bincount(minlength=n_sentences)  # B
        first, width = counts.cumsum(0) - counts, int(counts.max())
        slot = sentence * width + torch.arange(len(sentence)) - first[sentence]
        on_device = torch.stack([sentence, slot]).to(device, non_blocking=True)
        return BeamRows(on_device[0], on_device[1], sentence, n_sentences, width)

    def to_grid(self, x: Tensor, fill: float = 0.0) -> Tensor:
        """Arrange rows (R …) by sentence (B W …); empty slots get `fill`."""
        grid = x.new_full((self.n_sentences * self.width, *x.shape[1:]), fill)
        grid[self.slot] = x
        return grid.view(self.n_sentences, self.width, *x.shape[1:])

    def fold(self, q: Tensor) -> Tensor:
        """Turn one query per row (R H 1 K) into W queries per sentence (B H W K)."""
        return self.to_grid(q.squeeze(2)).transpose(1, 2)  # B H W K

    def unfold(self, heads: Tensor) -> Tensor:
        """Undo `fold`."""
        return heads.transpose(1, 2).flatten(0, 1)[self.slot].unsqueeze(2)  # R H 1 K


class Memory(NamedTuple):
    """The encoder's output as one decoder layer attends to it."""

    kv: KeysValues
    mask: Tensor
    rows: BeamRows | None = None  # while decoding
    inputs: Tensor | None = None  # B T D: the embeddings of the target tokens, which some variants add to their queries


@dataclass(slots=True)
class DecoderState:
    """The state of decoding a batch: the encoder's side per sentence, the decoder's side per row."""

    memory_kv: list[KeysValues]  # per layer, B H S K
    memory_mask: Tensor  # B 1 1 S
    output: tuple[Tensor, Tensor | None]  # weight and bias of the map to logits, of the allowed tokens
    rows: BeamRows
    caches: list[LayerCache]  # per layer

    @property
    def length(self) -> int:
        """Tokens decoded so far."""
        return self.caches[0].length

    def reorder(self, rows: Tensor) -> None:
        """Make row i continue row `rows[i]`; `rows` is on the CPU."""
        device = self.rows.sentence.device
        on_device = rows.to(device, non_blocking=True)
        for cache in self.caches:
            cache.reorder(on_device)
        self.rows = BeamRows.of_sentences(self.rows.sentence_on_cpu[rows], self.rows.n_sentences, device)

    def keep_sentences(self, sentences: Tensor) -> None:
        """Drop all other sentences, which must have no rows left; `sentences` is on the CPU."""
        device = self.rows.sentence.device
        on_device = sentences.to(device, non_blocking=True)
        self.memory_kv = [(k[on_device], v[on_device]) for k, v in self.memory_kv]
        self.memory_mask = self.memory_mask[on_device]
        numbers = torch.searchsorted(sentences, self.rows.sentence_on_cpu)
        self.rows = BeamRows.of_sentences(numbers, len(sentences), device)
