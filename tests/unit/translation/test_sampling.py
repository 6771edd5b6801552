"""Sampling against the model's distribution."""

import math

import pytest
import torch
from torch import Tensor

from multihead.config.schema import SearchConfig
from multihead.text.tokenizer import BOS_ID, EOS_ID
from multihead.translation.engine import Hypothesis
from multihead.translation.search.beam import search
from tests.unit.translation.test_search import LENGTHS, alone, make, sources


def drawn(config: SearchConfig, source: Tensor) -> list[list[Hypothesis]]:
    return [result.best(config.n_best) for result in search([make()], source, config)]


def test_draws_are_a_function_of_seed_and_sentence() -> None:
    source = sources(*LENGTHS)
    config = SearchConfig(sample=True, n_best=3, max_extra=8)
    batch = drawn(config, source)
    for row in range(len(LENGTHS)):
        assert [one.tokens for one in drawn(config, alone(source, row))[0]] == [one.tokens for one in batch[row]]
    (first,) = drawn(SearchConfig(sample=True, max_extra=8), alone(source, 0))[0]
    assert first.tokens in [one.tokens for one in batch[0]]
    other = drawn(SearchConfig(sample=True, n_best=3, max_extra=8, seed=2), source)
    assert [one.tokens for one in other[0]] != [one.tokens for one in batch[0]]


@pytest.mark.parametrize("narrow", [{"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-4}])
def test_the_narrowest_sampling_is_greedy(narrow: dict[str, float]) -> None:
    source = sources(*LENGTHS)
    config = SearchConfig(sample=True, max_extra=8, **narrow)  # type: ignore[arg-type]  # pydantic checks the values
    greedy = search([make()], source, SearchConfig(beam=1, max_extra=8))
    assert [row[0].tokens for row in drawn(config, source)] == [result.best(1)[0].tokens for result in greedy]


def test_draws_follow_the_models_probabilities() -> None:
    """The first token of 4,000 draws against the softmax."""
    model, source = make(), sources(5)
    configs = [SearchConfig(sample=True, n_best=1000, max_extra=1, seed=seed) for seed in range(4)]
    found = [hypothesis for config in configs for hypothesis in search([model], source, config)[0].finished]
    with torch.no_grad():
        logits = model(source, torch.tensor([[BOS_ID]]))[0, -1]
    logits[[0, 1, 2]] = -math.inf
    expected = logits.softmax(-1)
    firsts = torch.tensor([hypothesis.tokens[0] if hypothesis.tokens else EOS_ID for hypothesis in found])
    counted = torch.bincount(firsts, minlength=31) / len(found)
    assert float((counted - expected).abs().max()) < 0.03
