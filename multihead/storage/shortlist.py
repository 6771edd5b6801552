"""The shortlist of a model: for each source token, the target tokens that can translate it.

The output projection is the largest matrix product of a decoding step, and most of its logits belong to tokens that
cannot occur. A shortlist is learned from the training text (IBM Model 1; Brown et al., 1993) and restricts the
projection to a few hundred rows. Shapes: V vocabulary, C candidates of a token.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multihead.errors import UserError
from multihead.storage.arrays import Arrays, open_arrays, write_arrays
from multihead.storage.files import atomic_file
from multihead.text.tokenizer import EOS_ID

FILE = "shortlist.safetensors"
MAX_CANDIDATES = 2048  # of a token; we learn up to 100, and fine-tuning unites two shortlists
MAX_NUMBERS = 1 << 26  # in a table of candidates


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


def check_shortlist(folder: Path) -> None:
    """Raise UserError if there is a shortlist whose header is not that of a shortlist."""
    path = folder / FILE
    if path.exists():
        with open_arrays(path) as file:
            _check_shapes(path, file.shapes)


def load_shortlist(folder: Path) -> Shortlist | None:
    """Return the shortlist of a model, or None if it has none."""
    path = folder / FILE
    if not path.exists():
        return None
    with open_arrays(path) as file:
        _check_shapes(path, file.shapes)
        arrays = file.read_all()
    _check_ids(path, arrays)
    return Shortlist(arrays["candidates"].astype(np.int64), arrays["frequent"].astype(np.int64))


def _check_shapes(path: Path, shapes: dict[str, tuple[int, ...]]) -> None:
    candidates, frequent = shapes.get("candidates", ()), shapes.get("frequent", ())
    if len(shapes) != 2 or len(candidates) != 2 or len(frequent) != 1:
        raise UserError(f"{path} is not a shortlist: it needs the arrays candidates (V, C) and frequent (N,)")
    n_pieces, width = candidates
    if width > MAX_CANDIDATES or n_pieces * width > MAX_NUMBERS or frequent[0] > n_pieces:
        raise UserError(f"{path} is not a shortlist: candidates {candidates} and frequent {frequent} are too large")


def _check_ids(path: Path, arrays: Arrays) -> None:
    n_pieces = len(arrays["candidates"])
    for name, ids in arrays.items():
        if ids.dtype not in (np.int16, np.int32):
            raise UserError(f"{path} is not a shortlist: {name} is of type {ids.dtype}, not int16 or int32")
        if ids.size and not 0 <= ids.min() <= ids.max() < n_pieces:
            raise UserError(f"{path} is not a shortlist: {name} has ids that are not in the vocabulary")
