"""TODO."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from multihead.data.shards import Ids, Shards
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import EOS_ID, UNK_ID

ROUNDS = 4  # of expectation and maximization
RARE = 5  # times that a word has to be seen
MAX_LINKS = 16_000_000  # word pairs learned from, about 50,000 sentences: more text changes little, and takes memory
MAX_PAIRS = 1_000_000  # pairs that are looked at for rare words
Vary = Callable[[tuple[Ids, Ids]], tuple[Ids, Ids]]  # a pair in another form


class Size(NamedTuple):
    """How many words a shortlist allows."""

    candidates: int  # target words for a source word
    frequent: int  # target words that every sentence may use


SIZES = [Size(24, 100), Size(48, 300), Size(100, 1000)]  # the smallest that costs little is published


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
        return Shortlist(candidates, frequent)


def learn_shortlists(shards: Shards, vocab_size: int, vary: Vary | None = None) -> list[Lexicon]:
    """Learn the likeliest translations of each word; of a large corpus, from sentences spread over it.

    With `vary` there is a second lexicon, from every pair in another form: what the model was taught to read needs
    candidates too. It is learned apart, so that it takes nothing away from the pairs as they are.
    """
    plain = [shards[pair] for pair in _sample(shards, vocab_size, MAX_LINKS)]
    return [_learn(pairs, vocab_size) for pairs in (plain, *([list(map(vary, plain))] if vary else []))]


def shortlist_of(lexicons: Sequence[Lexicon], size: Size) -> Shortlist:
    """What any of the lexicons lets a source say."""
    first, *others = [lexicon.shortlist(size) for lexicon in lexicons]
    for other in others:
        first = first.union(other)
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
    looked_at = range(0, len(shards), math.ceil(len(shards) / MAX_PAIRS) or 1)
    lengths = shards.lengths(0, MAX_PAIRS).astype(np.int64)
    n_links = lengths.prod(axis=1).sum() * len(looked_at) / max(1, len(lengths))
    taken = list(looked_at[:: max(1, math.ceil(n_links / most_links))])
    if len(taken) == len(looked_at):
        return taken
    seen = np.zeros(vocab_size, dtype=np.int64)
    for pair in taken:
        seen[shards[pair][0]] += 1
    for pair in looked_at:
        source = shards[pair][0]
        if seen[source].min() < RARE:
            taken.append(pair)
            seen[source] += 1
    return taken


def _links(pairs: list[tuple[Ids, Ids]], vocab_size: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Every target word with every word of its source, as one number; and which target word of the corpus it is."""
    links: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int32]] = []
    n_targets = 0
    for pair in pairs:
        source, target = (ids.astype(np.int64) for ids in pair)
        source = np.append(np.unique(source), UNK_ID)  # and with nothing at all, for which UNK stands
        links.append((source * vocab_size + target[:, None]).ravel())
        targets.append(np.repeat(np.arange(n_targets, n_targets + len(target), dtype=np.int32), len(source)))
        n_targets += len(target)
    return np.concatenate(links), np.concatenate(targets)
