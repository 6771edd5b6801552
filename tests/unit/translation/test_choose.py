"""Which engine searches, and what is loaded for it."""

import json
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

import multihead
from multihead.config.schema import SearchConfig
from multihead.errors import UserError
from multihead.storage.model_folder import replace_config
from multihead.translation.engine import SearchResult, Segment
from multihead.translation.engines.choose import AutoEngine


class FakeEngine:
    """An engine that does not sample and counts its calls."""

    chunk_size, prefetch, concurrent_searches, merges_sentences = 3, 2, 1, False

    def __init__(self) -> None:
        self.n_calls = 0

    def unsupported_reason(self, config: SearchConfig) -> str | None:
        return "no samples" if config.sample else None

    def search(self, segments: Sequence[Segment], config: SearchConfig, details: bool = False) -> list[SearchResult]:
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


@pytest.fixture
def without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make every import of torch fail, as where it is not installed."""
    monkeypatch.setitem(sys.modules, "torch", None)
    for module in ("translation.engines.torch_engine", "inspection.trace", "inspection.record"):
        monkeypatch.delitem(sys.modules, f"multihead.{module}", raising=False)


@pytest.mark.usefixtures("without_torch")
def test_auto_needs_no_torch_to_translate(trained: Path) -> None:
    assert multihead.load(trained).translate("copy a b").text == "a b"


@pytest.mark.usefixtures("without_torch")
@pytest.mark.parametrize(
    ("purpose", "use"),
    [
        ("sampling", lambda folder: multihead.load(folder).translate("copy a b", sample=True)),
        ("the torch engine", lambda folder: multihead.load(folder, engine="torch")),
        ("an ensemble", lambda folder: multihead.load(folder, folder)),
        ("the attention of every head", lambda folder: multihead.load(folder).attention("copy a b")),
        ("the trace of a sentence", lambda folder: multihead.load(folder).trace("copy a b")),
    ],
)
def test_what_needs_torch_says_how_to_install_it(trained: Path, purpose: str, use: Callable[[Path], object]) -> None:
    message = rf"^{purpose} needs torch, which is not installed: pip install 'multihead\[train\]' \(.*CPU build"
    with pytest.raises(UserError, match=message):
        use(trained)


@pytest.mark.usefixtures("without_torch")
def test_a_variant_that_only_torch_can_run_says_so(trained: Path, tmp_path: Path) -> None:
    shutil.copytree(trained, tmp_path, dirs_exist_ok=True, ignore=shutil.ignore_patterns("checkpoints", "ctranslate2"))
    config = json.loads((trained / "config.json").read_text())
    config["model"]["encoder_mixer"] = "lstm"
    replace_config(tmp_path, json.dumps(config))
    with pytest.raises(UserError, match=r"this model \(CTranslate2 does not support .*lstm\) needs torch"):
        multihead.load(tmp_path)
