"""A prepared corpus on disk: `corpus.json`, the tokenizer, and memory-mapped shards of token ids."""

import hashlib
import json
from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from itertools import accumulate
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from multihead.config.schema import OLD_DATA_SETTINGS
from multihead.data.parallel_text import ParallelText
from multihead.data.spool import MAX_SEGMENT_PAIRS
from multihead.errors import UserError
from multihead.storage.checksums import CHECKSUM_FILE, check_loaded, checksums, verify_all
from multihead.storage.files import sha256
from multihead.text.dependency_trees import NO_HEAD
from multihead.text.tokenizer import FILE, TARGET_FILE
from multihead.untrusted import check_file, read_json

Ids = NDArray[np.unsignedinteger]

ID_BITS = 20  # older corpora with trees have the id of a token in these bits, and above them one more than its head
SHARD_PAIRS = MAX_SEGMENT_PAIRS  # pairs in a file


# corpus.json


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusPart:
    """One of the corpora in a prepared folder, which follow each other."""

    pairs: int
    target_tokens: int  # including end symbols
    weight: float  # how often its pairs come in an epoch
    direction: str = ""  # in a model of several directions


@dataclass(frozen=True, slots=True, kw_only=True)
class CorpusSummary:
    """`corpus.json`: the content of a prepared folder, and what it was made from."""

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
    settings: dict[str, object] = field(default_factory=dict)  # see `prepare.preparation_settings`
    asked_vocabulary: str = ""  # see `prepare.requested_vocabulary`
    # If rehearsal, marked corpora or several directions changed the weights.
    asked_weights: list[float] = field(default_factory=list)  # of the new corpora
    rehearsal: str = ""  # see `rehearsal.Rehearsal.identity`
    characters: int = 0  # of both sides of all pairs that were kept

    def to_json(self) -> str:
        """Return the content of corpus.json."""
        document = asdict(self)
        for name in ("asked_weights", "rehearsal"):
            if not document[name]:
                del document[name]
        for part in document["parts"]:
            if not part["direction"]:
                del part["direction"]
        return json.dumps(document, indent=2) + "\n"

    def matches(self, text: ParallelText) -> bool:
        """Return whether it was made from this text with these weights; older folders know only the files' sizes."""
        weights = self.asked_weights or [part.weight for part in self.parts]
        same_files = self.file_sums == text.sums if self.file_sums else self.file_sizes == text.sizes
        same_directions = set(self.directions) == set(text.directions)
        return same_files and same_directions and weights in ([], [weight for _, weight in text.corpora()])

    @property
    def directions(self) -> list[str]:
        """The direction of each part; none in a model of one pair of languages."""
        return [part.direction for part in self.parts if part.direction]

    def known_settings(self) -> dict[str, object]:
        """Return the settings that the corpus was made with, by dotted name, as far as they were recorded."""
        names = ("source_lang", "target_lang", "tokenizer", "max_length")
        # Older versions did not record settings that they did not have.
        known = {**OLD_DATA_SETTINGS, **{name: getattr(self, name) for name in names}, **self.settings}
        return {
            "model.vocab_size": self.vocab_size,
            **{f"data.{name}": value for name, value in known.items() if value != ""},  # languages may be unknown
        }

    def lines(self) -> list[str]:
        """Return the sizes as lines for the user."""
        weighted = [
            f"{part.pairs:,} pairs {part.direction + ' ' if part.direction else ''}with weight {part.weight:g}"
            for part in self.parts
            if len(self.parts) > 1
        ]
        return [
            f"{self.train_pairs:,} training pairs, {self.valid_pairs:,} validation pairs, "
            f"{self.vocab_size:,} pieces in the vocabulary",
            *([f"{len(weighted)} {self._name_of_parts}: {', '.join(weighted)}"] if weighted else []),
        ]

    @property
    def _name_of_parts(self) -> str:
        return "corpora and directions" if self.directions else "corpora"


def is_corpus(folder: Path) -> bool:
    """Return whether a folder is a prepared corpus."""
    return (folder / "corpus.json").exists()


