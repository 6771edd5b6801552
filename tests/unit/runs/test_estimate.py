"""What a run will need, and that it is the run which `multihead train` would make."""

import gzip
import inspect
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from multihead.cli.main import app
from multihead.cli.train import plan_command, train_command
from multihead.config.schema import DataConfig, ModelConfig, RunConfig, TrainConfig
from multihead.data.prepare import prepare
from multihead.errors import UserError
from multihead.hardware.flops import GPUS, counted_flops
from multihead.runs import estimate, sizing
from multihead.runs.estimate import (
    Estimate,
    MeasuredSteps,
    _count_lines,
    _expected_steps,
    _warnings,
    estimate_run,
    plan_run,
)
from multihead.runs.request import TrainingRequest
from multihead.runs.setup import setup_run
from multihead.runs.sizing import Speed
from multihead.storage.model_folder import read_config
from tests.conftest import QUICK, copy_or_reverse, write_pairs


def quiet(line: str) -> None:
    pass


@pytest.fixture(scope="module")
def request_(toy_text: tuple[Path, Path]) -> TrainingRequest:
    output = toy_text[0].parent / "never-made"
    return TrainingRequest(output=output, source=toy_text[0], target=toy_text[1], preset="base", settings=QUICK)


@pytest.fixture(scope="module")
def made(request_: TrainingRequest) -> Estimate:
    return estimate_run(request_, measured_steps=2, log=quiet)


# The run that is planned is the run that is trained


