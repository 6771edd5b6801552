"""Publishing is all or nothing: interrupted anywhere, the same command completes it; what is damaged is made again."""

import errno
import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest
from rich.console import Console

from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from multihead.storage.checkpoints import FILES
from multihead.storage.checksums import verify
from multihead.storage.model_folder import is_published, published_step
from multihead.storage.shortlist import load_shortlist
from multihead.training.checkpoint import load_checkpoint
from tests.conftest import QUICK
from tests.fault.test_resume import InterruptingConsole, processes

__all__ = ["processes"]  # a fixture

SETTINGS = {
    **QUICK,
    "train.steps": 6,
    "train.save_every": 2,
    "train.keep_checkpoints": 3,
    "train.average_checkpoints": 3,
}
PUBLISHED: tuple[str, ...] = (
    "config.json",
    "tokenizer.json",
    "model.safetensors",
    "shortlist.safetensors",
    "README.md",
    "SHA256SUMS",
)
EVENTS = ("open", "os.rename", "os.remove", "os.chmod")  # what Python reports of the files that it writes


class Fault:
    """Raises an error, or kills the process, at the nth time that a file of a published model is written."""

    def __init__(self) -> None:
        self._at, self._names, self._error = 0, PUBLISHED, BaseException()
        sys.addaudithook(self._watch)

    def arm(self, at: int, error: BaseException | None = None, names: tuple[str, ...] = PUBLISHED) -> None:
        """Without an error, the process is killed."""
        self._at, self._names, self._error = at, names, error or SystemExit("killed")

    def _watch(self, event: str, arguments: tuple[object, ...]) -> None:
        if not self._at or event not in EVENTS:
            return
        path = Path(str(arguments[0]))
        name = path.name.removeprefix(".").removesuffix(".partial")
        if path.parent.name == "run" and name in self._names and path.name.endswith(".partial"):
            self._at -= 1
            if not self._at:
                self._strike()

    def _strike(self) -> None:
        if isinstance(self._error, SystemExit):
            os.kill(os.getpid(), signal.SIGKILL)
        raise self._error


@pytest.fixture(scope="module")
def fault() -> Fault:
    return Fault()  # an audit hook stays for good


@pytest.fixture(autouse=True)
def no_fault(fault: Fault) -> Iterator[None]:
    yield
    fault.arm(0)


@pytest.fixture
def run(quick_request: TrainingRequest) -> TrainingRequest:
    return replace(quick_request, settings=SETTINGS)


def full_disk() -> OSError:
    return OSError(errno.ENOSPC, "No space left on device")


def in_folder(request: TrainingRequest, name: str) -> TrainingRequest:
    """The same run elsewhere, under the same name, which its card bears."""
    return replace(request, output=request.output.parent / name / "run")


def published(request: TrainingRequest) -> dict[str, object]:
    """Every file that a run leaves beside its log, with what depends on the clock left out."""
    names = {path.name for path in request.output.iterdir()} - {"log.jsonl", "training.png", "tensorboard", ".lock"}
    files: dict[str, object] = {name: "" for name in names}
    for name in names & set(PUBLISHED):
        files[name] = (request.output / name).read_bytes()
    document = json.loads((request.output / "config.json").read_text(encoding="utf-8"))
    for name in ("seconds", "matmul_flops", "flops_by_time"):
        document["provenance"].pop(name)
    files["config.json"] = document
    card = (request.output / "README.md").read_text(encoding="utf-8")
    files["README.md"] = re.sub(r"\S+ minutes|(?m:^- cost as .*$)", "", card)
    sums = (request.output / "SHA256SUMS").read_text(encoding="utf-8")
    files["SHA256SUMS"] = re.sub(r"(?m)^\w+(?=  config.json)", "", sums)
    return files


@pytest.fixture
def undisturbed(run: TrainingRequest) -> dict[str, object]:
    whole = in_folder(run, "whole")
    train(whole)
    found = published(whole)
    assert set(PUBLISHED) <= found.keys()
    return found