def read_summary(folder: Path) -> CorpusSummary:
    """Return what is in a prepared folder; any other folder is refused."""
    path = folder / "corpus.json"
    if not is_corpus(folder):
        raise UserError(f"{folder} is not a prepared corpus; make one with `multihead prepare`")
    document = read_json(path)
    try:
        parts = [CorpusPart(**part) for part in document.pop("parts", [])]
        return CorpusSummary(**document, parts=parts)
    except (TypeError, AttributeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None


def record_checksums(folder: Path) -> None:
    """Write SHA256SUMS for every file of a prepared folder."""
    files = {path.name: path for path in sorted(folder.iterdir()) if path.is_file()}
    (folder / CHECKSUM_FILE).write_text(checksums(files), encoding="utf-8")


def verify_corpus(folder: Path) -> list[str]:
    """Compare every file of a prepared folder with its checksum, and return their names."""
    if not (folder / CHECKSUM_FILE).exists():
        raise UserError(f"{folder} has no {CHECKSUM_FILE}: it was prepared by an older version")
    return verify_all(folder, required="corpus.json")


def check_corpus(folder: Path) -> None:
    """Raise UserError if a prepared folder is damaged: sizes always, checksums of the files that are not large.

    Training would otherwise fail hours later, or learn from text that nobody wrote.
    """
    summary = read_summary(folder)
    for name in ("corpus.json", "tokenizer.json", *sorted(path.name for path in folder.glob("*.npy"))):
        check_loaded(folder, name)
    for split, expected in (("train", summary.train_pairs), ("valid", summary.valid_pairs)):
        if (found := len(Shards(folder, split))) != expected:
            raise _damaged(folder, f"corpus.json says {expected:,} pairs of {split}, and there are {found:,}")


def _damaged(folder: Path, problem: str) -> UserError:
    return UserError(f"the prepared corpus {folder} is damaged: {problem}. Delete it and prepare the text again")


def corpus_identity(folder: Path) -> str:
    """Return a checksum that changes with the text, the settings or the vocabulary, but not when a folder is moved."""
    read_summary(folder)  # explains what is wrong with a folder that is not a corpus
    document = read_json(folder / "corpus.json")
    document.pop("asked_vocabulary", None)  # 8,000 pieces are the same whether requested or chosen
    try:
        check_file(folder / FILE)
        document[FILE] = sha256(folder / FILE)
        if (folder / TARGET_FILE).exists():
            document[TARGET_FILE] = sha256(folder / TARGET_FILE)
    except OSError as error:
        raise UserError(f"cannot read the corpus in {folder}: {error}") from None
    return hashlib.sha256(json.dumps(document, sort_keys=True).encode()).hexdigest()


# Shards


class ShardWriter:
    """Writes pairs of ids into files of `SHARD_PAIRS` pairs, numbered from `number`; a context that writes the rest."""

    def __init__(self, folder: Path, split: str, vocab_size: int, number: int = 0) -> None:
        self._prefix = f"{folder / split}-"
        self._typecode = "H" if vocab_size <= 1 << 16 else "I"  # 2 or 4 bytes a token
        self._number = number
        self.n_pairs = self.target_tokens = 0
        self._clear()

    def _clear(self) -> None:
        self._tokens, self._ends, self._heads = array(self._typecode), array("q"), array("i")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, error: type[BaseException] | None, *_: object) -> None:
        if error is None:
            self._flush()

    def add(self, source: list[int], target: list[int], heads: list[int] | None = None) -> None:
        """Add a pair; with dependency trees, `heads` has the head of each source token."""
        for side in (source, target):
            self._tokens.extend(side)
            self._ends.append(len(self._tokens))
        if heads is not None:
            self._heads.extend(heads + [NO_HEAD] * len(target))  # an entry for each token, so that `ends` fits both
        self.n_pairs += 1
        self.target_tokens += len(target) + 1
        if self.n_pairs % SHARD_PAIRS == 0:
            self._flush()

    def _flush(self) -> None:
        if not self._ends:
            return
        name = f"{self._prefix}{self._number:05}"
        np.save(f"{name}.tokens.npy", np.asarray(self._tokens))
        np.save(f"{name}.ends.npy", np.asarray(self._ends).reshape(-1, 2))
        if self._heads:
            np.save(f"{name}.heads.npy", np.asarray(self._heads))
        self._number += 1
        self._clear()


