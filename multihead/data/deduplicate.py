"""Which pairs of a corpus came before, however many there are.

A pair is known by its fingerprint. Equal ones are of the same share of all fingerprints, so that each share is looked
through by itself: on the disk a pair takes 16 bytes, in memory a share of that.
"""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

N_PARTITIONS = 256
FLUSH_AFTER = 2_000_000  # fingerprints that are kept in memory before they go to their shares

Fingerprints = NDArray[np.uint64]
Rows = NDArray[np.uint64]  # a fingerprint and its place: N 2


class DuplicateFinder:
    """Takes the fingerprints of all pairs in their order, and says which of them repeat an earlier one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[Fingerprints] = []
        self._n_waiting = self._n_written = 0

    def add(self, fingerprints: Fingerprints) -> None:
        self._waiting.append(fingerprints)
        self._n_waiting += len(fingerprints)
        if self._n_waiting >= FLUSH_AFTER:
            self._write()

    def __len__(self) -> int:
        return self._n_written + self._n_waiting

    def write(self, path: Path) -> int:
        """Make a file with a byte for each pair, 1 for those that came before; how many these are."""
        if not len(self):
            return 0
        n_repeated = 0
        repeated = np.lib.format.open_memmap(path, "w+", np.bool_, (len(self),))
        for rows in self._shares():
            places = _repeats(rows)
            repeated[places] = True
            n_repeated += len(places)
        repeated.flush()
        return n_repeated

    def _shares(self) -> Iterator[Rows]:
        if not self._n_written:  # few are one share, which needs no file
            yield self._rows()
            return
        self._write()
        for share in range(N_PARTITIONS):
            if (path := self._path(share)).exists():
                yield np.fromfile(path, dtype=np.uint64).reshape(-1, 2)
                path.unlink()

    def _rows(self) -> Rows:
        fingerprints = np.concatenate(self._waiting)
        places = np.arange(self._n_written, self._n_written + len(fingerprints), dtype=np.uint64)
        return np.stack([fingerprints, places], axis=1)

    def _write(self) -> None:
        """Add what waits to the files of its shares."""
        if not self._n_waiting:
            return
        rows = self._rows()
        shares = rows[:, 0] >> np.uint64(56)  # the first byte, of which there are N_SHARES
        rows = rows[np.argsort(shares, kind="stable")]
        ends = np.cumsum(np.bincount(shares.astype(np.int64), minlength=N_PARTITIONS))
        for share, part in enumerate(np.split(rows, ends[:-1])):
            if len(part):
                with self._path(share).open("ab") as file:
                    part.tofile(file)
        self._n_written += len(rows)
        self._waiting, self._n_waiting = [], 0

    def _path(self, share: int) -> Path:
        return self._folder / f"fingerprints-{share:03}"


def _repeats(rows: Rows) -> NDArray[np.intp]:
    """The places of all but the first row of each fingerprint; rows are in the order of their places."""
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    same: NDArray[np.intp] = rows[1:, 1][rows[1:, 0] == rows[:-1, 0]].astype(np.intp)
    return same
