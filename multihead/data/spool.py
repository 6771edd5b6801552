"""Clean pairs on disk while a corpus is prepared: the raw text may come from a pipe and is read once.

Pairs are stored in segments, each with pairs of one corpus and no more than a shard holds, so that segments can be
encoded in parallel.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self

import numpy as np

from multihead.data.parallel_text import Pair
from multihead.text.lines import read_lines

MAX_SEGMENT_PAIRS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSegment:
    """A file of pairs, source and target on alternate lines."""

    number: int
    corpus: int
    first: int  # position of its first pair among all pairs
    n_pairs: int


@dataclass(slots=True)
class Spool:
    """All segments in order; a context that removes the folder at its end."""

    folder: Path
    segments: list[SpoolSegment] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)

    @property
    def flag_file(self) -> Path:
        """A file with a boolean for each pair; once it is there, flagged pairs are left out."""
        return self.folder / "flags.npy"

    def write(self, text: bytes, n_pairs: int, corpus: int) -> None:
        """Append pairs, source and target on alternate lines."""
        last = self.segments[-1] if self.segments else None
        if last is None or last.corpus != corpus or last.n_pairs + n_pairs > MAX_SEGMENT_PAIRS:
            first = last.first + last.n_pairs if last else 0
            last = SpoolSegment(number=len(self.segments), corpus=corpus, first=first, n_pairs=0)
            self.segments.append(last)
        with self._path(last).open("ab") as file:
            file.write(text)
        self.segments[-1] = replace(last, n_pairs=last.n_pairs + n_pairs)

    def flags(self) -> "np.memmap[Any, np.dtype[np.bool_]]":
        """Open the flags to change them; without a file, no pair is flagged yet."""
        if self.flag_file.exists():
            return np.lib.format.open_memmap(self.flag_file, "r+")
        n_pairs = sum(segment.n_pairs for segment in self.segments)
        return np.lib.format.open_memmap(self.flag_file, "w+", np.bool_, (n_pairs,))

    def read_all(self, segment: SpoolSegment) -> Iterator[Pair]:
        """Yield the pairs of a segment, with those that are flagged."""
        lines = (line.decode() for line in read_lines(self._path(segment)))
        return zip(lines, lines, strict=True)

    def read(self, segment: SpoolSegment) -> Iterator[Pair]:
        """Yield the pairs of a segment, without those that are flagged."""
        pairs = self.read_all(segment)
        if not self.flag_file.exists():
            yield from pairs
            return
        flags = np.load(self.flag_file, mmap_mode="r")[segment.first : segment.first + segment.n_pairs].tolist()
        yield from (pair for pair, is_flagged in zip(pairs, flags, strict=True) if not is_flagged)

    def _path(self, segment: SpoolSegment) -> Path:
        return self.folder / f"{segment.number:05}.txt"
