"""Cleaned pairs on the disk while a corpus is prepared: the raw text may be a pipe, and is read once.

They lie in segments, each of one corpus and of at most as many pairs as a shard has, so that segments can be worked on
side by side.
"""

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import numpy as np

from multihead.data.parallel_text import Pair
from multihead.text.lines import read_lines

MAX_SEGMENT_PAIRS = 1_000_000  # pairs in a segment


@dataclass(frozen=True, slots=True, kw_only=True)
class SpoolSegment:
    """A file of pairs, source and target on alternate lines."""

    number: int
    corpus: int
    first: int  # the place of its first pair among all
    n_pairs: int


@dataclass(slots=True)
class Spool:
    """All segments in their order; a context in which they are there."""

    folder: Path
    segments: list[SpoolSegment] = field(default_factory=list)

    def __enter__(self) -> Self:
        self.folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        shutil.rmtree(self.folder)

    @property
    def repeated(self) -> Path:
        """A file with a byte for each pair, 1 for those that came before: they are left out once it is there."""
        return self.folder / "repeated.npy"

    def write(self, text: bytes, n_pairs: int, corpus: int) -> None:
        """Add pairs, source and target on alternate lines, behind those that are there."""
        last = self.segments[-1] if self.segments else None
        if last is None or last.corpus != corpus or last.n_pairs + n_pairs > MAX_SEGMENT_PAIRS:
            first = last.first + last.n_pairs if last else 0
            last = SpoolSegment(number=len(self.segments), corpus=corpus, first=first, n_pairs=0)
            self.segments.append(last)
        with self._path(last.number).open("ab") as file:
            file.write(text)
        self.segments[-1] = SpoolSegment(
            number=last.number, corpus=corpus, first=last.first, n_pairs=last.n_pairs + n_pairs
        )

    def read(self, segment: SpoolSegment) -> Iterator[Pair]:
        """The pairs of a segment, each the first time that it comes."""
        lines = (line.decode() for line in read_lines(self._path(segment.number)))
        pairs = zip(lines, lines, strict=True)
        if not self.repeated.exists():
            yield from pairs
            return
        repeated = np.load(self.repeated, mmap_mode="r")[segment.first : segment.first + segment.n_pairs].tolist()
        yield from (pair for pair, again in zip(pairs, repeated, strict=True) if not again)

    def _path(self, number: int) -> Path:
        return self.folder / f"{number:05}.txt"
