"""Of several translations, the one that is most like the others (minimum Bayes risk; Kumar and Byrne, 2004).

The likeliest translation may be alone with a word that all the other likely ones say otherwise. They have votes, too:
the first one is then the one that has most in common with all of them, each weighed by its probability.
"""

import math
from collections import Counter
from collections.abc import Sequence

from multihead.search import Hypothesis

LONGEST = 4  # tokens that are compared at a time, as in BLEU

Runs = Counter[tuple[int, ...]]


def by_consensus(hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
    """The same hypotheses in another order; of those that are equally like the others, the better one is first."""
    runs = [runs_of(one.tokens) for one in hypotheses]
    weights = [math.exp(one.score) for one in hypotheses]

    def common(at: int) -> float:
        total = math.fsum(weight * likeness(runs[at], others) for weight, others in zip(weights, runs, strict=True))
        return round(total, 5)  # the last digits depend on the batch

    order = sorted(range(len(hypotheses)), key=lambda at: (-common(at), -hypotheses[at].score))
    return [hypotheses[at] for at in order]


def runs_of(tokens: Sequence[int]) -> Runs:
    """Every run of one to four tokens."""
    return Counter(
        tuple(tokens[at : at + size]) for size in range(1, LONGEST + 1) for at in range(len(tokens) - size + 1)
    )


def likeness(one: Runs, other: Runs) -> float:
    """The share of runs in common, of the one that has more (Wu et al., 2016: GLEU)."""
    return (one & other).total() / max(one.total(), other.total(), 1)
