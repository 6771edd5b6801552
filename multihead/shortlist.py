"""The words that can occur in a translation, by the words of its source.

The map to logits is the largest matrix product of a decoding step, and nearly all of what it computes is about words
that cannot come. A shortlist is learned from the training text: for each source word the target words that it is
likeliest to be translated by (IBM Model 1; Brown et al., 1993).

Shapes: B sentences, S source length, V vocabulary, C candidates of a word, U words that can be said in a batch.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file
from torch import Tensor

from multihead.corpus import Ids, Shards
from multihead.files import replacing
from multihead.tokenizer import BOS_ID, EOS_ID, PAD_ID, PLACE, UNK_ID

FILE = "shortlist.safetensors"
ROUNDS = 4  # of expectation and maximisation
RARE = 5  # times that a word has to be seen
MOST_LINKS = 16_000_000  # word pairs learned from, about 50,000 sentences: more text changes little, and takes memory
MOST_PAIRS = 1_000_000  # pairs that are looked at for rare words
Vary = Callable[[tuple[Ids, Ids]], tuple[Ids, Ids]]  # a pair in another form


class Size(NamedTuple):
    """How many words a shortlist allows."""

    candidates: int  # target words for a source word
    frequent: int  # target words that every sentence may use


SIZES = [Size(24, 100), Size(48, 300), Size(100, 1000)]  # the smallest that costs little is published
NEVER_SAID = [PAD_ID, BOS_ID]  # but an unknown word may be said: an imported model has learned when


@dataclass(frozen=True, slots=True)
class Words:
    """What can be said in a batch, and by which of its sentences."""

    ids: Tensor  # U, rising
    barred: Tensor  # B U: 0 where a sentence may say the word, -inf where not
    end: int  # where the end symbol stands in `ids`

    def of(self, sentences: Tensor) -> "Words":
        return Words(self.ids, self.barred[sentences], self.end)


@dataclass(frozen=True, slots=True)
class Shortlist:
    """For each source word its candidates, and what is always possible."""

    candidates: Tensor  # V C; the end symbol where there are fewer
    frequent: Tensor  # target words

    def words(self, source_ids: Tensor) -> Words:
        """What the sentences of a batch (B S) can say: a sentence's words depend on that sentence alone."""
        source_ids = source_ids % PLACE
        n_sentences, vocab_size = len(source_ids), len(self.candidates)
        candidates = self.candidates[source_ids.where(source_ids != PAD_ID, EOS_ID)].flatten(1)  # B S·C
        allowed = torch.zeros(n_sentences, vocab_size, dtype=torch.bool, device=source_ids.device)  # B V
        allowed[:, self.frequent] = True
        allowed.scatter_(1, source_ids, True)  # names and numbers stay as they are
        allowed.scatter_(1, candidates, True)
        allowed[:, EOS_ID] = True
        allowed[:, NEVER_SAID] = False
        ids = allowed.any(dim=0).nonzero().flatten()  # U
        barred = torch.zeros(n_sentences, len(ids), device=ids.device).masked_fill_(~allowed[:, ids], -math.inf)
        return Words(ids, barred, end=int(torch.searchsorted(ids, EOS_ID)))

    def joined(self, other: "Shortlist") -> "Shortlist":
        """What either of them lets a source say."""
        candidates = torch.cat([self.candidates, other.candidates], dim=1).sort(dim=1).values
        candidates[:, 1:][candidates[:, 1:] == candidates[:, :-1]] = EOS_ID  # each word once
        last = (candidates == EOS_ID).sort(dim=1, stable=True).indices
        width = max(1, int((candidates != EOS_ID).sum(dim=1).max()))
        candidates = candidates.gather(1, last)
        return Shortlist(candidates[:, :width], torch.cat([self.frequent, other.frequent]).unique())

    def to(self, device: torch.device) -> "Shortlist":
        return Shortlist(self.candidates.to(device), self.frequent.to(device))

    def save(self, folder: Path) -> None:
        kind = torch.int16 if len(self.candidates) <= torch.iinfo(torch.int16).max else torch.int32
        tensors = {"candidates": self.candidates.to(kind), "frequent": self.frequent.to(kind)}
        with replacing(folder / FILE) as aside:
            save_file(tensors, aside)
            aside.chmod(0o644)