class Shards:
    """The pairs of a split, memory-mapped: `shards[i]` is pair i as (source ids, target ids).

    `parts` are the weighted corpora that the pairs belong to; without any, each pair counts once.
    """

    def __init__(self, folder: Path, split: str, parts: Sequence[CorpusPart] = ()) -> None:
        names = sorted(folder.glob(f"{split}-*.ends.npy"))
        self._ends = [_open_array(name, n_dimensions=2) for name in names]
        self._tokens = [_open_array(_beside(name, "tokens"), n_dimensions=1) for name in names]
        heads = [_beside(name, "heads") for name in names]
        self._heads = [_open_array(name, n_dimensions=1) for name in heads if name.exists()]
        for ends, tokens in zip(self._ends, self._tokens, strict=True):
            _check_ends(folder, ends, len(tokens))
        has_wide_ids = bool(self._tokens) and self._tokens[0].dtype.itemsize > 2
        if not self._heads and has_wide_ids and (self._tokens[0] >> ID_BITS).any():
            self._heads = [(tokens >> ID_BITS).astype(np.int32) - 1 for tokens in self._tokens]
            self._tokens = [tokens & ((1 << ID_BITS) - 1) for tokens in self._tokens]
        self._starts = list(accumulate((len(ends) for ends in self._ends), initial=0))
        self.parts = parts
        labels = labels_file(folder, split)
        # The number of the direction of each pair; only validation pairs of several directions have them.
        self.labels: list[int] = _open_array(labels, n_dimensions=1).tolist() if labels.exists() else []
        if self.labels and len(self.labels) != len(self):
            raise _damaged(folder, f"{labels.name} is not about these pairs")

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, pair: int) -> tuple[Ids, Ids]:
        shard, start, middle, end = self._find(pair)
        return self._tokens[shard][start:middle], self._tokens[shard][middle:end]

    def source_heads(self, pair: int) -> NDArray[np.int32] | None:
        """Return the head of each source token, or None if the corpus has no dependency trees."""
        if not self._heads:
            return None
        shard, start, middle, _ = self._find(pair)
        heads: NDArray[np.int32] = self._heads[shard][start:middle]
        return heads

    def _find(self, pair: int) -> tuple[int, int, int, int]:
        """Return the shard of a pair, and where its source and target begin and end there."""
        shard = bisect_right(self._starts, pair) - 1
        row = pair - self._starts[shard]
        ends = self._ends[shard]
        return shard, ends[row - 1, 1] if row else 0, ends[row, 0], ends[row, 1]

    def target_tokens(self) -> int:
        """Return the target tokens of an epoch, including end symbols."""
        if self.parts:
            return round(sum(part.weight * part.target_tokens for part in self.parts))
        return int(self.lengths()[:, 1].sum()) + len(self)

    def lengths(self, first: int = 0, end: int | None = None) -> NDArray[np.int32]:
        """Return the source and target tokens of each pair of a range, without control symbols, shape (N, 2)."""
        end = len(self) if end is None else end
        lengths = [np.zeros((0, 2), dtype=np.int32)]
        for start, ends in zip(self._starts, self._ends, strict=False):
            low, high = max(0, first - start), min(len(ends), end - start)
            if low < high:
                before = ends[low - 1, 1] if low else 0
                lengths.append(np.diff(ends[low:high].ravel(), prepend=before).reshape(-1, 2).astype(np.int32))
        return np.concatenate(lengths)


def labels_file(folder: Path, split: str) -> Path:
    """Return the file with the direction of each pair of a split."""
    return folder / f"{split}.directions.npy"


def _beside(ends: Path, kind: str) -> Path:
    return ends.with_name(ends.name.replace(".ends.", f".{kind}."))


def _open_array(path: Path, n_dimensions: int) -> NDArray[Any]:
    """Map an array of integers into memory."""
    try:
        check_file(path)
        array: NDArray[Any] = np.load(path, mmap_mode="r", allow_pickle=False)
    except (UserError, OSError, ValueError, EOFError, SyntaxError, OverflowError) as error:
        raise _damaged(path.parent, f"{path.name}: {error}") from None
    if not isinstance(array, np.ndarray) or array.ndim != n_dimensions or not np.issubdtype(array.dtype, np.integer):
        raise _damaged(path.parent, f"{path.name} is not an array of integers with {n_dimensions} dimensions")
    return array


def _check_ends(folder: Path, ends: NDArray[Any], n_tokens: int) -> None:
    """Refuse ends that lead outside of the tokens."""
    flat = ends.reshape(-1)
    is_rising = bool((flat[1:] >= flat[:-1]).all())
    if ends.shape[1] != 2 or (len(flat) and not (flat[0] >= 0 and is_rising and flat[-1] == n_tokens)):
        raise _damaged(folder, "the pairs do not end where the tokens do")


def open_training_shards(folder: Path) -> Shards:
    """Return the training pairs of a folder, weighted as its `corpus.json` says if it has one."""
    parts = read_summary(folder).parts if (folder / "corpus.json").exists() else []
    return Shards(folder, "train", parts)