@pytest.fixture
def unpublished(run: TrainingRequest, fault: Fault) -> Path:
    """A run after its last step, before anything of the model is written."""
    request = in_folder(run, "unpublished")
    fault.arm(1, KeyboardInterrupt(), names=("shortlist.safetensors",))
    with pytest.raises(KeyboardInterrupt):
        train(request)
    assert not {path.name for path in request.output.iterdir()} & set(PUBLISHED[1:])
    return request.output


@pytest.mark.parametrize("stride", [3, pytest.param(1, marks=pytest.mark.slow)])
def test_an_error_at_any_write_of_publishing_is_repaired_by_the_same_command(
    run: TrainingRequest, undisturbed: dict[str, object], unpublished: Path, fault: Fault, stride: int
) -> None:
    """A full disk and Ctrl-C in turn, until there is no further write to interrupt."""
    for at in range(1, 100, stride):
        request = in_folder(run, f"at{at}")
        shutil.copytree(unpublished, request.output)
        fault.arm(at, KeyboardInterrupt() if at % 2 else full_disk())
        try:
            train(request)
        except (OSError, KeyboardInterrupt):
            fault.arm(0)
        else:
            break
        train(request)
        assert published(request) == undisturbed, f"after an error at write {at}"
    assert at > 12, "too few writes were interrupted to prove anything"


def train_and_die(request: TrainingRequest, at: int) -> None:
    Fault().arm(at)
    train(request)