def load(folder: Path) -> Shortlist | None:
    """The shortlist of a model, if it has one."""
    path = folder / FILE
    if not path.exists():
        return None
    tensors = load_file(path)
    return Shortlist(tensors["candidates"].long(), tensors["frequent"].long())


@dataclass(frozen=True, slots=True)
class Lexicon:
    """How likely each target word is, given a source word."""

    source: NDArray[np.int64]  # rising
    target: NDArray[np.int64]  # of each source word the likeliest first
    counts: NDArray[np.floating | np.integer]  # how often a target word comes from a source word, as far as can be told
    vocab_size: int

    def shortlist(self, size: Size) -> Shortlist:
        rank = np.arange(len(self.source)) - np.searchsorted(self.source, self.source)
        best = rank < size.candidates
        candidates = np.full((self.vocab_size, size.candidates), EOS_ID)
        candidates[self.source[best], rank[best]] = self.target[best]
        said = np.bincount(self.target, self.counts, minlength=self.vocab_size)
        frequent = np.argsort(-said, kind="stable")[: size.frequent]
        return Shortlist(torch.from_numpy(candidates), torch.from_numpy(frequent))


def learn(shards: Shards, vocab_size: int, vary: Vary | None = None) -> list[Lexicon]:
    """Learn the likeliest translations of each word; of a large corpus, from sentences spread over it.

    With `vary` there is a second lexicon, from every pair in another form: what the model was taught to read needs
    candidates too. It is learned apart, so that it takes nothing away from the pairs as they are.
    """
    plain = [shards[pair] for pair in _sample(shards, vocab_size, MOST_LINKS)]
    return [_learn(pairs, vocab_size) for pairs in (plain, *([list(map(vary, plain))] if vary else []))]


def shortlist_of(lexicons: Sequence[Lexicon], size: Size) -> Shortlist:
    """What any of the lexicons lets a source say."""
    first, *others = [lexicon.shortlist(size) for lexicon in lexicons]
    for other in others:
        first = first.joined(other)
    return first


def _learn(pairs: list[tuple[Ids, Ids]], vocab_size: int) -> Lexicon:
    links, targets = _links(pairs, vocab_size)
    words, pair_of_link = np.unique(links, return_inverse=True)
    source, target = np.divmod(words, vocab_size)
    share = np.ones(len(words))  # how likely a target word is, given the source word
    for _ in range(ROUNDS):
        weight = share[pair_of_link]
        weight /= np.bincount(targets, weight)[targets]  # each target word comes from some word of its source
        counts = np.bincount(pair_of_link, weight)
        share = counts / np.bincount(source, counts)[source]
    order = np.lexsort((-share, source))
    return Lexicon(source[order], target[order], counts[order], vocab_size)


def _sample(shards: Shards, vocab_size: int, most_links: int) -> list[int]:
    """Pairs here and there, and enough of those that have the words which these have not."""
    looked_at = range(0, len(shards), math.ceil(len(shards) / MOST_PAIRS) or 1)
    lengths = shards.lengths(0, MOST_PAIRS).astype(np.int64)
    n_links = lengths.prod(axis=1).sum() * len(looked_at) / max(1, len(lengths))
    taken = list(looked_at[:: max(1, math.ceil(n_links / most_links))])
    if len(taken) == len(looked_at):
        return taken
    seen = np.zeros(vocab_size, dtype=np.int64)
    for pair in taken:
        seen[_words(shards[pair][0])] += 1
    for pair in looked_at:
        source = _words(shards[pair][0])
        if seen[source].min() < RARE:
            taken.append(pair)
            seen[source] += 1
    return taken


def _words(tokens: Ids) -> NDArray[np.int64]:
    return tokens.astype(np.int64) % PLACE  # without what they hang from (trees.py)


def _links(pairs: list[tuple[Ids, Ids]], vocab_size: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Every target word with every word of its source, as one number; and which target word of the corpus it is."""
    links: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int32]] = []
    n_targets = 0
    for pair in pairs:
        source, target = map(_words, pair)
        source = np.append(np.unique(source), UNK_ID)  # and with nothing at all, for which UNK stands
        links.append((source * vocab_size + target[:, None]).ravel())
        targets.append(np.repeat(np.arange(n_targets, n_targets + len(target), dtype=np.int32), len(source)))
        n_targets += len(target)
    return np.concatenate(links), np.concatenate(targets)
