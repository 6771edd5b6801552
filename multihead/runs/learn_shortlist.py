"""Learn from a corpus which target words may translate a source word: IBM Model 1, by expectation maximization."""

import math
import time
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from multihead.data.shards import Ids, Shards
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import EOS_ID, UNK_ID

ROUNDS = 4  # of expectation maximization
MIN_OCCURRENCES = 5  # of a word in the sample, if the corpus has as many
MAX_LINKS = 16_000_000  # word pairs to learn from, about 50,000 sentences; more changes little and takes memory
MEASURED_PAIRS = 2000  # that are learned from to estimate how long learning takes
MAX_PAIRS = 1_000_000  # sentence pairs searched for rare words
Vary = Callable[[tuple[Ids, Ids]], tuple[Ids, Ids]]  # returns a variant of a pair


class Size(NamedTuple):
    """The size of a shortlist."""

    candidates: int  # target words per source word
    frequent: int  # target words allowed in every sentence


SIZES = [Size(24, 100), Size(48, 300), Size(100, 1000)]  # the smallest one that costs little BLEU is published


@dataclass(frozen=True, slots=True)
class Lexicon:
    """How likely each target word is, given a source word."""

    source: NDArray[np.int64]  # ascending
    target: NDArray[np.int64]  # of each source word, most likely first
    counts: NDArray[np.floating | np.integer]  # expected number of times that source is translated as target
    vocab_size: int

    def shortlist(self, size: Size) -> Shortlist:
        """Return the most likely translations of each word, and the most frequent target words."""
        rank = np.arange(len(self.source)) - np.searchsorted(self.source, self.source)
        best = rank < size.candidates
        candidates = np.full((self.vocab_size, size.candidates), EOS_ID)
        candidates[self.source[best], rank[best]] = self.target[best]
        frequency = np.bincount(self.target, self.counts, minlength=self.vocab_size)
        frequent = np.argsort(-frequency, kind="stable")[: size.frequent]
        return Shortlist(candidates, frequent)


def learn_shortlists(shards: Shards, vocab_size: int, vary: Vary | None = None) -> list[Lexicon]:
    """Learn the most likely translations of each word; of a large corpus, from a sample spread over it.

    With `vary` a second lexicon is learned from a variant of each pair, since the noisy sources that a model is trained
    on need candidates too. The two are separate, so that variants do not displace the candidates of the plain pairs.
    """
    plain = [[shards[pair] for pair in pairs] for pairs in _by_direction(shards, vocab_size)]
    varied = [list(map(vary, pairs)) for pairs in plain] if vary else []
    return [_learn(pairs, vocab_size) for pairs in (*plain, *varied)]


def _by_direction(shards: Shards, vocab_size: int) -> list[list[int]]:
    """Return a sample of pairs, in a list for each direction: a word has other translations in each of them."""
    sample = _sample(shards, vocab_size, MAX_LINKS)
    if not any(part.direction for part in shards.parts):
        return [sample]
    ends = list(accumulate(part.pairs for part in shards.parts))
    groups: dict[str, list[int]] = {}
    for pair in sample:
        groups.setdefault(shards.parts[bisect_right(ends, pair)].direction, []).append(pair)
    return list(groups.values())


def learning_seconds(shards: Shards, vocab_size: int, vary: Vary | None = None) -> float:
    """Return about how long `learn_shortlists` takes, from learning on a few pairs."""
    n_pairs = min(len(shards), MEASURED_PAIRS)
    began = time.perf_counter()
    pairs = [shards[pair] for pair in range(n_pairs)]
    for variant in (pairs, *([list(map(vary, pairs))] if vary else [])):
        _learn(variant, vocab_size)
    seconds = time.perf_counter() - began
    n_links = int(shards.lengths(0, n_pairs).astype(np.int64).prod(axis=1).sum())
    return seconds * min(len(shards) / n_pairs, MAX_LINKS / max(1, n_links))


def shortlist_of(lexicons: Sequence[Lexicon], size: Size) -> Shortlist:
    """Return the union of the shortlists of several lexicons."""
    first, *others = [lexicon.shortlist(size) for lexicon in lexicons]
    for other in others:
        first = first.union(other)
    return first


def _learn(pairs: list[tuple[Ids, Ids]], vocab_size: int) -> Lexicon:
    links, targets = _links(pairs, vocab_size)
    words, pair_of_link = np.unique(links, return_inverse=True)
    source, target = np.divmod(words, vocab_size)
    share = np.ones(len(words))  # probability of the target word given the source word
    for _ in range(ROUNDS):
        weight = share[pair_of_link]
        weight /= np.bincount(targets, weight)[targets]  # each target word is explained by the words of its source
        counts = np.bincount(pair_of_link, weight)
        share = counts / np.bincount(source, counts)[source]
    order = np.lexsort((-share, source))
    return Lexicon(source[order], target[order], counts[order], vocab_size)


def _sample(shards: Shards, vocab_size: int, max_links: int) -> list[int]:
    """Return pairs spread over the corpus, and further pairs with words that are rare among them."""
    searched = range(0, len(shards), math.ceil(len(shards) / MAX_PAIRS) or 1)
    lengths = shards.lengths(0, MAX_PAIRS).astype(np.int64)
    n_links = lengths.prod(axis=1).sum() * len(searched) / max(1, len(lengths))
    taken = list(searched[:: max(1, math.ceil(n_links / max_links))])
    if len(taken) == len(searched):
        return taken
    seen = np.zeros(vocab_size, dtype=np.int64)
    for pair in taken:
        seen[shards[pair][0]] += 1
    for pair in searched:
        source = shards[pair][0]
        if seen[source].min() < MIN_OCCURRENCES:
            taken.append(pair)
            seen[source] += 1
    return taken


def _links(pairs: list[tuple[Ids, Ids]], vocab_size: int) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Return each target word with each word of its source as one number, and the index of that target word."""
    links: list[NDArray[np.int64]] = []
    targets: list[NDArray[np.int32]] = []
    n_targets = 0
    for pair in pairs:
        source, target = (ids.astype(np.int64) for ids in pair)
        source = np.append(np.unique(source), UNK_ID)  # UNK stands for the empty word
        links.append((source * vocab_size + target[:, None]).ravel())
        targets.append(np.repeat(np.arange(n_targets, n_targets + len(target), dtype=np.int32), len(source)))
        n_targets += len(target)
    return np.concatenate(links), np.concatenate(targets)
