"""What the torch engine tells of a hypothesis: the attention of a layer, and the log-probability of each token."""

import random

import numpy as np
import pytest

from multihead.config.schema import SearchConfig
from multihead.inspection.record import record
from multihead.text.tokenizer import BOS_ID, EOS_ID
from multihead.translation.engine import Hypothesis, SearchResult, Segment
from multihead.translation.engines.torch_engine import TorchEngine
from multihead.translation.search import details as details_module
from tests.unit.translation.test_search import make
from tests.unit.translation.test_torch_engine import a_shortlist, segments

TOLERANCE = 1e-4  # of a weight and of a sum of log-probabilities
CONFIG = SearchConfig(max_extra=8, n_best=3)


def best(results: list[SearchResult], n: int = 3) -> list[Hypothesis]:
    return [hypothesis for result in results for hypothesis in result.best(n)]


def check_sums(hypotheses: list[Hypothesis]) -> None:
    for one in hypotheses:
        assert len(one.token_scores) == one.length
        assert sum(one.token_scores) == pytest.approx(one.log_prob, abs=TOLERANCE)


@pytest.mark.parametrize(
    "config",
    [
        CONFIG,
        SearchConfig(beam=1, max_extra=8),
        SearchConfig(max_extra=0),
        SearchConfig(no_repeat=1, max_extra=8),
        SearchConfig(sample=True, n_best=3, temperature=2.0, max_extra=8),
    ],
    ids=repr,
)
@pytest.mark.parametrize("n_models", [1, 2])
@pytest.mark.parametrize("with_shortlist", [False, True])
def test_token_scores_add_up_to_the_log_probability(config: SearchConfig, n_models: int, with_shortlist: bool) -> None:
    models = [make(seed) for seed in (4, 5)[:n_models]]
    engine = TorchEngine(models, a_shortlist() if with_shortlist else None)
    check_sums(best(engine.search(segments(20), config, details=True), config.n_best))


@pytest.mark.parametrize(
    "shape", [{}, {"norm": "pre"}, {"encoder_mixer": "lstm", "decoder_mixer": "convolution"}], ids=repr
)
@pytest.mark.parametrize("layer", [0, -1])
def test_attention_is_the_mean_of_the_heads_of_a_layer_between_pieces(shape: dict[str, object], layer: int) -> None:
    model = make(4, **shape)
    sentences = segments(12)
    found = TorchEngine([model], alignment_layer=layer).search(sentences, SearchConfig(max_extra=8), details=True)
    for sentence, result in zip(sentences, found, strict=True):
        hypothesis = result.best(1)[0]
        _, _, cross = record(model, [*sentence.ids, EOS_ID], [BOS_ID, *hypothesis.tokens])
        rows = cross[layer].mean(axis=0)[: len(hypothesis.tokens), :-1]
        assert hypothesis.attention is not None
        np.testing.assert_allclose(hypothesis.attention, rows / rows.sum(axis=1, keepdims=True), atol=1e-5)


def test_nothing_depends_on_how_many_hypotheses_and_logits_are_computed_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine, sentences = TorchEngine([make(4)], a_shortlist()), segments(20)
    expected = best(engine.search(sentences, CONFIG, details=True))
    monkeypatch.setattr(details_module, "MAX_HYPOTHESES", 3)
    monkeypatch.setattr(details_module, "MAX_LOGITS", 70)
    for one, other in zip(best(engine.search(sentences, CONFIG, details=True)), expected, strict=True):
        assert one.token_scores == pytest.approx(other.token_scores, abs=1e-5)
        np.testing.assert_allclose(one.attention, other.attention, atol=1e-5)  # type: ignore[arg-type]


def test_an_empty_sentence_has_details(monkeypatch: pytest.MonkeyPatch) -> None:
    found = TorchEngine([make(4)]).search([Segment([]), *segments(3)], CONFIG, details=True)
    check_sums(best(found))
    assert all(one.attention is not None and one.attention.shape == (len(one.tokens), 0) for one in found[0].best(3))


def test_details_change_nothing_else() -> None:
    engine, sentences = TorchEngine([make(4)]), segments(20)
    plain, detailed = (best(engine.search(sentences, CONFIG, details)) for details in (False, True))
    assert [(one.tokens, one.score) for one in plain] == [(one.tokens, one.score) for one in detailed]
    assert all(one.attention is None and not one.token_scores for one in plain)


def test_the_heads_of_a_dependency_tree_are_read() -> None:
    model, rng = make(4, positions="tree"), random.Random(1)
    sentences = [Segment([rng.randrange(4, 31) for _ in range(5)], [1, 2, 5, 2, 3]) for _ in range(4)]
    check_sums(best(TorchEngine([model]).search(sentences, CONFIG, details=True)))
