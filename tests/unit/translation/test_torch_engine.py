"""The engine of torch: the same for a sentence whatever its batch, its neighbors and the number of threads."""

import random
from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor

from multihead.config.schema import SearchConfig
from multihead.model.transformer import Transformer
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import EOS_ID
from multihead.translation.engine import Hypothesis, SearchResult, Segment
from multihead.translation.engines import torch_engine
from multihead.translation.engines.torch_engine import GPU_BATCH_TOKENS, TorchEngine, batch_tokens
from multihead.translation.search.beam import search
from tests.fake_gpu import GPU, FakeGpu
from tests.unit.translation.test_search import make

CONFIG = SearchConfig(max_extra=8)


def segments(n: int = 60) -> list[Segment]:
    rng = random.Random(3)
    return [Segment([rng.randrange(4, 31) for _ in range(rng.randint(1, 9))]) for _ in range(n)]


def a_shortlist() -> Shortlist:
    candidates = np.random.default_rng(2).integers(4, 31, (31, 3))
    candidates[EOS_ID] = EOS_ID
    return Shortlist(candidates, frequent=np.array([5, 6]))


def texts(found: list[SearchResult]) -> list[list[int]]:
    return [one.best(1)[0].tokens for one in found]


@pytest.mark.parametrize("config", [CONFIG, SearchConfig(beam=1, max_extra=8)])
@pytest.mark.parametrize("shortlist", [None, a_shortlist()])
def test_results_do_not_depend_on_batches_or_threads(
    monkeypatch: pytest.MonkeyPatch, config: SearchConfig, shortlist: Shortlist | None
) -> None:
    engine, sentences = TorchEngine([make(4)], shortlist), segments()
    expected = texts(engine.search(sentences, config))
    n_threads = torch.get_num_threads()
    try:
        for batch_tokens, threads in ((1, 1), (30, 2), (100, 3), (10_000, 1), (10_000, 2)):
            monkeypatch.setattr(torch_engine, "BATCH_TOKENS", batch_tokens)
            torch.set_num_threads(threads)
            assert texts(engine.search(sentences, config)) == expected
    finally:
        torch.set_num_threads(n_threads)


def test_threads_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    n_threads = torch.get_num_threads()
    monkeypatch.setattr(torch_engine, "BATCH_TOKENS", 10)
    try:
        torch.set_num_threads(2)
        TorchEngine([make()]).search(segments(9), CONFIG)
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(n_threads)


def test_a_close_call_is_decided_in_double_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch that tips a near tie the other way gives what the sentence gives when it is looked at closely."""

    def tipped(
        models: Sequence[Transformer], source: Tensor, config: SearchConfig, **more: Shortlist
    ) -> list[SearchResult]:
        if next(models[0].parameters()).dtype == torch.float64:
            return search(models, source, config)
        wrong = Hypothesis(tokens=[30], log_prob=-1.0, score=-1.0)
        return [SearchResult(finished=[wrong], near_tie=True) for _ in source]

    engine = TorchEngine([make()])
    expected = texts(engine.search(segments(7), CONFIG))
    monkeypatch.setattr("multihead.translation.engines.torch_engine.search", tipped)
    assert texts(engine.search(segments(7), CONFIG)) == expected


def test_nothing_to_search_finds_nothing() -> None:
    assert TorchEngine([make()]).search([], CONFIG) == []


def test_the_batches_of_a_gpu_do_not_depend_on_the_cores() -> None:
    """They are searched one after the other."""
    assert batch_tokens("cuda", 50_000, n_threads=64) == GPU_BATCH_TOKENS
    assert batch_tokens("cpu", 640, n_threads=64) == 10


def test_close_calls_of_a_gpu_are_decided_on_the_cpu() -> None:
    """A GPU is slow in float64, and has no memory for a copy of twice the size."""
    model = make()
    model.output.weight.data[5] = model.output.weight.data[6]  # equal, so that every choice between them is close
    expected = texts(TorchEngine([model], a_shortlist()).search(segments(5), CONFIG))
    with FakeGpu():
        engine = TorchEngine([model.to(GPU)], a_shortlist())
        found = engine.search(segments(5), CONFIG)
    assert texts(found) == expected
    assert [next(one.parameters()).device.type for one in engine._double_precision_models] == ["cpu"]
