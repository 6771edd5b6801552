"""Fingerprints of pairs: which pairs repeat an earlier one, and which sources are held out for validation.

Equal fingerprints fall into the same partition, so that duplicates are searched partition by partition: a pair takes 16
bytes on disk, and memory holds one partition at a time, however large the corpus is.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

N_PARTITIONS = 256  # by the first byte of the fingerprint
FLUSH_AFTER = 2_000_000  # fingerprints that are kept in memory before they are written to their partitions

Fingerprints = NDArray[np.uint64]
Rows = NDArray[np.uint64]  # a fingerprint and the position of its pair, shape (N, 2)


def fingerprint(text: str) -> int:
    """Return 64 bits that identify a text: one corpus of 36 million pairs in 30,000 has two that collide."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big")


class DuplicateFinder:
    """Takes the fingerprints of all pairs in their order, and then flags those that repeat an earlier one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._waiting: list[Fingerprints] = []
        self._n_waiting = self._n_written = 0

    def add(self, fingerprints: Fingerprints) -> None:
        self._waiting.append(fingerprints)
        self._n_waiting += len(fingerprints)
        if self._n_waiting >= FLUSH_AFTER:
            self._flush()

    def __len__(self) -> int:
        return self._n_written + self._n_waiting

    def write_flags(self, path: Path) -> int:
        """Write a boolean for each pair, True for a duplicate, and return the number of duplicates."""
        if not len(self):
            return 0
        n_duplicates = 0
        flags = np.lib.format.open_memmap(path, "w+", np.bool_, (len(self),))
        for rows in self._partitions():
            positions = _duplicates(rows)
            flags[positions] = True
            n_duplicates += len(positions)
        flags.flush()
        return n_duplicates

    def _partitions(self) -> Iterator[Rows]:
        if not self._n_written:  # all of them fit in memory
            yield self._rows()
            return
        self._flush()
        for partition in range(N_PARTITIONS):
            if (path := self._path(partition)).exists():
                yield np.fromfile(path, dtype=np.uint64).reshape(-1, 2)
                path.unlink()

    def _rows(self) -> Rows:
        fingerprints = np.concatenate(self._waiting)
        positions = np.arange(self._n_written, self._n_written + len(fingerprints), dtype=np.uint64)
        return np.stack([fingerprints, positions], axis=1)

    def _flush(self) -> None:
        if not self._n_waiting:
            return
        rows = self._rows()
        partitions = rows[:, 0] >> np.uint64(56)
        rows = rows[np.argsort(partitions, kind="stable")]
        ends = np.cumsum(np.bincount(partitions.astype(np.int64), minlength=N_PARTITIONS))
        for partition, part in enumerate(np.split(rows, ends[:-1])):
            if len(part):
                with self._path(partition).open("ab") as file:
                    part.tofile(file)
        self._n_written += len(rows)
        self._waiting, self._n_waiting = [], 0

    def _path(self, partition: int) -> Path:
        return self._folder / f"fingerprints-{partition:03}"


def _duplicates(rows: Rows) -> NDArray[np.intp]:
    """Return the positions of all but the first row of each fingerprint; rows are ordered by position."""
    rows = rows[np.argsort(rows[:, 0], kind="stable")]
    positions: NDArray[np.intp] = rows[1:, 1][rows[1:, 0] == rows[:-1, 0]].astype(np.intp)
    return positions


class HeldOutSources:
    """Chooses the sources with the smallest fingerprints: a fair sample that does not depend on the order of the text.

    Sources are chosen, not pairs, so that all translations of a sentence are on the same side of the split.
    """

    def __init__(self, max_sources: int) -> None:
        self._max_sources = max_sources
        self._smallest = np.zeros(0, dtype=np.uint64)  # ascending

    def add(self, sources: Fingerprints) -> None:
        if self._max_sources and len(self._smallest) == self._max_sources:
            sources = sources[sources < self._smallest[-1]]
        self._smallest = np.union1d(self._smallest, sources)[: self._max_sources]

    def at_most(self, n_sources: int) -> frozenset[int]:
        """Return the fingerprints of up to `n_sources` sources."""
        return frozenset(self._smallest[:n_sources].tolist())
