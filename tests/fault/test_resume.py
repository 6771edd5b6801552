"""Killed at any moment and started again, a run ends with the same bytes as an uninterrupted one."""

import multiprocessing
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from multihead.cli.main import app
from multihead.config.schema import Settings
from multihead.errors import UsageError
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from multihead.storage.checkpoints import saved_steps
from multihead.storage.model_folder import is_published, published_step, read_config
from multihead.tasks.task import make_task
from multihead.training.checkpoint import load_checkpoint
from tests.conftest import QUICK

# Saves often, validates off the beat of saving, and crosses several epochs.
SETTINGS = {
    **QUICK,
    "train.save_every": 3,
    "train.keep_checkpoints": 5,
    "train.validate_every": 4,
    "train.log_every": 1,
}


@pytest.fixture(scope="module")
def processes() -> Iterator[ForkServerContext]:
    """Processes that start in milliseconds, with everything imported and no threads inherited."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["multihead.run", "torch.utils.tensorboard", "matplotlib.figure", "sacrebleu"])
    yield context


@pytest.fixture
def request_(quick_request: TrainingRequest) -> TrainingRequest:
    return replace(quick_request, settings=SETTINGS)


@pytest.fixture
def uninterrupted(request_: TrainingRequest) -> bytes:
    whole = replace(request_, output=request_.output.with_name("whole"))
    train(whole)
    return weights(whole)


def weights(request: TrainingRequest) -> bytes:
    return (request.output / "model.safetensors").read_bytes()


def train_and_die(request: TrainingRequest, kill_at: int) -> None:
    """Train, and die at the nth time that a file of a checkpoint is opened, made, renamed or removed."""
    events = 0

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal events
        if event in ("open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "shutil.rmtree"):
            events += "checkpoints" in str(arguments[0])
            if events == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    train(request)


def run_to_end(processes: ForkServerContext, request: TrainingRequest) -> None:
    process = processes.Process(target=train, args=(request,))
    process.start()
    process.join()
    assert process.exitcode == 0


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_kills_inside_saves_change_nothing(
    processes: ForkServerContext, request_: TrainingRequest, uninterrupted: bytes, stride: int
) -> None:
    """One kill at each (or each third) place of the first two saves, and on through pruning; the run goes on."""
    inside = 0
    for kill_at in range(1, 41, stride):
        process = processes.Process(target=train_and_die, args=(request_, kill_at))
        process.start()
        process.join()
        inside += bool(list((request_.output / "checkpoints").glob(".step-*.partial")))
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
    run_to_end(processes, request_)
    assert inside >= 10 // stride, "too few kills fell inside a save to prove anything"
    assert weights(request_) == uninterrupted


def test_kills_at_random_moments_change_nothing(
    processes: ForkServerContext, request_: TrainingRequest, uninterrupted: bytes
) -> None:
    """Mid-epoch, at an epoch's edge, right after a resume, while preparing, validating, saving, publishing."""
    rng = random.Random(7)
    kills = 0
    for _ in range(25):
        process = processes.Process(target=train, args=(request_,))
        process.start()
        kills += killed_within(process, rng.uniform(0.0, 1.2))
        if not process.exitcode:
            break
    run_to_end(processes, request_)
    assert kills >= 3
    assert weights(request_) == uninterrupted


def killed_within(process: BaseProcess, seconds: float) -> bool:
    process.join(seconds)
    if process.exitcode is None:
        process.kill()
        process.join()
        return True
    return False


def test_a_damaged_newest_checkpoint_costs_only_time(request_: TrainingRequest, uninterrupted: bytes) -> None:
    train(replace(request_, settings={**SETTINGS, "train.steps": 14}))
    newest = request_.output / "checkpoints" / "step-14" / "model.safetensors"
    newest.write_bytes(newest.read_bytes()[:-100])
    train(request_)
    assert weights(request_) == uninterrupted


def test_stopping_and_going_on_at_every_step_changes_nothing(request_: TrainingRequest, uninterrupted: bytes) -> None:
    for steps in (1, 2, 3, 5, 11, 12, 13, 24):
        train(replace(request_, settings={**SETTINGS, "train.steps": steps}))
    assert weights(request_) == uninterrupted


@pytest.mark.parametrize(
    "choice",
    [
        {"model.system": "neural-gpu", "model.positions": "none", "model.image_width": 2},
        {"model.system": "memory-network"},
        {"model.cross": "last", "model.encoder_mixer": "lstm", "model.decoder_mixer": "gru"},
        {
            "model.cross": "convs2s",
            "model.n_heads": 1,
            "model.d_k": 16,
            "model.d_v": 16,
            "model.encoder_mixer": "gated",
        },
        {"model.attention_score": "local-p"},
        {"model.attention_score": "location"},
    ],
    ids=lambda choice: " ".join(map(str, choice.values())),
)
def test_every_system_resumes_exactly(quick_request: TrainingRequest, choice: Settings) -> None:
    settings = {**SETTINGS, **choice, "train.steps": 6, "train.bleu_sentences": 0}
    whole = replace(quick_request, settings=settings, output=quick_request.output.with_name("whole"))
    train(whole)
    in_parts = replace(quick_request, settings=settings)
    for steps in (1, 4, 6):
        train(replace(in_parts, settings={**settings, "train.steps": steps}))
    assert weights(in_parts) == weights(whole)


