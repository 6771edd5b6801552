"""The shortlist of a model: for each source token, the target tokens that can translate it.

The output projection is the largest matrix product of a decoding step, and most of its logits belong to tokens that
cannot occur. A shortlist is learned from the training text (IBM Model 1; Brown et al., 1993) and restricts the
projection to a few hundred rows. Shapes: V vocabulary, C candidates of a token.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multihead.storage.arrays import read_arrays, write_arrays
from multihead.storage.files import atomic_file
from multihead.text.tokenizer import EOS_ID

FILE = "shortlist.safetensors"


@dataclass(frozen=True, slots=True, eq=False)
class Shortlist:
    """The candidates of each source token, and the tokens that are always allowed."""

    candidates: NDArray[np.int64]  # V C; padded with EOS_ID
    frequent: NDArray[np.int64]  # target tokens

    def union(self, other: "Shortlist") -> "Shortlist":
        """Return a shortlist that allows what either of them allows."""
        candidates = np.sort(np.concatenate([self.candidates, other.candidates], axis=1), axis=1)
        candidates[:, 1:][candidates[:, 1:] == candidates[:, :-1]] = EOS_ID  # remove duplicates
        padding_last = np.argsort(candidates == EOS_ID, axis=1, kind="stable")
        width = max(1, int((candidates != EOS_ID).sum(axis=1).max()))
        candidates = np.take_along_axis(candidates, padding_last, axis=1)
        return Shortlist(candidates[:, :width], np.union1d(self.frequent, other.frequent))

    def save(self, folder: Path) -> None:
        kind = np.int16 if len(self.candidates) <= np.iinfo(np.int16).max else np.int32
        arrays = {"candidates": self.candidates.astype(kind), "frequent": self.frequent.astype(kind)}
        with atomic_file(folder / FILE) as temporary:
            write_arrays(temporary, arrays)


def load_shortlist(folder: Path) -> Shortlist | None:
    """Return the shortlist of a model, or None if it has none."""
    path = folder / FILE
    if not path.exists():
        return None
    arrays = read_arrays(path)
    return Shortlist(arrays["candidates"].astype(np.int64), arrays["frequent"].astype(np.int64))
