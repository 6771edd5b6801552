"""TODO."""

import hashlib
import json
from array import array
from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from multihead.data.parallel_text import ParallelText
from multihead.data.spool import MAX_SEGMENT_PAIRS
from multihead.errors import UserError
from multihead.storage.files import sha256

Ids = NDArray[np.unsignedinteger]

SHARD_PAIRS = MAX_SEGMENT_PAIRS  # pairs in one file


# Preparing


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusPart:
    """One of the corpora that a prepared folder holds, one after the other."""

    pairs: int
    target_tokens: int  # with the end symbols
    weight: float  # how often its pairs come in an epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSummary:
    """`corpus.json`: what a prepared folder holds, and how it came about."""

    source_lang: str
    target_lang: str
    tokenizer: str
    vocab_size: int
    max_length: int
    train_pairs: int
    valid_pairs: int
    cleaning: dict[str, int]
    file_sizes: list[int]
    description: str
    parts: list[CorpusPart] = field(default_factory=list)
    # Folders made by older versions have none of these.
    file_sums: list[str] = field(default_factory=list)
    settings: dict[str, object] = field(default_factory=dict)  # fields of DataConfig that it was made with
    asked_vocabulary: str = ""  # how the vocabulary was asked for, see `asked_vocabulary`

    def is_of(self, text: ParallelText) -> bool:
        """Return whether it was made from this text with these weights; older folders know only the files' sizes."""
        weights = [part.weight for part in self.parts]
        same_files = self.file_sums == text.sums if self.file_sums else self.file_sizes == text.sizes
        return same_files and weights in ([], [weight for _, weight in text.corpora()])

    def prepared_with(self) -> dict[str, object]:
        """Return the settings that the corpus was made with, by dotted name, as far as they are known."""
        names = ("source_lang", "target_lang", "tokenizer", "max_length")
        # Older versions did not normalize text, and recorded nothing of it.
        known = {"unicode": "none", **{name: getattr(self, name) for name in names}, **self.settings}
        return {
            "model.vocab_size": self.vocab_size,
            **{f"data.{name}": value for name, value in known.items() if value != ""},  # languages may be unknown
        }

    def lines(self) -> list[str]:
        weighted = [f"{part.pairs:,} pairs with weight {part.weight:g}" for part in self.parts if len(self.parts) > 1]
        return [
            f"{self.train_pairs:,} pairs to train on, {self.valid_pairs:,} to validate with, "
            f"{self.vocab_size:,} pieces in the vocabulary",
            *([f"of {len(weighted)} corpora: {', '.join(weighted)}"] if weighted else []),
        ]


# Shards


class ShardWriter:
    """Writes pairs of ids, SHARD of them to a file, the first of which has this number."""

    def __init__(self, folder: Path, split: str, largest: int, number: int = 0) -> None:
        self._prefix = f"{folder / split}-"
        self._typecode = "H" if largest <= 1 << 16 else "I"  # 2 or 4 bytes a token
        self._number = number
        self.n_pairs = self.target_tokens = 0
        self._clear()

    def _clear(self) -> None:
        self._tokens, self._ends = array(self._typecode), array("q")

    def add(self, source: list[int], target: list[int]) -> None:
        for side in (source, target):
            self._tokens.extend(side)
            self._ends.append(len(self._tokens))
        self.n_pairs += 1
        self.target_tokens += len(target) + 1
        if self.n_pairs % SHARD_PAIRS == 0:
            self.flush()

    def flush(self) -> None:
        """Write what is left; the last call of all."""
        if not self._ends:
            return
        name = f"{self._prefix}{self._number:05}"
        np.save(f"{name}.tokens.npy", np.asarray(self._tokens))
        np.save(f"{name}.ends.npy", np.asarray(self._ends).reshape(-1, 2))
        self._number += 1
        self._clear()


class Shards:
    """The pairs of one split, memory-mapped: `shards[i]` is pair i as (source ids, target ids)."""

    def __init__(self, folder: Path, split: str) -> None:
        names = sorted(folder.glob(f"{split}-*.ends.npy"))
        self._ends = [np.load(name, mmap_mode="r") for name in names]
        self._tokens = [np.load(str(name).replace(".ends.", ".tokens."), mmap_mode="r") for name in names]
        self._starts = list(accumulate((len(ends) for ends in self._ends), initial=0))
        is_described = split == "train" and (folder / "corpus.json").exists()
        self.parts = read_summary(folder).parts if is_described else []

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, pair: int) -> tuple[Ids, Ids]:
        shard = bisect_right(self._starts, pair) - 1
        row = pair - self._starts[shard]
        ends, tokens = self._ends[shard], self._tokens[shard]
        start = ends[row - 1, 1] if row else 0
        return tokens[start : ends[row, 0]], tokens[ends[row, 0] : ends[row, 1]]

    def target_tokens(self) -> int:
        """Of an epoch, with the end symbols."""
        if self.parts:
            return round(sum(part.weight * part.target_tokens for part in self.parts))
        return int(self.lengths()[:, 1].sum()) + len(self)

    def lengths(self, first: int = 0, end: int | None = None) -> NDArray[np.int32]:
        """Tokens of source and of target for every pair of a range, without control symbols: N 2."""
        end = len(self) if end is None else end
        found = [np.zeros((0, 2), dtype=np.int32)]
        for start, ends in zip(self._starts, self._ends, strict=False):
            low, high = max(0, first - start), min(len(ends), end - start)
            if low < high:
                before = ends[low - 1, 1] if low else 0
                found.append(np.diff(ends[low:high].ravel(), prepend=before).reshape(-1, 2).astype(np.int32))
        return np.concatenate(found)


def read_summary(folder: Path) -> CorpusSummary:
    """What is in a prepared folder, or in words why it is none."""
    path = folder / "corpus.json"
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        parts = [CorpusPart(**part) for part in document.pop("parts", [])]
        return CorpusSummary(**document, parts=parts)
    except FileNotFoundError:
        raise UserError(f"{folder} is not a prepared corpus: make one with `multihead prepare`") from None
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None


def corpus_identity(folder: Path) -> str:
    """Return a sum that differs for corpora of different text, settings or vocabulary, and stays when one is moved."""
    read_summary(folder)  # explains what is wrong with a folder that is no corpus
    document = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    document.pop("asked_vocabulary", None)  # 8,000 pieces are the same whether asked for or chosen
    try:
        document["tokenizer.json"] = sha256(folder / "tokenizer.json")
    except OSError as error:
        raise UserError(f"cannot read the corpus in {folder}: {error}") from None
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()