@pytest.mark.parametrize("stride", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_a_kill_at_any_write_of_publishing_is_repaired_by_the_same_command(
    processes: ForkServerContext, run: TrainingRequest, undisturbed: dict[str, object], unpublished: Path, stride: int
) -> None:
    for at in range(1, 100, stride):
        request = in_folder(run, f"at{at}")
        shutil.copytree(unpublished, request.output)
        process = processes.Process(target=train_and_die, args=(request, at))
        process.start()
        process.join()
        if process.exitcode == 0:
            break
        assert process.exitcode == -signal.SIGKILL
        train(request)
        assert published(request) == undisturbed, f"after a kill at write {at}"
    assert at > 12, "too few writes were interrupted to prove anything"


def test_an_interrupted_second_publication_is_repaired_too(run: TrainingRequest, fault: Fault) -> None:
    whole, request = in_folder(run, "whole"), in_folder(run, "again")
    more = {**SETTINGS, "train.steps": 8}
    train(whole)
    train(replace(whole, settings=more))
    train(request)
    fault.arm(2, full_disk(), names=("tokenizer.json",))
    with pytest.raises(OSError, match="No space left"):
        train(replace(request, settings=more))
    assert published_step(request.output) == 6
    train(replace(request, settings=more))
    assert published(request) == published(whole)


# Fine-tuning


@pytest.fixture
def tuned(run: TrainingRequest) -> TrainingRequest:
    """A run that starts from a model with a shortlist."""
    first = in_folder(run, "first")
    train(first)
    settings = {name: value for name, value in SETTINGS.items() if not name.startswith("model.")}
    settings |= {"train.base_model": str(first.output), "train.log_every": 1}
    return replace(in_folder(run, "tuned"), preset=None, settings=settings)


def test_a_run_that_is_not_published_has_no_shortlist_of_the_model_it_started_from(
    tuned: TrainingRequest, fault: Fault
) -> None:
    with pytest.raises(KeyboardInterrupt):
        train(tuned, InterruptingConsole(stderr=True))
    assert not (tuned.output / "shortlist.safetensors").exists()
    fault.arm(1, KeyboardInterrupt(), names=("model.safetensors",))
    with pytest.raises(KeyboardInterrupt):
        train(tuned)
    fault.arm(0)
    train(tuned)
    whole = in_folder(tuned, "whole")
    train(whole)
    assert published(tuned) == published(whole)


def test_a_model_without_a_shortlist_leaves_none(tuned: TrainingRequest) -> None:
    Path(str(tuned.settings["train.base_model"]), "shortlist.safetensors").unlink()
    train(tuned)
    assert load_shortlist(tuned.output) is None
    train(replace(tuned, settings={**tuned.settings, "train.steps": 8}))
    assert load_shortlist(tuned.output) is None


# Damage


def damage(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-5] ^= 1
    path.write_bytes(content)


def said_by(request: TrainingRequest) -> str:
    console = Console(record=True, stderr=True, width=200)
    train(request, console)
    return console.export_text()


def test_a_damaged_checkpoint_is_replaced_when_its_step_is_trained_again(
    run: TrainingRequest, undisturbed: dict[str, object]
) -> None:
    """The next to last one, so that the run trains through its step and averages it."""
    train(replace(run, settings={**SETTINGS, "train.steps": 4}))
    damage(run.output / "checkpoints" / "step-4" / "model.safetensors")
    assert "skipping damaged checkpoint" in said_by(run)
    assert (run.output / "model.safetensors").read_bytes() == undisturbed["model.safetensors"]
    verify(run.output / "checkpoints" / "step-4", FILES)


def test_a_damaged_checkpoint_of_a_published_run_is_replaced(run: TrainingRequest) -> None:
    request = replace(run, settings={**SETTINGS, "train.steps": 5})  # not one of the steps that are saved
    train(request)
    damage(request.output / "checkpoints" / "step-5" / "optimizer.safetensors")
    assert "skipping damaged checkpoint" in said_by(request)
    assert "skipping" not in said_by(request)


@pytest.mark.parametrize("step", [2, 4])
def test_a_damaged_checkpoint_among_those_averaged_does_not_stop_publishing(run: TrainingRequest, step: int) -> None:
    train(run)
    (run.output / "model.safetensors").unlink()
    damage(run.output / "checkpoints" / f"step-{step}" / "model.safetensors")
    said = said_by(run)
    assert "checksum mismatch" in said
    assert f"step-{step}/model.safetensors" in said
    assert is_published(run.output, 6)


def test_an_average_is_published_if_the_best_checkpoint_is_damaged(run: TrainingRequest) -> None:
    """A rate that explodes: the first validation is the best."""
    settings = {
        **SETTINGS,
        "train.lr_scale": 500.0,
        "train.validate_every": 1,
        "train.average_checkpoints": 2,
        "train.keep_checkpoints": 2,
    }
    request = replace(run, settings=settings)
    train(request)
    best = load_checkpoint(request.output / "checkpoints" / "step-6").state.best_step
    assert best < 4
    (request.output / "model.safetensors").unlink()
    damage(request.output / "checkpoints" / f"step-{best}" / "model.safetensors")
    assert "published the average of 2 checkpoints" in said_by(request)


@pytest.mark.parametrize("name", [name for name in PUBLISHED if name not in ("config.json", "SHA256SUMS")])
def test_a_published_file_that_is_missing_is_written_again(
    run: TrainingRequest, undisturbed: dict[str, object], name: str
) -> None:
    request = in_folder(run, "run")
    train(request)
    (request.output / name).unlink()
    train(request)
    assert published(request) == undisturbed


def test_a_published_model_that_is_damaged_is_published_again(run: TrainingRequest) -> None:
    train(run)
    path = run.output / "model.safetensors"
    whole = path.read_bytes()
    for content in (whole[:5000], b"", whole[:-9] + b"x" + whole[-8:]):
        path.write_bytes(content)
        train(run)
        assert path.read_bytes() == whole


def test_a_card_that_was_edited_stays(run: TrainingRequest) -> None:
    train(run)
    (run.output / "README.md").write_text("my card", encoding="utf-8")
    train(run)
    assert (run.output / "README.md").read_text(encoding="utf-8") == "my card"
