"""Which of a model's own languages a text is in, learned from the text that the model was trained on.

Naive Bayes over hashed character n-grams: it knows every language that somebody trains on, takes 64 KB for each of
them, and is right about most single words. Shapes: L languages, N texts, P characters of all texts.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Self

import numpy as np
from numpy.typing import NDArray

N_BUCKETS = 1 << 15
MAX_ORDER = 4  # characters of the longest n-gram
MAX_CHARACTERS = 1000  # of a text; more are not needed to recognize its language
SMOOTHING = 0.5  # added to every count
SLACK = 8  # characters added to the length of a text, because short texts vary more
FALSE_ALARMS = 0.005  # share of correct texts that may look as if they were in the other language
MIN_MARGIN = 0.25  # nats a character; below it languages are not told apart
TEMPERATURE = MAX_ORDER  # each character is counted in as many n-grams, so evidence is overstated
BATCH = 2000  # texts that are scored at a time

Margins = NDArray[np.float32]

# What languages share: white space, digits, punctuation. Marks of Indic scripts are kept, as they are parts of words.
_NOT_LETTERS = re.compile(
    "[\\s\\d\x00-@\\[-`{-\xa9\xab-\xb4\xb6-\xb9\xbb-\xbf\xd7\xf7\u2000-\u206f\u3000-\u3004\u3008-\u3020]+"
)


@dataclass(frozen=True, slots=True, eq=False)
class LanguageDetector:
    """The log-probabilities of n-grams in each language."""

    languages: list[str]
    log_probs: NDArray[np.float32]  # L N_BUCKETS + 1; the last bucket is that of no n-gram
    threshold: float = MIN_MARGIN  # smallest margin at which a text is reported to be in another language

    @classmethod
    def learn(cls, languages: Sequence[str], texts: Sequence[Iterable[str]]) -> Self:
        """Learn from texts of each language."""
        counts = np.full((len(languages), N_BUCKETS), SMOOTHING)
        for row, lines in zip(counts, texts, strict=True):
            iterator = iter(lines)
            while batch := list(islice(iterator, BATCH)):
                for buckets in _buckets(*_letters(batch)):
                    row += np.bincount(buckets, minlength=N_BUCKETS + 1)[:N_BUCKETS]
        return cls.from_table(languages, np.log(counts / counts.sum(axis=1, keepdims=True)).astype(np.float16))

    @classmethod
    def from_table(cls, languages: Sequence[str], table: NDArray[np.float16], threshold: float = MIN_MARGIN) -> Self:
        """Return the detector with these log-probabilities (L N_BUCKETS)."""
        return cls(list(languages), np.pad(table.astype(np.float32), ((0, 0), (0, 1))), threshold)

    def table(self) -> NDArray[np.float16]:
        """Return the log-probabilities as they are stored (L N_BUCKETS)."""
        return self.log_probs[:, :N_BUCKETS].astype(np.float16)

    def calibrated(self, texts: Sequence[Sequence[str]]) -> Self:
        """Return a detector whose threshold gives few false alarms on texts of each language."""
        margins = [self.margins(lines, n) for n, lines in enumerate(texts) if lines]
        worst = max((float(np.quantile(margin, 1 - FALSE_ALARMS)) for margin in margins), default=0.0)
        return replace(self, threshold=max(MIN_MARGIN, worst))

    def margins(self, texts: Sequence[str], language: int) -> Margins:
        """Return by how many nats a character each text is more likely in another language than in the given one."""
        scores, lengths = self.scores(texts)
        others = np.delete(scores, language, axis=1).max(axis=1)
        margins: Margins = (others - scores[:, language]) / (lengths + SLACK)
        return margins

    def scores(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return the log-likelihood of each text in each language (N L), and its number of characters."""
        parts = [self._scores(texts[start : start + BATCH]) for start in range(0, len(texts), BATCH)]
        scores, lengths = zip(*parts, strict=True) if parts else ([np.zeros((0, len(self.languages)))], [np.zeros(0)])
        return np.concatenate(scores).astype(np.float32), np.concatenate(lengths).astype(np.int64)

    def _scores(self, texts: Sequence[str]) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        points, lengths = _letters(texts)
        sums = np.zeros((len(self.languages), len(points)), dtype=np.float32)  # L P
        for buckets in _buckets(points, lengths):
            for row, log_probs in zip(sums, self.log_probs, strict=True):
                row[: len(buckets)] += log_probs[buckets]
        return np.add.reduceat(sums, np.cumsum(lengths) - lengths, axis=1).T, lengths

    def for_languages(self, languages: Sequence[str], others: "Sequence[LanguageDetector]" = ()) -> Self | None:
        """Return a detector of some languages, joined from several ones; None if one language is in none of them."""
        detectors: list[LanguageDetector] = [self, *others]
        rows = {
            language.lower(): row
            for detector in reversed(detectors)
            for language, row in zip(detector.languages, detector.log_probs, strict=True)
        }
        if not all(language.lower() in rows for language in languages):
            return None
        threshold = max(detector.threshold for detector in detectors)
        return replace(
            self,
            languages=list(languages),
            log_probs=np.stack([rows[language.lower()] for language in languages]),
            threshold=threshold,
        )

    def rank(self, text: str) -> list[tuple[str, float]]:
        """Return each language with its probability, the most likely first."""
        scores = self.scores([text])[0][0] / TEMPERATURE
        shares = np.exp(scores - scores.max())
        ranked = zip(self.languages, (shares / shares.sum()).tolist(), strict=True)
        return sorted(ranked, key=lambda one: -one[1])

    def looks_like(self, text: str, language: str, rather_than: str) -> bool:
        """Return whether a text is clearly in the first of two languages."""
        one, other = self.languages.index(language), self.languages.index(rather_than)
        scores, lengths = self.scores([text])
        return bool(scores[0, one] - scores[0, other] > self.threshold * (lengths[0] + SLACK))

    def language_other_than(self, expected: Sequence[str], text: str) -> str | None:
        """Return the language of a text if it is clearly in none of the expected ones."""
        others = [language for language in self.languages if language not in expected]
        known = [language for language in expected if language in self.languages]
        if not others or not known:
            return None
        scores, lengths = self.scores([text])
        score_of = dict(zip(self.languages, scores[0].tolist(), strict=True))
        best = max(others, key=score_of.__getitem__)
        margin = score_of[best] - max(score_of[language] for language in known)
        return best if margin > self.threshold * (lengths[0] + SLACK) else None


