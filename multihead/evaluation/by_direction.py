"""BLEU of a model of several directions: of each of them, and the mean."""

from collections.abc import Sequence
from statistics import fmean

from multihead.config.directions import languages_of
from multihead.evaluation.metrics import Lines, bleu


def positions_of(directions: Sequence[str]) -> dict[str, list[int]]:
    """Return the positions of the sentences of each direction."""
    found: dict[str, list[int]] = {}
    for position, direction in enumerate(directions):
        found.setdefault(direction, []).append(position)
    return found


def bleu_by_direction(hypotheses: Lines, references: Lines, directions: Sequence[str]) -> dict[str, float]:
    """Return BLEU of each direction, by the direction of each sentence."""
    return {
        direction: bleu([hypotheses[n] for n in places], [references[n] for n in places], languages_of(direction)[1])
        for direction, places in sorted(positions_of(directions).items())
    }


def mean_bleu(hypotheses: Lines, references: Lines, directions: Sequence[str], target_lang: str) -> float:
    """Return BLEU, or the mean over several directions; `directions` is empty for one pair of languages."""
    if not directions:
        return bleu(hypotheses, references, target_lang)
    return fmean(bleu_by_direction(hypotheses, references, directions).values())
