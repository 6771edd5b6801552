"""The search that suits a model is chosen on validation text."""

from pathlib import Path

import numpy as np
import pytest

from multihead.config.schema import BEAM, TrainConfig
from multihead.inspection.attention_maps import word_links
from multihead.inspection.record import record_attention
from multihead.model.transformer import Transformer
from multihead.model.weights import load_model
from multihead.runs.tuning import Tuner, ValidationText, _best
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import EOS_ID, SubwordTokenizer
from multihead.translation.engine import Hypothesis, SearchResult, Segment
from tests.conftest import copy_or_reverse

Loaded = tuple[Transformer, SubwordTokenizer]


@pytest.fixture
def loaded(trained: Path) -> Loaded:
    return load_model(trained)[:2]


def validation_text(tokenizer: SubwordTokenizer, pairs: list[tuple[str, str]]) -> ValidationText:
    sources, references = zip(*pairs, strict=True)
    return ValidationText([Segment(tokenizer.encode(one)) for one in sources], list(sources), list(references), "", "")


def short_or_long(tokenizer: SubwordTokenizer, short: str, long: str) -> SearchResult:
    """Two hypotheses: the shorter one is likelier, the longer one likelier a token."""
    texts = ((short, -3.0), (long, -3.6))
    return SearchResult(finished=[Hypothesis(tokens=tokenizer.encode(text), log_prob=p, score=p) for text, p in texts])


def test_the_penalty_is_the_one_whose_translations_score_best(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where longer translations are right, the penalty grows until they come first; where not, it is the paper's."""
    short, long = "a b c d e f", "a b c d e f g h i"
    for reference, expected in ((short, 0.6), (long, 1.0)):
        tuner = Tuner(*loaded, validation_text(loaded[1], [("copy a", reference)] * 5))
        monkeypatch.setattr(tuner, "_search", lambda *_: [short_or_long(loaded[1], short, long)] * 5)
        assert tuner.best_alpha() == expected


def test_a_penalty_that_was_asked_for_is_taken(loaded: Loaded) -> None:
    tuner = Tuner(*loaded, validation_text(loaded[1], copy_or_reverse(5, seed=7)))
    assert tuner.tune(TrainConfig(alpha=0.3), []).search.alpha == 0.3


def test_a_penalty_that_changes_nothing_is_the_papers(loaded: Loaded) -> None:
    tuner = Tuner(*loaded, validation_text(loaded[1], copy_or_reverse(20, seed=7)))
    assert tuner.tune(TrainConfig(alpha="auto"), []).search.alpha == 0.6


def test_the_smallest_shortlist_that_costs_little_is_taken(loaded: Loaded, monkeypatch: pytest.MonkeyPatch) -> None:
    def shortlist() -> Shortlist:
        return Shortlist(np.full((9, 1), EOS_ID), np.arange(9))

    costly, cheap, larger = shortlist(), shortlist(), shortlist()
    scores = [(None, 50.0), (costly, 49.7), (cheap, 49.9), (larger, 50.0)]
    tuner = Tuner(*loaded, validation_text(loaded[1], copy_or_reverse(5, seed=7)))
    monkeypatch.setattr(tuner, "_score", lambda config, words: next(bleu for one, bleu in scores if one is words))
    assert tuner.tune(TrainConfig(), [costly, cheap, larger]).shortlist is cheap
    assert tuner.tune(TrainConfig(), [costly]).shortlist is None
    assert tuner.tune(TrainConfig(), []).shortlist is None


@pytest.mark.parametrize(
    ("lines", "split"),
    [
        (["One. Two.", "One. Two. Three.", "One."], False),
        (["One.", "Two.", "Three. Four."], True),
    ],
)
def test_a_model_of_several_sentences_a_line_is_not_split(loaded: Loaded, lines: list[str], split: bool) -> None:
    tuner = Tuner(*loaded, validation_text(loaded[1], [(line, line) for line in lines]))
    assert tuner.tune(TrainConfig(), []).search.split is split


def test_hypotheses_are_ranked_as_the_search_ranks_them(loaded: Loaded) -> None:
    one = short_or_long(loaded[1], "a b c d e f", "a b c d e f g h i")
    assert _best(one, 0.0) == one.finished[0].tokens
    assert _best(one, 1.5) == one.finished[1].tokens
    assert len(one.finished) <= BEAM


def test_the_alignment_layer_is_the_one_whose_words_follow_the_task(loaded: Loaded) -> None:
    """Of a model that copies and reverses, it is the layer that links each word to itself most often."""
    model, tokenizer = loaded
    pairs = copy_or_reverse(40, seed=7)
    tuner = Tuner(model, tokenizer, validation_text(tokenizer, pairs))
    layer = tuner.tune(TrainConfig(), []).search.alignment_layer
    n_right = [0, 0]
    for source, target in pairs:
        for number in range(2):
            args = tokenizer.encode(source), tokenizer.encode(target)
            maps = record_attention(model, tokenizer, *args, alignment_layer=number)
            links = word_links(maps.alignment())
            n_right[number] += sum(source.split()[one] == target.split()[other] for one, other, _ in links)
    assert layer == n_right.index(max(n_right))


def test_the_alignment_layer_takes_text_as_long_as_the_model(loaded: Loaded) -> None:
    model, tokenizer = loaded
    long = "copy " + "a " * 3 * model.config.max_len
    tuner = Tuner(model, tokenizer, validation_text(tokenizer, [("copy a", long), ("copy b", "b")]))
    assert tuner.best_alignment_layer() in (0, 1)
