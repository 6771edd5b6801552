"""The language detector of a prepared corpus, and the pairs and files whose sides are in the wrong language."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from multihead.concurrency import map_in_processes
from multihead.config.directions import Languages
from multihead.config.schema import DataConfig
from multihead.data.cleaning import CHUNK_PAIRS, MAX_EXAMPLES, Example, chunks
from multihead.data.parallel_text import Pair
from multihead.data.spool import Spool, SpoolSegment
from multihead.errors import UserError
from multihead.text.dependency_trees import strip_tree
from multihead.text.detector import LanguageDetector
from multihead.text.language import name_of

LEARNING_PAIRS = 50_000  # spread evenly over a corpus
MIN_LANGUAGES = 2  # to be told apart
MIN_PAIRS = 500  # from which languages can be learned
CALIBRATION = 10  # one pair in so many is left for the threshold
MIN_ACCURACY = 0.8  # on those pairs, which may be noisy; sides that are more alike are not told apart
DROP_MARGIN = 0.75  # nats a character; far above the threshold of warnings, so that correct pairs are kept
SWAPPED_SHARE = 0.5  # of the pairs of a corpus


def learn_detector(spool: Spool, config: DataConfig) -> LanguageDetector | None:
    """Learn to tell the languages of a corpus apart; None if they are unknown, the same, or not different enough.

    The largest corpus decides which side is in which language; any other one with swapped sides is refused.
    """
    if len(set(config.languages)) < len(config.languages) or not all(config.languages):
        return None
    samples = _samples(spool, config)
    largest = max(samples, key=lambda number: len(samples[number]))
    detector = _learn(config.languages, samples[largest])
    if not detector or len(samples) == 1:
        return detector
    for number, pairs in samples.items():
        if _share_swapped(detector, pairs) > SWAPPED_SHARE:
            source, target = (name_of(language) for language in config.languages)
            raise UserError(
                f"the sides of corpus {number + 1} are swapped: in the largest corpus the source is {source} and its "
                f"translation {target}, here it is the other way round"
            )
    return _learn(config.languages, [pair for pairs in samples.values() for pair in pairs])


def learn_detector_of_several(spool: Spool, languages: Sequence[Languages]) -> LanguageDetector | None:
    """Learn to tell all languages apart, of which each corpus has two; refuse a corpus with swapped sides."""
    samples = _samples(spool)
    by_language: dict[str, list[str]] = {}
    for corpus, pairs in samples.items():
        for language, side in zip(languages[corpus], zip(*pairs, strict=True), strict=True):
            by_language.setdefault(language, []).extend(side)
    if len(by_language) < MIN_LANGUAGES or min(map(len, by_language.values())) < MIN_PAIRS:
        return None
    names = list(by_language)
    held_out = [texts[::CALIBRATION] for texts in by_language.values()]
    learned = [[text for n, text in enumerate(texts) if n % CALIBRATION] for texts in by_language.values()]
    first = LanguageDetector.learn(names, learned)
    _refuse_swapped(first, languages, samples)
    # Once more without the texts that turn out to be in another language.
    detector = LanguageDetector.learn(names, [_in_language(first, texts, n) for n, texts in enumerate(learned)])
    if min(float((detector.margins(texts, n) < 0).mean()) for n, texts in enumerate(held_out)) < MIN_ACCURACY:
        return None
    return detector.calibrated([_in_language(detector, texts, n) for n, texts in enumerate(held_out)])


def _in_language(detector: LanguageDetector, texts: Sequence[str], language: int) -> list[str]:
    """Return the texts that are not clearly in another language."""
    wrong = detector.margins(texts, language) > max(DROP_MARGIN, 2 * detector.threshold)
    return [text for text, is_wrong in zip(texts, wrong, strict=True) if not is_wrong]


def _refuse_swapped(
    detector: LanguageDetector, languages: Sequence[Languages], samples: Mapping[int, list[Pair]]
) -> None:
    for corpus, pairs in samples.items():
        own = detector.for_languages(languages[corpus])
        if own and len(set(own.languages)) > 1 and _share_swapped(own, pairs) > SWAPPED_SHARE:
            source, target = map(name_of, languages[corpus])
            raise UserError(
                f"the sides of corpus {corpus + 1} are swapped: its source is {target} and its translation {source}, "
                f"but its languages are given as {source} and {target}"
            )


def _samples(spool: Spool, config: DataConfig | None = None) -> dict[int, list[Pair]]:
    """Return pairs of each corpus; one that has only pairs of earlier corpora is left out."""
    numbers = sorted({segment.corpus for segment in spool.segments})
    return {number: pairs for number in numbers if (pairs := _sample(spool, number, config))}


def _sample(spool: Spool, corpus: int, config: DataConfig | None = None) -> list[Pair]:
    """Return pairs of a corpus, spread over its segments."""
    segments = [segment for segment in spool.segments if segment.corpus == corpus]
    per_segment = -(-LEARNING_PAIRS // len(segments))
    pairs = [pair for segment in segments for pair in islice(spool.read(segment), per_segment)]
    return [(strip_tree(source), target) for source, target in pairs] if config and config.tree else pairs


def _learn(languages: Sequence[str], pairs: list[Pair]) -> LanguageDetector | None:
    """Learn from pairs, and once more without those that turn out to be in the wrong language."""
    if len(pairs) < MIN_PAIRS:
        return None
    held_out = pairs[::CALIBRATION]
    learned = [pair for n, pair in enumerate(pairs) if n % CALIBRATION]
    first = LanguageDetector.learn(languages, list(zip(*learned, strict=True)))
    correct = [pair for pair, wrong in zip(learned, wrong_language(first, learned), strict=True) if not wrong]
    if len(correct) < len(pairs) / 2:
        return None
    detector = LanguageDetector.learn(languages, list(zip(*correct, strict=True)))
    sides = list(zip(*held_out, strict=True))
    if min(float((detector.margins(side, n) < 0).mean()) for n, side in enumerate(sides)) < MIN_ACCURACY:
        return None
    wrong = wrong_language(detector, held_out)
    return detector.calibrated([[text for text, flag in zip(side, wrong, strict=True) if not flag] for side in sides])


def _share_swapped(detector: LanguageDetector, pairs: list[Pair]) -> float:
    margins = [detector.margins(side, n) for n, side in enumerate(zip(*pairs[:CHUNK_PAIRS], strict=True))]
    return float((np.minimum(*margins) > 0).mean())


def wrong_language(detector: LanguageDetector, pairs: Sequence[Pair]) -> NDArray[np.bool_]:
    """Return for each pair whether a side is clearly in the language of the other one."""
    margins = [detector.margins(side, n) for n, side in enumerate(zip(*pairs, strict=True))]
    return np.maximum(*margins) > max(DROP_MARGIN, 2 * detector.threshold)


class _Flagged(NamedTuple):
    flags: NDArray[np.bool_]
    examples: list[Example]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Flagger:
    spool: Spool
    detectors: Sequence[LanguageDetector]  # of the languages of each corpus, or one of all corpora
    config: DataConfig

    def flag(self, segment: SpoolSegment) -> _Flagged:
        """Return which pairs of a segment, in the order of its file, are in the wrong language."""
        flags, examples = [], list[Example]()
        detector = self.detectors[segment.corpus if len(self.detectors) > 1 else 0]
        for chunk in chunks(self.spool.read_all(segment)):
            pairs = [(strip_tree(source), target) for source, target in chunk] if self.config.tree else chunk
            flags.append(wrong_language(detector, pairs))
            wrong = islice(np.flatnonzero(flags[-1]), MAX_EXAMPLES)
            examples += [Example("language", *pairs[n]) for n in wrong]
        return _Flagged(np.concatenate(flags), examples[:MAX_EXAMPLES])


def flag_wrong_languages(
    spool: Spool, detector: LanguageDetector, config: DataConfig, languages: Sequence[Languages] = ()
) -> tuple[int, list[Example]]:
    """Flag the pairs of the spool in the wrong language like duplicates; return how many, and some of them.

    `languages` are those of each corpus, if they differ.
    """
    own = [one for pair in languages if (one := detector.for_languages(pair))]
    flagger = _Flagger(spool=spool, detectors=own or [detector], config=config)
    flags, n_flagged, examples = spool.flags(), 0, list[Example]()
    for segment, found in zip(spool.segments, map_in_processes(flagger.flag, spool.segments), strict=True):
        part = flags[segment.first : segment.first + segment.n_pairs]
        n_flagged += int((found.flags & ~part).sum())
        part |= found.flags
        examples += found.examples
    flags.flush()
    return n_flagged, examples[:MAX_EXAMPLES]
