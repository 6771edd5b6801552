"""Search against its definition."""

import itertools
import math

import pytest
import torch
from torch import Tensor

from multihead.config.schema import SearchConfig
from multihead.errors import UsageError
from multihead.model.build import build_model
from multihead.model.transformer import Transformer
from multihead.text.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID
from multihead.translation.engine import length_penalty
from multihead.translation.search.beam import BeamSearch, search
from tests.conftest import tiny_shape
from tests.fake_gpu import GPU, FakeGpu


def make(seed: int = 1, **changes: object) -> Transformer:
    """A random model that is fairly sure of itself, and that ends its sentences now and then."""
    torch.manual_seed(seed)
    model = build_model(tiny_shape(**{"max_len": 64, "tie_embeddings": "none", **changes})).eval()
    model.output.weight.data *= 3
    model.output.weight.data[EOS_ID] *= 1.5
    return model


def sources(*lengths: int, seed: int = 5) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        ids[row, :length] = torch.randint(4, 31, (length,), generator=generator)
        ids[row, length - 1] = EOS_ID
    return ids


def alone(source: Tensor, row: int) -> Tensor:
    ids = source[row]
    return ids[ids != 0].unsqueeze(0)


def forced_log_prob(model: Transformer, source: Tensor, tokens: list[int], finished: bool = True) -> float:
    """Return the log-probability of an output by the full pass: the sum over its tokens."""
    output = [*tokens, EOS_ID] if finished else tokens
    with torch.inference_mode():
        log_probs = model(source, torch.tensor([[BOS_ID, *output[:-1]]]))[0].log_softmax(dim=-1)
    return sum(float(log_probs[at, id]) for at, id in enumerate(output))


def greedy_by_definition(model: Transformer, source: Tensor, max_extra: int) -> list[int]:
    tokens: list[int] = []
    while len(tokens) < source.size(1) + max_extra:
        with torch.no_grad():
            logits = model(source, torch.tensor([[BOS_ID, *tokens]]))[0, -1]
        logits[[0, 1, 2]] = -math.inf
        if int(logits.argmax()) == EOS_ID:
            break
        tokens.append(int(logits.argmax()))
    return tokens


LENGTHS = (7, 4, 6, 2, 7, 5)


@pytest.mark.parametrize("seed", range(4))
def test_a_beam_of_1_is_greedy(seed: int) -> None:
    model, source = make(seed), sources(*LENGTHS)
    found = search([model], source, SearchConfig(beam=1, max_extra=8))
    for row, result in enumerate(found):
        assert result.best(1)[0].tokens == greedy_by_definition(model, alone(source, row), 8)


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
def test_a_beam_as_wide_as_the_space_finds_the_true_best(alpha: float) -> None:
    """All outputs of up to 3 tokens over 5 words, the unknown one among them: the best, the second, and the third."""
    model = make(3, vocab_size=8)
    source = torch.tensor([[4, 5, EOS_ID]])
    words = [UNK_ID, *range(4, 8)]
    space = [list(tokens) for length in range(4) for tokens in itertools.product(words, repeat=length)]
    config = SearchConfig(beam=200, alpha=alpha, max_extra=1, n_best=3)
    found = search([model], source, config)[0].best(3)
    scored = sorted(
        (
            (forced_log_prob(model, source, tokens) / float(length_penalty(len(tokens) + 1, alpha)), tokens)
            for tokens in space
        ),
        reverse=True,
    )
    assert [hypothesis.tokens for hypothesis in found] == [tokens for _, tokens in scored[:3]]


@pytest.mark.parametrize("beam", [1, 4])
def test_a_score_equals_the_forced_score(beam: int) -> None:
    model, source = make(), sources(*LENGTHS)
    config = SearchConfig(beam=beam, n_best=beam, max_extra=8)
    for row, result in enumerate(search([model], source, config)):
        for hypothesis in result.best(beam):
            forced = forced_log_prob(model, alone(source, row), hypothesis.tokens, hypothesis.finished)
            length = len(hypothesis.tokens) + hypothesis.finished
            assert hypothesis.log_prob == pytest.approx(forced, abs=1e-4)
            assert hypothesis.score == pytest.approx(forced / ((5 + length) / 6) ** 0.6, abs=1e-4)


def test_the_best_come_first_and_differ() -> None:
    for result in search([make()], sources(*LENGTHS), SearchConfig(beam=5, n_best=5, max_extra=8)):
        scores = [hypothesis.score for hypothesis in result.best(5)]
        assert scores == sorted(scores, reverse=True)
        assert len({tuple(hypothesis.tokens) for hypothesis in result.best(5)}) == len(scores)


def test_a_wider_beam_never_ends_with_a_worse_best_on_average() -> None:
    totals = []
    for beam in (1, 2, 4, 8):
        found = search([make()], sources(*[6] * 40), SearchConfig(beam=beam, max_extra=8))
        totals.append(sum(result.best(1)[0].score for result in found))
    assert totals == sorted(totals)


