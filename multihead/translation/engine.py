"""What every engine takes and returns: ids in, hypotheses out.

A sentence's result must not depend on its neighbors in a batch. In another batch the same sums are added in another
order and differ in the last digits, which matters where two hypotheses are nearly equal; `SearchResult.near_tie` marks
such a sentence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from torch import Tensor

from multihead.config.schema import SearchConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A translation with what the model thinks of it."""

    tokens: list[int]  # without the end symbol
    log_prob: float  # of the tokens and the end symbol
    score: float  # log_prob / length penalty
    finished: bool = True  # False: cut off at the limit


# What a model says whose probabilities are undefined, as they are once training has gone wrong.
EMPTY_HYPOTHESIS = Hypothesis(tokens=[], log_prob=-math.inf, score=-math.inf, finished=False)


@dataclass(slots=True)
class SearchResult:
    """What the search has found for one sentence."""

    finished: list[Hypothesis] = field(default_factory=list)  # best first
    truncated: list[Hypothesis] = field(default_factory=list)  # live at the limit
    near_tie: bool = False  # a decision was too close to be the same in another batch

    def best(self, n: int) -> list[Hypothesis]:
        return (self.finished or self.truncated or [EMPTY_HYPOTHESIS])[:n]


def length_penalty(length: int | Tensor, alpha: float) -> float | Tensor:
    """§6.1, after Wu et al. (2016): ((5 + length) / 6)^alpha, the end symbol counted."""
    return ((5 + length) / 6) ** alpha


Segment = list[int]  # the ids of a sentence, without the end symbol


class Engine(Protocol):
    chunk_size: int  # sentences that it likes to be given at a time
    prefetch: int  # windows that it can search at a time, so that no core waits while another one is read or written

    def search(self, segments: Sequence[Segment], config: SearchConfig) -> list[SearchResult]:
        """What is found for each segment."""
