"""Corpora whose sources are marked, because a machine wrote one side; none of their pairs is for validation.

Back-translated text has the piece <bt> before every source (Caswell et al., 2019). With it a model learns from
translations of a machine without learning to write like one. No text is split into such a piece, so a mark is taken off
the text before it is cleaned, and its id is put before those of the source. The translations of a teacher, from which a
model is to learn how to write, are marked by <teacher> in files only.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from multihead.data.parallel_text import RawPair
from multihead.data.shards import CorpusPart
from multihead.errors import UserError
from multihead.text.tokenizer import SubwordTokenizer

BACK_TRANSLATED = "<bt>"  # the source is a translation of the target
DISTILLED = "<teacher>"  # the target is a translation of the source
MARKS = (BACK_TRANSLATED, DISTILLED)


@dataclass(frozen=True, slots=True)
class MarkedCorpus:
    """A corpus without the mark that its sources had, if any."""

    pairs: Iterable[RawPair]
    weight: float
    mark: str = ""


def take_off_marks(corpora: Iterable[tuple[Iterable[RawPair], float]]) -> list[MarkedCorpus]:
    """Return corpora with their marks, which their first pairs tell; a mark that all of them have says nothing."""
    found = [_unmarked(iter(pairs), weight) for pairs, weight in corpora]
    return found if not all(corpus.mark for corpus in found) else [replace(corpus, mark="") for corpus in found]


def _unmarked(pairs: Iterator[RawPair], weight: float) -> MarkedCorpus:
    first = list(next(([pair] for pair in pairs), ()))
    mark = next((mark for mark in MARKS if first and first[0][0].startswith(_prefix(mark))), "")
    read = chain(first, pairs)
    return MarkedCorpus(_without(mark, read) if mark else read, weight, mark)


def _without(mark: str, pairs: Iterable[RawPair]) -> Iterator[RawPair]:
    prefix = _prefix(mark)
    for number, (source, target) in enumerate(pairs, start=1):
        if not source.startswith(prefix):
            raise UserError(
                f"pair {number:,} of a corpus whose sources start with {mark} does not: put other text into a file of "
                "its own, with its own --corpus"
            )
        yield source.removeprefix(prefix), target


def _prefix(mark: str) -> bytes:
    return f"{mark} ".encode()


def mark_pieces(marks: Iterable[str]) -> list[str]:
    """Return the pieces that a vocabulary needs for corpora with these marks."""
    return sorted({mark for mark in marks if mark == BACK_TRANSLATED})


def mark_ids(mark: str, tokenizer: SubwordTokenizer) -> list[int]:
    """Return the ids before a marked source; the vocabulary of a base model may have no piece for the mark."""
    return [tokenizer.reserved[mark]] if mark in tokenizer.reserved else []


def limit_synthetic(parts: Sequence[CorpusPart], marks: Mapping[int, str], ratio: float) -> list[CorpusPart]:
    """Return parts in which real pairs occur so often that an epoch has at most `ratio` back-translated pairs for each.

    Real pairs come more often rather than back-translated ones less often, so that no text is left out.
    """
    is_synthetic = [marks.get(number) == BACK_TRANSLATED for number in range(len(parts))]
    sizes = [part.weight * part.pairs for part in parts]
    n_synthetic = sum(size for size, synthetic in zip(sizes, is_synthetic, strict=True) if synthetic)
    n_real = sum(sizes) - n_synthetic
    repeats = n_synthetic / (ratio * n_real) if n_real else 1.0
    if repeats <= 1:
        return list(parts)
    return [
        part if synthetic else replace(part, weight=repeats * part.weight)
        for part, synthetic in zip(parts, is_synthetic, strict=True)
    ]