@pytest.mark.parametrize("beam", [1, 4])
def test_a_batch_equals_its_sentences_alone(beam: int) -> None:
    model, source = make(), sources(*[2 + at % 6 for at in range(40)])
    config = SearchConfig(beam=beam, max_extra=8)
    for row, result in enumerate(search([model], source, config)):
        single = search([model], alone(source, row), config)[0]
        if not result.near_tie and not single.near_tie:
            assert result.best(1)[0].tokens == single.best(1)[0].tokens


@pytest.mark.parametrize("n_best", [1, 3])
def test_what_leaves_the_beam_could_not_have_won(monkeypatch: pytest.MonkeyPatch, n_best: int) -> None:
    """500 sentences: hypotheses that leave as soon as they cannot win, against all of them going on to the limit."""
    model, source = make(2), sources(*[2 + at % 7 for at in range(500)])
    config = SearchConfig(beam=4, max_extra=6, n_best=n_best)
    pruned = search([model], source, config)
    monkeypatch.setattr(BeamSearch, "_can_still_win", lambda _, values: values.isfinite())  # prune nothing
    for one, other in zip(pruned, search([model], source, config), strict=True):
        assert one.best(n_best) == other.best(n_best)


def test_an_output_that_does_not_end_is_cut_at_its_limit() -> None:
    config = SearchConfig(beam=2, max_extra=4, min_length=100)
    for row, result in enumerate(search([make()], sources(5, 3), config)):
        best = result.best(1)[0]
        assert (len(best.tokens), best.finished) == ((5, 3)[row] + 4, False)


def test_an_output_never_runs_past_the_positions_of_the_model() -> None:
    model = make(1, max_len=10)
    for result in search([model], sources(9, 9), SearchConfig(beam=3, max_extra=50)):
        assert len(result.best(1)[0].tokens) <= 10


def test_padding_and_start_are_never_said() -> None:
    model = make()
    model.output.weight.data[[PAD_ID, BOS_ID]] *= 50
    for result in search([model], sources(*LENGTHS), SearchConfig(max_extra=8)):
        assert not {PAD_ID, BOS_ID} & set(result.best(1)[0].tokens)


def test_an_output_can_be_kept_from_ending_early() -> None:
    model = make()
    model.output.weight.data[EOS_ID] *= 5
    found = search([model], sources(*LENGTHS), SearchConfig(min_length=4, max_extra=8))
    assert all(len(result.best(1)[0].tokens) >= 4 for result in found)


def test_repeats_can_be_forbidden() -> None:
    for result in search([make()], sources(*LENGTHS), SearchConfig(no_repeat=2, max_extra=20)):
        tokens = result.best(1)[0].tokens
        pairs = list(itertools.pairwise(tokens))
        assert len(pairs) == len(set(pairs))


def test_an_ensemble_of_one_model_twice_is_the_model() -> None:
    model, source = make(), sources(*LENGTHS)
    config = SearchConfig(max_extra=8)
    single, double = search([model], source, config), search([model, model], source, config)
    for one, other in zip(single, double, strict=True):
        assert one.best(1)[0].tokens == other.best(1)[0].tokens
        assert one.best(1)[0].score == pytest.approx(other.best(1)[0].score, abs=1e-4)


def test_an_ensemble_averages_probabilities() -> None:
    one, other, source = make(1), make(2), sources(5)
    best = search([one, other], source, SearchConfig(max_extra=8))[0].best(1)[0]
    output = [*best.tokens, EOS_ID] if best.finished else best.tokens
    with torch.inference_mode():
        target = torch.tensor([[BOS_ID, *output[:-1]]])
        probs = (one(source, target)[0].softmax(-1) + other(source, target)[0].softmax(-1)) / 2
    expected = sum(float(probs[at, id].log()) for at, id in enumerate(output))
    assert best.log_prob == pytest.approx(expected, abs=1e-4)


def test_a_near_tie_is_marked() -> None:
    model = make()
    model.output.weight.data[20] = model.output.weight.data[21]  # two words that cannot be told apart
    model.output.weight.data[20:22] *= 4
    found = search([model], sources(*[6] * 20), SearchConfig(beam=1, max_extra=8))
    assert any(result.near_tie for result in found)


def test_n_best_needs_a_beam_as_wide() -> None:
    with pytest.raises(UsageError, match="beam"):
        SearchConfig(beam=2, n_best=3)


def test_a_model_that_has_gone_wrong_says_nothing() -> None:
    model = make()
    model.output.weight.data[:] = math.nan
    best = search([model], sources(4, 3), SearchConfig())[1].best(1)[0]
    assert (best.tokens, best.finished) == ([], False)


@pytest.mark.parametrize("n_best", [1, 2])
def test_a_gpu_is_waited_for_once_a_step(n_best: int) -> None:
    """And what it finds is the same as on the CPU."""
    model, source, config = make(), sources(4, 7, 3, 9), SearchConfig(max_extra=8, n_best=n_best)
    expected = [result.finished for result in BeamSearch([model], source, config).run()]
    with FakeGpu() as gpu, torch.no_grad():
        running = BeamSearch([model.to(GPU)], source.to(GPU), config)
        gpu.waits.clear()
        n_steps = 0
        while len(running.state.log_probs):
            running.step()
            n_steps += 1
        assert gpu.waits == ["aten::_to_copy to the CPU"] * n_steps
    assert [result.finished for result in running.results] == expected
