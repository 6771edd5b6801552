"""Calibrate confidence: which share of the translations of a validation text is good at which log-probability."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from multihead.errors import UserError

GOOD_CHRF = 60.0  # a translation with a higher sentence chrF counts as good
N_LEVELS = 10
MIN_PAIRS = 50  # from fewer pairs nothing can be said

Levels = tuple[float, ...]  # mean log-probabilities per token, rising
Shares = tuple[float, ...]  # of good translations, rising


def calibrate(
    mean_log_probs: Sequence[float], translations: Sequence[str], references: Sequence[str]
) -> tuple[Levels, Shares]:
    """Return levels of the mean log-probability per token, and the share of good translations at each."""
    if len(translations) < MIN_PAIRS:
        raise UserError(f"confidence cannot be calibrated on {len(translations)} pairs; {MIN_PAIRS} are needed")
    return levels_and_shares(np.array(mean_log_probs), are_good(translations, references))


def levels_and_shares(log_probs: NDArray[np.float64], is_good: NDArray[np.float64]) -> tuple[Levels, Shares]:
    """Divide translations into levels of equal size, and return the mean and the share of good ones of each.

    Neighbors whose shares fall are merged (isotonic regression), since a more likely translation is not worse.
    """
    levels: list[tuple[float, float, int]] = []  # mean log-probability, share of good ones, number of translations
    for part in np.array_split(np.argsort(log_probs, kind="stable"), N_LEVELS):
        levels.append((float(log_probs[part].mean()), float(is_good[part].mean()), len(part)))
        while len(levels) > 1 and not all(low < high for low, high in zip(*map(_rounded, levels[-2:]), strict=True)):
            levels.append(_merged(levels.pop(), levels.pop()))
    means, shares = zip(*map(_rounded, levels), strict=True)
    return means, shares


def _rounded(level: tuple[float, float, int]) -> tuple[float, float]:
    return round(level[0], 4), round(level[1], 3)


def _merged(one: tuple[float, float, int], other: tuple[float, float, int]) -> tuple[float, float, int]:
    n = one[2] + other[2]
    return (one[0] * one[2] + other[0] * other[2]) / n, (one[1] * one[2] + other[1] * other[2]) / n, n


def calibration_error(confidences: Sequence[float], translations: Sequence[str], references: Sequence[str]) -> float:
    """Return the expected calibration error: the mean gap between confidence and share of good ones in equal bins."""
    values, is_good = np.array(confidences), are_good(translations, references)
    bins = np.array_split(np.argsort(values, kind="stable"), N_LEVELS)
    return float(sum(abs(values[part].sum() - is_good[part].sum()) for part in bins) / len(values))


def are_good(translations: Sequence[str], references: Sequence[str]) -> NDArray[np.float64]:
    """Return 1 for each translation that is close to its reference, 0 for the others."""
    from sacrebleu.metrics.chrf import CHRF

    metric = CHRF()
    scores = [
        metric.sentence_score(*pair).score for pair in zip(translations, [[one] for one in references], strict=True)
    ]
    return (np.array(scores) > GOOD_CHRF).astype(float)
