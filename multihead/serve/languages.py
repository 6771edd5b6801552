"""Detection of the language of a text on this machine."""

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import Field

from multihead.text.detector import LanguageDetector

DETECTION_CHARACTERS = 1000  # the start of a text is enough to detect its language


@dataclass(frozen=True, slots=True)
class Detection:
    """A language and its confidence in percent."""

    language: str
    confidence: Annotated[float, Field(ge=0, le=100)]


class ModelDetector:
    """Identify which of the served languages a text is in, as the models have learned from their own text."""

    unknown: Sequence[str] = ()

    def __init__(self, detector: LanguageDetector) -> None:
        self._detector = detector

    def rank(self, text: str) -> list[Detection]:
        """Return the served languages, the most likely first; a single one with confidence 0 if none is detected."""
        if not has_letters(text):
            return [Detection(self._detector.languages[0], 0.0)]
        ranked = self._detector.rank(text[:DETECTION_CHARACTERS])
        return [Detection(language, round(100 * share, 1)) for language, share in ranked]


def model_detector(detectors: Sequence[LanguageDetector | None], codes: Sequence[str]) -> ModelDetector | None:
    """Return the detector of the served languages; None unless every model has one."""
    known = [detector for detector in detectors if detector]
    if len(known) < len(detectors) or not known:
        return None
    joined = known[0].for_languages(codes, known[1:])
    return ModelDetector(joined) if joined else None


class Detector:
    """Identify which of the served languages a text is in with py3langid, for models without their own detector.

    A regional code such as pt-BR stands for its base language (pt), unless several served codes share it. If the
    detector does not know one of the languages, nothing is detected: any text could be in that language.
    """

    def __init__(self, codes: list[str]) -> None:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier

        self._identifier: Any = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
        labels = _labels(codes, frozenset(self._identifier.labels))
        self._code_of = {label: code for code, label in labels.items()}
        self._first = codes[0]
        self.unknown = [code for code in codes if code not in labels]
        if len(labels) > 1:
            self._identifier.set_languages(list(self._code_of))

    def rank(self, text: str) -> list[Detection]:
        """Return the served languages, the most likely first; a single one with confidence 0 if none is detected."""
        if self.unknown or len(self._code_of) < 2 or not has_letters(text):
            return [Detection(self._first, 0.0)]
        ranked = self._identifier.rank(text[:DETECTION_CHARACTERS])
        return [Detection(self._code_of[label], round(100 * share, 1)) for label, share in ranked]


def has_letters(text: str) -> bool:
    return any(character.isalpha() for character in text)


def _labels(codes: list[str], known: frozenset[str]) -> dict[str, str]:
    """Return the detector's label for each code that it can distinguish from the others."""
    labels = {code: code if code in known else re.split("[-_]", code)[0] for code in codes}
    shared = Counter(labels.values())
    return {code: label for code, label in labels.items() if label in known and shared[label] == 1}
