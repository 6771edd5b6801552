"""How long sentences take on this machine: measured while the server runs, and used to bound its queue."""

import re
from collections.abc import Iterable, Sequence

SENTENCE_UNITS = 40  # what a sentence costs beside its characters: a short one takes as long as 40 more characters
FIRST_GUESS = 1 / 4000  # seconds per unit before anything is measured
DEFAULT_BEAM = 4
MEMORY = 0.98  # weight of what was measured before, per batch: about the last 50 batches count
_SENTENCE_END = re.compile(r"[.!?…\u3002\uff01\uff1f]\s|\n")

Kind = tuple[int, bool] | None  # the beam and whether words are aligned; None for a call of a function


def units(sentences: Iterable[str]) -> int:
    """Return the size of sentences, to which their time is about proportional."""
    return sum(SENTENCE_UNITS + len(sentence) for sentence in sentences)


def estimated_units(texts: Sequence[str]) -> int:
    """Return the approximate size of texts that are not yet split into sentences."""
    n_sentences = sum(1 + len(_SENTENCE_END.findall(text)) for text in texts)
    return sum(map(len, texts)) + SENTENCE_UNITS * n_sentences


class Pace:
    """The time per unit of each kind of search, as a running mean. Not thread-safe."""

    def __init__(self) -> None:
        self._sums: dict[Kind, tuple[float, float]] = {}  # seconds, units

    def seconds(self, n_units: float, kind: Kind) -> float:
        """Return how long units are expected to take on one core."""
        seconds, of_units = self._sums.get(kind) or self._guess(kind)
        return n_units * seconds / of_units

    def record(self, n_units: float, seconds: float, kind: Kind) -> None:
        """Add a measurement: units that took this long on one core."""
        before_seconds, before_units = self._sums.get(kind) or self._guess(kind)
        self._sums[kind] = MEMORY * before_seconds + seconds, MEMORY * before_units + n_units

    def _guess(self, kind: Kind) -> tuple[float, float]:
        """Return sums for a kind that was never measured: those of the usual search, times its beam."""
        seconds, of_units = self._sums.get((DEFAULT_BEAM, False)) or (0.1, 0.1 / FIRST_GUESS)
        beam, details = kind or (DEFAULT_BEAM, True)
        slowdown = max(1.0, beam / DEFAULT_BEAM) * (1.5 if details else 1.0)
        return 0.1 * slowdown, 0.1 * of_units / seconds