def _letters(texts: Sequence[str]) -> tuple[NDArray[np.uint32], NDArray[np.int64]]:
    """Return the characters of all texts (P), each between spaces, and how many each text has."""
    lines = [f" {_NOT_LETTERS.sub(' ', text[:MAX_CHARACTERS].lower()).strip()} " for text in texts]
    points = np.frombuffer("".join(lines).encode("utf-32-le", "surrogatepass"), dtype="<u4")
    return points, np.array([len(line) for line in lines])


def _buckets(points: NDArray[np.uint32], lengths: NDArray[np.int64]) -> Iterator[NDArray[np.uint32]]:
    """Yield the buckets of the n-grams of each order by their first character; N_BUCKETS where a text has none."""
    left = np.repeat(np.cumsum(lengths), lengths) - np.arange(
        len(points)
    )  # characters from here to the end of the text
    hashes = points
    for order in range(1, MAX_ORDER + 1):
        if order > 1:
            hashes = hashes[:-1] * np.uint32(0x01000193) + points[order - 1 :]
        mixed = (hashes + np.uint32(order)) * np.uint32(0x9E3779B1)
        buckets = (mixed ^ (mixed >> np.uint32(15))) * np.uint32(0x85EBCA6B) >> np.uint32(17)
        yield np.where(left[: len(buckets)] >= order, buckets, np.uint32(N_BUCKETS))