@pytest.fixture
def _constant_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A speed that does not depend on the machine, so that a plan and a run choose alike."""
    speed = Speed(tokens_per_second=1000.0, tokens_per_step=100.0)
    monkeypatch.setattr(sizing, "measured_speed", lambda config, data, n_processes=1: speed)


TRAINING = {name: value for name, value in QUICK.items() if name.startswith(("data.", "train."))}
UNLIMITED = {name: value for name, value in TRAINING.items() if name != "train.steps"}
Change = Callable[[TrainingRequest, Path], TrainingRequest]


def with_data(request: TrainingRequest, folder: Path) -> TrainingRequest:
    prepare(request.text(), folder / "prepared", DataConfig(max_length=32))
    return replace(request, source=None, target=None, data=folder / "prepared")


def with_run_file(request: TrainingRequest, folder: Path) -> TrainingRequest:
    (folder / "run.toml").write_text("[train]\nwarmup = 7\n[model]\ndropout = 0.3\n", encoding="utf-8")
    return replace(request, run_file=folder / "run.toml", preset=None, settings=TRAINING)


def with_two_corpora(request: TrainingRequest, folder: Path) -> TrainingRequest:
    assert isinstance(request.source, Path) and isinstance(request.target, Path)
    return replace(request, source=[request.source] * 2, target=[request.target] * 2, weights=(2, 1))


def with_validation_text(request: TrainingRequest, folder: Path) -> TrainingRequest:
    assert isinstance(request.source, Path) and isinstance(request.target, Path)
    return replace(request, valid_source=request.source, valid_target=request.target)


CHANGES: dict[str, Change] = {
    "a preset": lambda request, folder: request,
    "no preset": lambda request, folder: replace(request, preset=None, settings=TRAINING),
    "minutes": lambda request, folder: replace(
        request, preset=None, settings=UNLIMITED, options={"train.minutes": 90.0}
    ),
    "a vocabulary size": lambda request, folder: replace(request, options={"model.vocab_size": 270}),
    "languages": lambda request, folder: replace(request, options={"data.source_lang": "fr", "data.target_lang": "en"}),
    "a prepared corpus": with_data,
    "a prepared corpus and no preset": lambda request, folder: with_data(
        replace(request, preset=None, settings=TRAINING), folder
    ),
    "a run file": with_run_file,
    "two corpora": with_two_corpora,
    "validation text": with_validation_text,
    "nothing but an output": lambda request, folder: TrainingRequest(
        output=request.output, settings={"train.steps": 3}
    ),
}


@pytest.mark.usefixtures("_constant_speed")
@pytest.mark.parametrize("name", CHANGES)
def test_the_run_that_is_planned_is_the_run_that_is_trained(
    request_: TrainingRequest, tmp_path: Path, name: str
) -> None:
    request = CHANGES[name](replace(request_, output=tmp_path / "run"), tmp_path)
    planned = plan_run(request, tmp_path / "temporary", quiet)
    assert not request.output.exists()
    setup_run(request, quiet)
    assert planned.config == read_config(request.output)


@pytest.mark.usefixtures("_constant_speed")
@pytest.mark.parametrize("preset", [None, "small"])
def test_planned_fine_tuning_is_that_which_is_trained(
    request_: TrainingRequest, trained: Path, tmp_path: Path, preset: str | None
) -> None:
    options = {"train.base_model": str(trained)}
    request = replace(request_, output=tmp_path / "run", preset=preset, settings={}, options=options)
    planned = plan_run(request, tmp_path / "temporary", quiet)
    setup_run(request, quiet)
    assert planned.config == read_config(request.output)
    assert planned.config.model.d_model == read_config(trained).model.d_model
    assert planned.preset == (preset or "tiny")


@pytest.mark.usefixtures("_constant_speed")
def test_a_run_that_exists_is_planned_as_it_would_be_resumed(request_: TrainingRequest, tmp_path: Path) -> None:
    request = replace(request_, output=tmp_path / "run")
    setup_run(request, quiet)
    more = TrainingRequest(output=request.output, settings={"train.steps": 99})
    assert plan_run(more, tmp_path / "temporary", quiet).config.train.steps == 99
    assert read_config(request.output).train.steps == 24


@pytest.mark.usefixtures("_constant_speed")
def test_a_large_text_is_planned_from_a_sample(
    request_: TrainingRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, target = write_pairs(tmp_path, list(dict.fromkeys(copy_or_reverse(4000, seed=1))))
    request = replace(request_, source=source, target=target, output=tmp_path / "run")
    whole = plan_run(request, tmp_path / "whole", quiet)
    monkeypatch.setattr(estimate, "SAMPLE", 1000)
    sampled = plan_run(request, tmp_path / "sample", quiet)
    assert sampled.corpus.summary.train_pairs < 1000
    assert sampled.corpus.train_pairs == pytest.approx(whole.corpus.train_pairs, rel=0.02)
    assert sampled.corpus.target_tokens == pytest.approx(whole.corpus.target_tokens, rel=0.1)
    assert sampled.config.model.vocab_size == 4000  # what suits the whole text


def test_plan_takes_every_option_of_train() -> None:
    plan, train = (inspect.signature(command).parameters for command in (plan_command, train_command))
    for name, parameter in train.items():
        assert name in ("output", "quiet", "verbose") or plan[name] == parameter
    assert plan.keys() - train.keys() == {"measure_steps", "as_json"}


# What a plan says


@pytest.mark.long
def test_a_plan_is_made_of_measured_steps(made: Estimate) -> None:
    assert made.pairs == 113
    assert made.hours == pytest.approx(24 * made.seconds_a_step / 3600)
    assert made.memory_mb > 50
    assert made.gpu_hours["A100"]["1"] == pytest.approx(8 * made.gpu_hours["A100"]["8"])
    assert not made.warnings
    assert "24 steps" in made.as_text()


@pytest.mark.long
def test_a_plan_counts_both_readings_of_r_drop(made: Estimate, request_: TrainingRequest) -> None:
    twice = estimate_run(replace(request_, settings={**QUICK, "train.r_drop": 3}), measured_steps=2, log=quiet)
    assert twice.gpu_hours["A100"]["1"] == pytest.approx(2 * made.gpu_hours["A100"]["1"])


def test_minutes_limit_the_steps_of_a_plan() -> None:
    measured = MeasuredSteps(seconds_per_step=0.5, tokens_per_step=100, memory_mb=1, publishing_seconds=30)
    config = RunConfig(train=TrainConfig(steps=10**6, minutes=10))
    assert _expected_steps(config, measured) == (600 - 30) / 0.5
    assert _expected_steps(replace(config, train=TrainConfig(steps=7, minutes=10)), measured) == 7


@pytest.mark.long
def test_a_run_that_cannot_end_is_warned_of(made: Estimate, tmp_path: Path) -> None:
    endless = _warnings(replace(made, hours=24 * 400, disk_mb=1e12), tmp_path / "not" / "there")
    assert endless[0].startswith("this run takes 400 days on this machine: choose a smaller --preset")
    assert "MB of disk are needed, but" in endless[1]
    assert "warning: this run takes" in replace(made, warnings=endless).as_text()


def test_the_papers_own_time_comes_out_about_right() -> None:
    """Base on 8 P100: 100,000 steps of 0.4 s are 11 hours (§5.2); how much of a GPU is used is an assumption."""
    p100 = next(gpu for gpu in GPUS if gpu.name == "P100")
    assert p100.hours(counted_flops(ModelConfig(), 100_000 * 25_000)) / 8 == pytest.approx(11, rel=0.4)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_the_length_of_a_large_file_is_guessed_from_its_beginning(tmp_path: Path, suffix: str) -> None:
    import gzip

    lines = write_pairs(tmp_path, copy_or_reverse(60_000, seed=1))[0].read_bytes()
    file = tmp_path / f"large{suffix}"
    file.write_bytes(gzip.compress(lines) if suffix else lines)
    assert _count_lines(file) == pytest.approx(60_000, rel=0.25)
    with pytest.raises(UserError, match="standard input"):
        _count_lines(Path("-"))


@pytest.mark.long
def test_the_command_prints_json(toy_text: tuple[Path, Path]) -> None:
    settings = [f"--set={name}={value}" for name, value in QUICK.items() if name != "train.steps"]
    files = [f"--source={toy_text[0]}", f"--target={toy_text[1]}"]
    result = CliRunner().invoke(
        app, ["plan", *files, "--preset=base", "--steps=9", "--measure-steps=1", "--json", *settings]
    )
    assert json.loads(result.stdout)["steps"] == 9


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_a_plan_counts_the_pairs_of_utf16_as_those_of_utf8(tmp_path: Path, name: str) -> None:
    text = "".join(f"sentence number {n}\n" for n in range(50_000))
    open_file = gzip.open if name.endswith(".gz") else open
    counts = []
    for encoding in ("utf-8", "utf-16"):
        with open_file(tmp_path / name, "wb") as file:
            file.write(text.encode(encoding))
        counts.append(_count_lines(tmp_path / name))
    assert counts[1] == pytest.approx(counts[0], rel=0.05)
