"""Runs that do not fit the machine are refused before they start, with options that fit."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.bench.training import random_corpus
from multihead.concurrency import run_in_subprocess
from multihead.config.presets import preset
from multihead.config.resolve import configure, parse_settings, resolve, user_layers
from multihead.config.schema import RunConfig, Settings
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.errors import UsageError
from multihead.hardware import memory
from multihead.hardware.memory import available_memory_mb, keep_freed_memory, peak_memory_mb
from multihead.runs import sizing
from multihead.runs.estimate import estimate_run
from multihead.runs.limits import why_too_large, why_too_long
from multihead.runs.request import TrainingRequest
from multihead.runs.setup import setup_run
from multihead.runs.sizing import CANDIDATES, Corpus, Sizer, Speed, memory_mb, parameters
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.trainer import Trainer
from tests.conftest import copy_or_reverse, write_pairs


def quiet(line: str) -> None:
    pass


def peak_of_training(config: RunConfig, folder: Path) -> float:
    keep_freed_memory()
    data = random_corpus(folder, config.model.vocab_size, length=30)
    trainer = Trainer(config, data, SubwordTokenizer.learn(["a b c"], 300))
    for _ in range(2):
        trainer.step()
    return peak_memory_mb()


@pytest.mark.long
@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("tiny", {}),
        ("tiny", {"data.batch_tokens": 4096}),
        ("small", {}),
        ("thorough", {"train.r_drop_from": 0.0}),
        ("base", {"data.batch_tokens": 512, "model.vocab_size": 16_000}),
    ],
)
def test_the_estimated_memory_is_that_of_real_steps(name: str, settings: Settings, tmp_path: Path) -> None:
    config = configure({"model.vocab_size": 8000}, preset(name), settings)
    measured = run_in_subprocess(peak_of_training, config, tmp_path)
    assert memory_mb(config) == pytest.approx(measured, rel=0.3)


def remedies(refusal: str) -> list[RunConfig]:
    """The runs that a refusal proposes in place of `base`."""
    batches = re.search(r"--set (data\.\S+) --set (train\.\S+)", refusal)
    smaller = re.search(r"--preset (\w+)", refusal)
    runs = [configure(parse_settings(batches.groups()))] if batches else []
    return [*runs, configure(preset(smaller[1]), {"model.vocab_size": 37_000})] if smaller else runs


@given(available=st.floats(700, 20_000))
def test_a_run_that_needs_more_memory_is_refused_with_options_that_fit(available: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sizing, "available_memory_mb", lambda: available)
        base = RunConfig()
        refusal = why_too_large(base)
        assert (refusal is None) == (memory_mb(base) <= available)
        if refusal is None:
            return
        proposed = remedies(refusal)
        assert proposed
        assert all(memory_mb(one) <= available for one in proposed)
        same_steps = [one for one in proposed if one.model == base.model]
        assert all(one.data.batch_tokens * one.train.accumulate >= base.data.batch_tokens for one in same_steps)


def test_without_room_for_any_preset_the_refusal_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "available_memory_mb", lambda: 300.0)
    assert "No preset fits" in (why_too_large(RunConfig()) or "")


def test_memory_that_is_not_known_is_no_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sizing, "available_memory_mb", lambda: None)
    assert why_too_large(configure(preset("big"))) is None


def test_several_processes_need_memory_each(monkeypatch: pytest.MonkeyPatch) -> None:
    one = memory_mb(RunConfig())
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    assert memory_mb(RunConfig()) == 2 * one


def test_plan_and_train_refuse_with_the_same_words(
    toy_text: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sizing, "available_memory_mb", lambda: 2000.0)
    request = TrainingRequest(output=tmp_path / "run", source=toy_text[0], target=toy_text[1], preset="big")
    refusals = []
    for refused in (lambda: estimate_run(request, log=quiet), lambda: setup_run(request, quiet)):
        with pytest.raises(UsageError, match=r"MB of memory, and 2,000 MB are available\. Use --") as error:
            refused()
        refusals.append(str(error.value).removesuffix("; the text stays prepared"))
    assert refusals[0] == refusals[1]
    assert not (request.output / "config.json").exists()


@pytest.fixture
def corpus(tmp_path: Path) -> Corpus:
    source, target = write_pairs(tmp_path, copy_or_reverse(200, seed=1))
    return Corpus(tmp_path / "data", prepare(from_files(source, target), tmp_path / "data", configure().data, 280))


def sizer_for(request: TrainingRequest, corpus: Corpus) -> Sizer:
    return Sizer([*request.layers, corpus.layer], corpus)


@pytest.fixture
def _slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine on which `base` takes a month."""
    speed = Speed(tokens_per_second=1000.0, tokens_per_step=25_000.0)
    monkeypatch.setattr(sizing, "measured_speed", lambda config, data, n_processes=1: speed)


@pytest.mark.usefixtures("_slow")
def test_more_than_a_week_is_refused_unless_the_user_set_the_steps(corpus: Corpus, tmp_path: Path) -> None:
    request = TrainingRequest(output=tmp_path / "run", preset="base")
    sizer, resolved = sizer_for(request, corpus), resolve([*request.layers, corpus.layer])
    refusal = why_too_long(resolved, "base", sizer) or ""
    assert "100,000 steps of preset base take 28.9 days on this machine. Use --minutes 10080 or less" in refusal
    for option in (["train.steps=100000"], ["train.minutes=10080"]):
        asked = user_layers("base", settings=parse_settings(option))
        assert why_too_long(resolve([*asked, corpus.layer]), "base", sizer) is None


@pytest.mark.usefixtures("_slow")
def test_a_preset_that_the_user_did_not_choose_is_limited_to_a_day(corpus: Corpus, tmp_path: Path) -> None:
    lines: list[str] = []
    request = TrainingRequest(output=tmp_path / "run")
    sizer = sizer_for(request, corpus)
    name, fitted = sizer.choose(lines.append)
    config = resolve([*request.layers, corpus.layer, *fitted]).config
    assert name in CANDIDATES
    assert (config.train.minutes, config.train.steps) == (1440, 0)
    assert "Stopping after 24 hours" in " ".join(lines)
    asked = replace(request, options={"train.steps": 20_000})
    _, fitted = sizer_for(asked, corpus).choose(quiet)
    assert resolve([*asked.layers, *fitted]).config.train.minutes == 0


# What the system says


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "meminfo").write_text(
        "MemTotal:       8000000 kB\nMemAvailable:   4000000 kB\nSwapFree:       1000000 kB\n", encoding="ascii"
    )
    monkeypatch.setattr(memory, "_PROC_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(memory, "_GROUP_FOLDER", tmp_path)
    return tmp_path


def test_available_memory_is_what_the_system_and_the_container_leave(system: Path) -> None:
    assert available_memory_mb() == 5000
    (system / "memory.max").write_text("max\n", encoding="ascii")
    assert available_memory_mb() == 5000
    (system / "memory.max").write_text("2000000000\n", encoding="ascii")
    (system / "memory.current").write_text("900000000\n", encoding="ascii")
    (system / "memory.stat").write_text("anon 1\ninactive_file 400000000\n", encoding="ascii")
    assert available_memory_mb() == 1500
    (system / "meminfo").unlink()
    assert available_memory_mb() is None


def test_the_memory_of_this_machine_is_plausible() -> None:
    available = available_memory_mb()
    assert available is None or 0 < available < 1e8
    assert parameters(RunConfig()) * 16 / 1e6 < memory_mb(RunConfig())
