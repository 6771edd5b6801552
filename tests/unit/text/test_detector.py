"""The detector of a model's own languages: it learns from lines, and is cautious where they are alike."""

import random

import numpy as np
import pytest

from multihead.text.detector import MIN_MARGIN, N_BUCKETS, LanguageDetector
from tests import scripts

ENGLISH = "the house of my friend is near the river and we often walk there in the evening when it is warm".split()
GERMAN = "das Haus meines Freundes liegt am Fluss und wir gehen oft abends dorthin wenn es draußen warm ist".split()


def lines(words: list[str], n: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    return [" ".join(rng.choices(words, k=8)) for _ in range(n)]


@pytest.fixture(scope="module")
def detector() -> LanguageDetector:
    learned = LanguageDetector.learn(["en", "de"], [lines(ENGLISH, 300, 1), lines(GERMAN, 300, 2)])
    return learned.calibrated([lines(ENGLISH, 200, 3), lines(GERMAN, 200, 4)])


def test_single_words_are_recognized(detector: LanguageDetector) -> None:
    words = [(word, "en") for word in ENGLISH] + [(word, "de") for word in GERMAN]
    found = [detector.rank(word)[0][0] for word, _ in words]
    assert sum(one == language for one, (_, language) in zip(found, words, strict=True)) >= 0.95 * len(words)


def test_probabilities_add_up_and_the_likeliest_comes_first(detector: LanguageDetector) -> None:
    ranked = detector.rank("we often walk there")
    assert ranked[0][0] == "en" and ranked[0][1] > 0.99
    assert sum(share for _, share in ranked) == pytest.approx(1)


def test_text_in_the_other_language_is_reported_and_its_own_is_not(detector: LanguageDetector) -> None:
    assert all(detector.looks_like(line, "de", rather_than="en") for line in lines(GERMAN, 50, 5))
    assert not any(detector.looks_like(line, "de", rather_than="en") for line in lines(ENGLISH, 50, 6))


@pytest.mark.parametrize("text", ["", "   ", "123 456", "!?", "\ud800"])
def test_a_text_without_letters_looks_like_nothing(detector: LanguageDetector, text: str) -> None:
    assert not detector.looks_like(text, "de", rather_than="en")
    assert not detector.looks_like(text, "en", rather_than="de")


def test_capitals_and_digits_change_nothing(detector: LanguageDetector) -> None:
    scores, _ = detector.scores(["we walk there", "WE WALK 17 THERE!"])
    assert np.array_equal(scores[0], scores[1])


def test_a_text_scores_the_same_alone_and_among_others(detector: LanguageDetector) -> None:
    texts = [*lines(ENGLISH, 20, 7), "", *lines(GERMAN, 20, 8)]
    together, _ = detector.scores(texts)
    alone = np.concatenate([detector.scores([text])[0] for text in texts])
    assert np.allclose(together, alone, rtol=1e-5)


def test_the_threshold_rises_where_languages_are_alike() -> None:
    alike = LanguageDetector.learn(["a", "b"], [lines(ENGLISH, 300, 1), lines(ENGLISH, 300, 2)])
    assert LanguageDetector.learn(["a", "b"], [["x"], ["y"]]).calibrated([["x"], ["y"]]).threshold == MIN_MARGIN
    mixed = [lines(ENGLISH, 100, 3) + ["das Haus"] * 2] * 2
    learned = LanguageDetector.learn(["en", "de"], [lines(ENGLISH, 300, 1), lines(GERMAN, 300, 2)])
    assert learned.calibrated(mixed).threshold > MIN_MARGIN
    assert abs(float(alike.margins(["the house"], 0)[0])) < MIN_MARGIN


@pytest.mark.parametrize("language", scripts.TRANSLATIONS)
def test_every_script_is_told_from_english(language: str) -> None:
    sources, targets = zip(*scripts.pairs_with(language), strict=True)
    detector = LanguageDetector.learn(["en", "xx"], [sources, targets])
    assert all(detector.rank(text)[0][0] == "xx" for text in targets)


def test_detectors_of_several_models_are_joined(detector: LanguageDetector) -> None:
    other = LanguageDetector.learn(
        ["de", "fr"], [lines(GERMAN, 100, 1), ["la maison de mon ami est près de la rivière"] * 50]
    )
    joined = detector.for_languages(["en", "de", "fr"], [other])
    assert joined is not None
    assert joined.rank("la maison de mon ami")[0][0] == "fr"
    assert joined.rank("das Haus meines Freundes")[0][0] == "de"
    assert detector.for_languages(["en", "es"], [other]) is None


def test_a_table_takes_64_kilobytes_a_language(detector: LanguageDetector) -> None:
    assert detector.table().nbytes == 2 * 2 * N_BUCKETS
    again = LanguageDetector.from_table(detector.languages, detector.table(), detector.threshold)
    assert np.array_equal(again.log_probs, detector.log_probs)
