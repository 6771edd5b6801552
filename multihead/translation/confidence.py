"""Confidence: how likely a translation is good, as measured on validation text when the model was published.

The log-probability of a translation alone misleads: what is high for one model is low for another. A published model
therefore stores, for ten levels of the mean log-probability of a token, the share of validation translations that were
good (`evaluation.calibration`), and a new translation gets the share of its level.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence

from multihead.config.schema import ModelSearch
from multihead.translation.engine import Hypothesis


def mean_log_prob(hypotheses: Sequence[Hypothesis]) -> float:
    """Return the mean log-probability of the tokens of a text, end symbols included."""
    return math.fsum(one.log_prob for one in hypotheses) / max(1, sum(one.length for one in hypotheses))


def confidence(search: ModelSearch, mean_log_prob: float) -> float | None:
    """Return the confidence at a mean log-probability, interpolated; None for a model without calibration."""
    levels, shares = search.confidence_levels, search.confidence
    if not levels:
        return None
    above = bisect_right(levels, mean_log_prob)
    if above == 0:
        return shares[0]
    if above == len(levels):
        return shares[-1]
    low, high = levels[above - 1], levels[above]
    weight = (mean_log_prob - low) / (high - low)
    return round((1 - weight) * shares[above - 1] + weight * shares[above], 3)
