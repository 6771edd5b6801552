"""Which engine searches, and what is loaded for it."""

from collections.abc import Sequence
from pathlib import Path

import pytest

import multihead
from multihead.config.schema import SearchConfig
from multihead.errors import UserError
from multihead.translation.engine import SearchResult, Segment
from multihead.translation.engines.choose import AutoEngine


class FakeEngine:
    """An engine that does not sample and counts its calls."""

    chunk_size, prefetch = 3, 2

    def __init__(self) -> None:
        self.n_calls = 0

    def unsupported_reason(self, config: SearchConfig) -> str | None:
        return "no samples" if config.sample else None

    def search(self, segments: Sequence[Segment], config: SearchConfig) -> list[SearchResult]:
        self.n_calls += 1
        return [SearchResult() for _ in segments]


def test_the_fallback_is_made_when_first_needed_and_kept() -> None:
    fast, made = FakeEngine(), list[FakeEngine]()

    def make_fallback() -> FakeEngine:
        made.append(FakeEngine())
        return made[-1]

    engine = AutoEngine(fast, make_fallback)
    engine.search([Segment([4])], SearchConfig())
    assert (fast.n_calls, len(made)) == (1, 0)
    for _ in range(2):
        engine.search([Segment([4])], SearchConfig(sample=True))
    assert (fast.n_calls, len(made), made[0].n_calls) == (1, 1, 2)
    assert (engine.chunk_size, engine.prefetch) == (3, 2)


def test_ctranslate2_refuses_an_ensemble(trained: Path) -> None:
    with pytest.raises(UserError, match="--engine torch"):
        multihead.load(trained, trained, engine="ctranslate2")


def test_ctranslate2_refuses_to_sample_and_auto_samples_with_torch(trained: Path) -> None:
    with pytest.raises(UserError, match="--engine torch"):
        multihead.load(trained, engine="ctranslate2").translate("copy a b", sample=True)
    auto, reference = (multihead.load(trained, engine=name) for name in ("auto", "torch"))
    assert auto.translate("copy a b", sample=True) == reference.translate("copy a b", sample=True)
