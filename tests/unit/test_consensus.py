"""Of several translations, the one that is most like the others."""

from collections import Counter

import pytest

import multihead
from multihead.config import ConfigError, SearchConfig, search_config
from multihead.consensus import by_consensus, likeness, runs_of
from multihead.search import Hypothesis


def hypothesis(tokens: str, score: float) -> Hypothesis:
    return Hypothesis(tokens=[ord(letter) for letter in tokens], log_prob=score, score=score)


def in_order(*hypotheses: Hypothesis) -> list[str]:
    return ["".join(map(chr, one.tokens)) for one in by_consensus(hypotheses)]


def test_what_most_agree_on_comes_before_what_is_likeliest() -> None:
    likeliest, *others = hypothesis("axyz", -1.0), hypothesis("abcd", -1.1), hypothesis("abcde", -1.1)
    assert in_order(likeliest, *others)[0] in ("abcd", "abcde")
    assert in_order(likeliest, *others)[-1] == "axyz"


def test_the_improbable_have_little_to_say() -> None:
    assert in_order(hypothesis("axyz", -0.1), hypothesis("abcd", -5.0), hypothesis("abcde", -5.0))[0] == "axyz"


def test_where_nothing_is_in_common_the_likeliest_is_first() -> None:
    assert in_order(hypothesis("ab", -2.0), hypothesis("cd", -1.0), hypothesis("ef", -3.0)) == ["cd", "ab", "ef"]


@pytest.mark.parametrize("given", [[], ["a"], ["", ""], ["", "a", "ab"]])
def test_nothing_is_lost(given: list[str]) -> None:
    assert sorted(in_order(*(hypothesis(tokens, -1.0) for tokens in given))) == sorted(given)


def test_likeness_is_the_share_of_common_runs() -> None:
    """abc has the runs a b c ab bc abc; of them abd has a b ab."""
    assert runs_of([1, 2, 1]) == Counter({(1,): 2, (2,): 1, (1, 2): 1, (2, 1): 1, (1, 2, 1): 1})
    assert likeness(runs_of([1, 2, 3]), runs_of([1, 2, 4])) == 3 / 6
    assert likeness(runs_of([1, 2, 3]), runs_of([1])) == 1 / 6


HARD = ["The government announced new measures on Tuesday.", "A screw is tightened with a wrench.", "Good morning!"]


def test_a_translation_by_consensus_is_what_the_beam_agrees_on() -> None:
    translator = multihead.load("en-de", engine="torch")
    beams = translator.engine.search(
        [translator.tokenizer.encode(text) for text in HARD], search_config(beam=8, n_best=8)
    )
    agreed = [translator.tokenizer.decode(by_consensus(beam.best(8))[0].tokens) for beam in beams]
    chosen = translator.translate(HARD, beam=8, n_best=2, consensus=True)
    assert [one.text for one in chosen] == agreed
    assert all(len(one.alternatives) == 1 for one in chosen)


def test_a_consensus_needs_several() -> None:
    with pytest.raises(ConfigError, match="a consensus needs a beam of at least 3, got 2"):
        SearchConfig(beam=2, consensus=True)