@pytest.mark.parametrize("name", ["add", "parse", "questions"])
def test_a_task_resumes_exactly(tmp_path: Path, name: str) -> None:
    task = make_task(name)
    few = replace(task.text, train=list(task.text.train)[:300], valid=list(task.text.valid or [])[:20])
    settings = {**task.settings, "train.save_every": 2, "train.validate_every": 2, "data.batch_tokens": 512}
    task = replace(task, text=few, settings=settings)
    for folder, stops in (("whole", [4]), ("parts", [1, 3, 4])):
        for steps in stops:
            train(TrainingRequest(output=tmp_path / folder, task=task, settings={"train.steps": steps}))
    one, other = ((tmp_path / folder / "model.safetensors").read_bytes() for folder in ("whole", "parts"))
    assert one == other


def test_a_full_disk_leaves_the_last_checkpoint_and_says_so(
    processes: ForkServerContext, request_: TrainingRequest, uninterrupted: bytes, tmp_path: Path
) -> None:
    """The system refuses files over a certain size, as a full disk refuses every file."""
    train(replace(request_, settings={**SETTINGS, "train.steps": 6}))
    process = processes.Process(target=train_with_little_room, args=(request_, tmp_path / "stderr"))
    process.start()
    process.join()
    assert process.exitcode == 1
    assert "multihead: cannot read or write a file: " in (tmp_path / "stderr").read_text(encoding="utf-8")
    assert saved_steps(request_.output / "checkpoints")[-1] == 6
    assert not list((request_.output / "checkpoints").glob(".*"))
    train(request_)
    assert weights(request_) == uninterrupted


def train_with_little_room(request: TrainingRequest, stderr: Path) -> None:
    import resource

    from multihead.console import run_and_report_errors

    sys.stderr = stderr.open("w", encoding="utf-8")
    resource.setrlimit(resource.RLIMIT_FSIZE, (10_000, 10_000))
    run_and_report_errors(lambda: train(request))


def test_the_clock_of_a_run_goes_on(request_: TrainingRequest) -> None:
    train(replace(request_, settings={**SETTINGS, "train.steps": 3}))
    folder: Path = request_.output / "checkpoints"
    first = load_checkpoint(folder / "step-3").state.seconds
    time.sleep(0.5)
    train(request_)
    assert first < load_checkpoint(folder / "step-24").state.seconds


# The same command, whatever its options are


class InterruptingConsole(Console):
    """Sends Ctrl-C to its own process when the second step is logged."""

    def print(self, *lines: Any, **options: Any) -> None:
        if "step 2 " in str(lines):
            os.kill(os.getpid(), signal.SIGINT)


@pytest.fixture(scope="module")
def first_model(tmp_path_factory: pytest.TempPathFactory, toy_text: tuple[Path, Path]) -> Path:
    """A model to start from."""
    output = tmp_path_factory.mktemp("first") / "model"
    settings = {**QUICK, "train.steps": 1}
    return train(
        TrainingRequest(output=output, source=toy_text[0], target=toy_text[1], preset="tiny", settings=settings)
    )


@pytest.mark.parametrize("starts_from_a_model", [False, True])
@pytest.mark.parametrize("preset", [None, "tiny", "small"])
def test_an_interrupted_command_resumes(
    quick_request: TrainingRequest, first_model: Path, preset: str | None, starts_from_a_model: bool
) -> None:
    """Without a preset, with the model's own and with another."""
    settings = {**QUICK, "train.steps": 4, "train.log_every": 1}
    if starts_from_a_model:
        settings = {name: value for name, value in settings.items() if not name.startswith("model.")}
        settings["train.base_model"] = str(first_model)
    request = replace(quick_request, preset=preset, settings=settings)
    with pytest.raises(KeyboardInterrupt):
        train(request, InterruptingConsole(stderr=True))
    begun = read_config(request.output)
    assert saved_steps(request.output / "checkpoints")[-1] < 4
    train(request)
    assert is_published(request.output, 4)
    assert read_config(request.output) == begun
    whole = replace(request, output=request.output.with_name("whole"))
    train(whole)
    assert weights(request) == weights(whole)


def test_a_model_to_start_from_may_be_spelled_in_other_ways(
    quick_request: TrainingRequest, first_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(first_model.parent)
    settings = {name: value for name, value in QUICK.items() if not name.startswith("model.")}
    for steps, name in enumerate(["model", "./model", str(first_model)], start=1):
        given = {**settings, "train.steps": steps, "train.base_model": name}
        train(replace(quick_request, preset=None, settings=given))
        assert published_step(quick_request.output) == steps
    with pytest.raises(UsageError, match=r"has train\.base_model=model, but --set sets train\.base_model=en-de"):
        train(replace(quick_request, preset=None, settings={**settings, "train.base_model": "en-de"}))


def test_a_command_with_a_run_file_a_vocabulary_and_minutes_resumes(
    quick_request: TrainingRequest, tmp_path: Path
) -> None:
    run_file = tmp_path / "run.toml"
    sections: dict[str, list[str]] = {}
    for name, value in {**QUICK, "train.steps": 2}.items():
        section, _, field = name.partition(".")
        sections.setdefault(section, []).append(f"{field} = {value!r}")
    run_file.write_text("".join(f"[{name}]\n" + "\n".join(fields) + "\n" for name, fields in sections.items()))
    command = ["train", f"--source={quick_request.source}", f"--target={quick_request.target}", "--vocab-size=270"]
    command += [f"--output={quick_request.output}", f"--config={run_file}", "--minutes=60"]
    for _ in range(2):
        result = CliRunner().invoke(app, command)
        assert result.exit_code == 0, result.exception
    assert is_published(quick_request.output, 2)
