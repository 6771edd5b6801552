"""What search engines take and return: token ids in, scored hypotheses out.

The translation of a sentence must not depend on the other sentences of its batch. Another batch adds the same numbers
in another order, which changes the last digits of a score; where two hypotheses are nearly equal, that can change the
result. `SearchResult.near_tie` flags such sentences.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol, Self, TypeVar, overload

import numpy as np
from numpy.typing import NDArray

from multihead.config.schema import SearchConfig
from multihead.text.dependency_trees import NO_HEAD


@dataclass(frozen=True, slots=True)
class Segment:
    """The source ids of a sentence, without the end symbol; with a dependency tree, also the head of each token."""

    ids: list[int]
    heads: list[int] | None = None
    in_capitals: bool = field(default=False, compare=False)  # the text was; the ids are of its lower-case form

    def shortened(self, n_tokens: int) -> "Segment":
        """Return the first tokens; one whose head is cut off hangs from the end symbol."""
        if self.heads is None:
            return Segment(self.ids[:n_tokens])
        heads = [head if head < n_tokens else NO_HEAD for head in self.heads[:n_tokens]]
        return Segment(self.ids[:n_tokens], heads)


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A candidate translation and its score."""

    tokens: list[int]  # without the end symbol
    log_prob: float  # of the tokens and the end symbol
    score: float  # log_prob / length penalty
    finished: bool = True  # False if it was truncated at the length limit
    # Set for the best hypotheses of a search with `details`:
    attention: NDArray[np.float32] | None = field(default=None, compare=False)  # tokens by source tokens; rows sum to 1
    token_scores: list[float] = field(default_factory=list)  # log-probabilities of the tokens and of the end symbol

    @property
    def length(self) -> int:
        """Number of tokens, including the end symbol."""
        return len(self.tokens) + self.finished


# The result for a model whose probabilities are NaN, for example after training diverged.
EMPTY_HYPOTHESIS = Hypothesis(tokens=[], log_prob=-math.inf, score=-math.inf, finished=False)


@dataclass(slots=True)
class SearchResult:
    """The hypotheses of one sentence."""

    finished: list[Hypothesis] = field(default_factory=list)  # best first
    truncated: list[Hypothesis] = field(default_factory=list)  # still unfinished at the length limit
    near_tie: bool = False  # a decision was so close that another batch might decide differently

    def best(self, n: int) -> list[Hypothesis]:
        """Return the `n` best hypotheses, truncated ones only if none finished; always at least one."""
        return (self.finished or self.truncated or [EMPTY_HYPOTHESIS])[:n]


class Engine(Protocol):
    """Anything that searches translations of token ids."""

    chunk_size: int  # sentences to pass to one call of `search`
    prefetch: int  # calls of `search` to run at the same time, so that no core idles while text is read or written
    concurrent_searches: int  # calls of `search` that do not wait for each other, each on one core; 1: it uses all
    merges_sentences: bool  # it is much faster with many sentences than with one

    def search(self, segments: Sequence[Segment], config: SearchConfig, details: bool = False) -> list[SearchResult]:
        """Return the result for each segment, in order.

        With `details`, the `n_best` hypotheses have the attention of the model's alignment layer and token scores.
        """


class _Array(Protocol):
    """A tensor or an array; named by its operations so that this module needs neither library."""

    def __radd__(self, other: int, /) -> Self: ...
    def __truediv__(self, other: int, /) -> Self: ...
    def __pow__(self, exponent: float, /) -> Self: ...


Array = TypeVar("Array", bound=_Array)


@overload
def length_penalty(length: int, alpha: float) -> float: ...
@overload
def length_penalty(length: Array, alpha: float) -> Array: ...
def length_penalty(length: int | Array, alpha: float) -> float | Array:
    """Return ((5 + length) / 6)^alpha, as in §6.1 and Wu et al. (2016); the length includes the end symbol."""
    penalty: float | Array = ((5 + length) / 6) ** alpha
    return penalty
