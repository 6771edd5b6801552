"""Runs from raw text to a model that loads again."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from rich.console import Console

import multihead
from multihead.config.schema import Settings
from multihead.errors import UsageError, UserError
from multihead.model.weights import load_model
from multihead.runs.log import read_log
from multihead.runs.publishing_time import FIXED_SECONDS, MARGIN
from multihead.runs.request import TrainingRequest
from multihead.runs.setup import setup_run
from multihead.runs.train import train
from multihead.runs.tuning import ALPHAS
from multihead.storage.checkpoints import saved_steps
from multihead.storage.model_folder import published_step, read_config, read_provenance, read_search
from tests.conftest import QUICK, copy_or_reverse, write_pairs

BY_HEART = {
    "model.d_model": 64,
    "model.dropout": 0.0,
    "data.batch_tokens": 512,
    "train.steps": 300,
    "train.average_checkpoints": 2,
    "train.validate_every": 20,
    "train.bleu_sentences": 100,
}


def talk_of(request: TrainingRequest) -> str:
    console = Console(record=True, stderr=True, width=200)
    train(request, console)
    return console.export_text()


def test_a_tiny_model_learns_to_copy_and_to_reverse(trained: Path) -> None:
    """Every one of 200 sentences that it has not seen, with its numbers as they are: int8 may cost one."""
    seen = set(copy_or_reverse(12_000, seed=1))
    unseen = [pair for pair in copy_or_reverse(400, seed=2) if pair not in seen][:200]
    translations = multihead.load(trained, engine="torch").translate([source for source, _ in unseen], beam=1)
    assert [translation.text for translation in translations] == [target for _, target in unseen]


def test_a_run_leaves_what_the_contract_promises(quick_request: TrainingRequest) -> None:
    said = talk_of(quick_request)
    output = quick_request.output
    assert {
        "config.json",
        "model.safetensors",
        "tokenizer.json",
        "README.md",
        "log.jsonl",
        "training.png",
        "tensorboard",
    } <= {path.name for path in output.iterdir()}
    assert list((output / "tensorboard").glob("events.out.tfevents.*"))
    records = read_log(output)
    assert {"step", "loss", "perplexity", "learning_rate", "tokens_per_second"} <= records[0].keys()
    assert "published_bleu" in records[-1]
    assert [record for record in records if "valid_bleu" in record]
    assert "greedy BLEU (4) " in said
    assert "published BLEU " in said
    assert max(len(line) for line in said.splitlines() if line.startswith("step ")) <= 80
    assert "all 24 steps are done" in said
    assert "reference" in said
    assert "export formats: ctranslate2, marian, onnx" in said
    model, _, config = load_model(output)
    assert config.model.d_model == model.config.d_model == 16


def test_the_python_interface_is_the_same_run(toy_text: tuple[Path, Path], tmp_path: Path) -> None:
    source, target = map(str, toy_text)
    folder = multihead.train(
        source=source, target=target, output=str(tmp_path / "run"), preset="base", settings={**QUICK, "train.steps": 2}
    )
    assert published_step(folder) == 2


def test_a_finished_run_has_nothing_to_do(quick_request: TrainingRequest) -> None:
    train(quick_request)
    before = (quick_request.output / "model.safetensors").stat().st_mtime_ns
    assert "raise --steps" in talk_of(quick_request)
    assert (quick_request.output / "model.safetensors").stat().st_mtime_ns == before


def test_a_finished_run_goes_on_with_more_steps(quick_request: TrainingRequest) -> None:
    train(quick_request)
    train(TrainingRequest(output=quick_request.output, settings={"train.steps": 30}))
    assert published_step(quick_request.output) == 30
    steps = [record["step"] for record in read_log(quick_request.output) if "loss" in record]
    assert steps == [4, 8, 12, 16, 20, 24, 28]


def test_what_fits_the_text_is_picked_and_said(quick_request: TrainingRequest) -> None:
    """Few pairs take a small model; a run of 3 steps sees none of them often enough to need dropout."""
    settings = {name: value for name, value in QUICK.items() if name.startswith(("data.", "train."))}
    said = talk_of(replace(quick_request, preset=None, settings={**settings, "train.steps": 3}))
    assert "Using preset tiny for 113 sentence pairs" in said
    assert "Using dropout 0 for" in said
    chosen = read_config(quick_request.output)
    assert (chosen.model.d_model, chosen.model.dropout, chosen.train.optimizer) == (128, 0.0, "muon")


def test_few_pairs_and_much_time_are_trained_thoroughly(quick_request: TrainingRequest) -> None:
    """Two hours are many passes over a hundred pairs; the dropout is the preset's own."""
    settings = {name: value for name, value in QUICK.items() if name.startswith("data.")}
    asked = replace(quick_request, preset=None, settings={**settings, "train.minutes": 120})
    quick_request.output.mkdir()
    said: list[str] = []
    chosen, _ = setup_run(asked, said.append, n_processes=1)
    assert any(line.startswith("Using preset thorough for 113 sentence pairs") for line in said)
    assert (chosen.model.d_model, chosen.model.dropout, chosen.train.r_drop) == (256, 0.25, 3.0)


def test_a_published_model_says_how_it_translates_best(quick_request: TrainingRequest) -> None:
    """The choice stays when the run is resumed, and is what `multihead.load` uses."""
    asked = replace(quick_request, settings={**QUICK, "train.alpha": "auto", "train.steps": 6})
    train(asked)
    document = json.loads((asked.output / "config.json").read_text(encoding="utf-8"))
    assert document["search"]["alpha"] in ALPHAS
    train(replace(asked, settings={**asked.settings, "train.log_every": 3}))
    assert read_search(asked.output).alpha == document["search"]["alpha"]
    assert multihead.load(asked.output).search == read_search(asked.output)


def test_the_papers_presets_keep_the_papers_length_penalty(quick_request: TrainingRequest) -> None:
    train(replace(quick_request, settings={**QUICK, "train.steps": 6}))
    assert read_search(quick_request.output).alpha == 0.6


def test_what_the_user_sets_is_not_picked(quick_request: TrainingRequest) -> None:
    settings = {**QUICK, "train.steps": 3, "model.dropout": 0.25, "train.optimizer": "adam"}
    train(replace(quick_request, preset=None, settings=settings))
    chosen = read_config(quick_request.output)
    assert (chosen.model.d_model, chosen.model.dropout, chosen.train.optimizer) == (16, 0.25, "adam")


def test_a_time_limit_leaves_time_to_publish(quick_request: TrainingRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only time ends the run, not the steps of the preset; the same command again trains no further."""
    seconds = itertools.count()  # each look at the clock takes a second
    clock = SimpleNamespace(monotonic=lambda: float(next(seconds)), perf_counter=time.perf_counter)
    monkeypatch.setattr("multihead.runs.loop.time", clock)
    settings: Settings = {**QUICK, "train.minutes": 5, "train.validate_every": 50, "train.save_every": 50}
    request = replace(quick_request, settings={name: settings[name] for name in settings if name != "train.steps"})
    assert "the limit of 5 minutes is reached" in talk_of(request)
    step, provenance = published_step(request.output), read_provenance(request.output)
    assert read_config(request.output).train.steps == 0
    assert step is not None and step > 24
    assert provenance.seconds is not None and provenance.seconds + MARGIN * FIXED_SECONDS < 300
    assert "the limit of 5 minutes is reached; raise --steps or --minutes to continue" in talk_of(request)
    assert published_step(request.output) == step


def test_a_run_without_a_step_publishes_nothing(quick_request: TrainingRequest) -> None:
    """Fine-tuning of one step more: the time is over before it."""
    request = replace(quick_request, settings={**QUICK, "train.minutes": 1e-4})
    with pytest.raises(UserError, match=r"the limit of 0\.0001 minutes is reached before the first step"):
        train(request)
    assert published_step(request.output) is None
    train(replace(request, settings={**QUICK, "train.minutes": 5}))
    assert published_step(request.output) == 24


def test_a_run_without_improvement_stops_early(quick_request: TrainingRequest) -> None:
    settings = {**QUICK, "train.lr_scale": 1e-12, "train.steps": 1000, "train.patience": 2, "train.validate_every": 2}
    assert "no better validation loss" in talk_of(replace(quick_request, settings=settings))


def test_the_best_checkpoint_is_kept_and_published_when_the_average_is_worse(quick_request: TrainingRequest) -> None:
    """A rate that explodes after a good start: the last checkpoints are worse than an early one."""
    train(replace(quick_request, settings={**QUICK, "train.steps": 8}))
    settings = {
        **QUICK,
        "train.lr_scale": 500.0,
        "train.keep_checkpoints": 2,
        "train.average_checkpoints": 2,
        "train.validate_every": 2,
    }
    request = replace(quick_request, output=quick_request.output.with_name("wild"), settings=settings)
    said = talk_of(request)
    best = min((record["valid_loss"], record["step"]) for record in read_log(request.output) if "valid_loss" in record)
    assert best[1] in saved_steps(request.output / "checkpoints")
    published = read_log(request.output)[-1]
    assert published["valid_loss"] <= best[0] + 1e-6, said


def test_what_translates_better_is_published_though_its_loss_is_higher(tmp_path: Path) -> None:
    """Some sentences learned by heart: the loss on others rises, and what is said of them gets better still."""
    source, target = write_pairs(tmp_path, copy_or_reverse(300, seed=3))
    settings = {**QUICK, **BY_HEART}
    request = TrainingRequest(output=tmp_path / "run", source=source, target=target, preset="tiny", settings=settings)
    said = talk_of(request)
    lowest = min(record["valid_loss"] for record in read_log(request.output) if "valid_loss" in record)
    published = read_log(request.output)[-1]
    assert published["valid_loss"] > lowest + 0.1, said
    assert "published the average of 2 checkpoints" in said


def test_a_run_whose_gradients_are_never_usable_is_stopped_in_words(quick_request: TrainingRequest) -> None:
    settings = {**QUICK, "train.lr_scale": 1e38, "train.warmup": 1}
    with pytest.raises(UserError, match=r"infinite or undefined for 10 steps in a row.*train\.lr_scale"):
        train(replace(quick_request, settings=settings))
    lines = (quick_request.output / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert json.loads(lines[0], parse_constant=pytest.fail)["loss"] is None


def test_text_can_be_prepared_first(quick_request: TrainingRequest, tmp_path: Path) -> None:
    from multihead.config.resolve import configure
    from multihead.data.parallel_text import from_files
    from multihead.data.prepare import prepare

    assert quick_request.source and quick_request.target
    prepare(from_files(quick_request.source, quick_request.target), tmp_path / "data", configure(QUICK).data)
    prepared = TrainingRequest(output=tmp_path / "from-data", data=tmp_path / "data", preset="base", settings=QUICK)
    train(prepared)
    train(quick_request)
    models = [(folder / "model.safetensors").read_bytes() for folder in (prepared.output, quick_request.output)]
    assert models[0] == models[1]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"model.d_ff": 64}, r"has model\.d_ff=32, but --set sets model\.d_ff=64"),
        ({"train.seed": 2}, r"has train\.seed=1, but --set sets train\.seed=2"),
        ({"data.batch_tokens": 200}, r"data\.batch_tokens"),
    ],
)
def test_a_run_cannot_become_another_run(quick_request: TrainingRequest, change: dict[str, object], words: str) -> None:
    train(replace(quick_request, settings={**QUICK, "train.steps": 1}))
    with pytest.raises(UsageError, match=words):
        train(replace(quick_request, settings={**QUICK, **change}))


def test_a_run_cannot_go_on_with_other_text(quick_request: TrainingRequest, tmp_path: Path) -> None:
    train(replace(quick_request, settings={**QUICK, "train.steps": 1}))
    source, target = write_pairs(tmp_path, copy_or_reverse(50, seed=9))
    with pytest.raises(UserError, match="different data"):
        train(replace(quick_request, source=source, target=target))


@pytest.mark.parametrize("field", ["target", "valid_target"])
def test_files_come_in_pairs(quick_request: TrainingRequest, field: str) -> None:
    changes: dict[str, Path | None] = {"target": None} if field == "target" else {"valid_target": Path("x")}
    with pytest.raises(UsageError, match="must be given together"):
        replace(quick_request, **changes)  # type: ignore[arg-type]  # paths where paths belong


def test_bpe_dropout_and_learned_positions_train(quick_request: TrainingRequest) -> None:
    settings = {**QUICK, "data.bpe_dropout": 0.2, "model.positions": "learned", "train.accumulate": 2}
    train(replace(quick_request, settings=settings))
    assert published_step(quick_request.output) == 24


def start(request: TrainingRequest, *more: str) -> subprocess.Popen[str]:
    """The command line in a process of its own."""
    settings = [f"--set={name}={value}" for name, value in request.settings.items()]
    command = [sys.executable, "-m", "multihead", "train", f"--source={request.source}", f"--target={request.target}"]
    command += [f"--output={request.output}", f"--preset={request.preset}", *settings, *more]
    return subprocess.Popen(command, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_ends_the_command_as_signals_do_and_the_same_command_resumes(
    quick_request: TrainingRequest, number: signal.Signals
) -> None:
    settings = {**QUICK, "train.steps": 400, "train.save_every": 100, "train.validate_every": 100}
    request = replace(quick_request, settings=settings)
    process = start(request)
    while not read_log(request.output):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (128 + number, ""), err
    assert f"received {number.name}; run the same command again to resume" in err
    assert "Traceback" not in err
    stopped_at = saved_steps(request.output / "checkpoints")[-1]
    assert stopped_at < 400
    info = subprocess.run(
        [sys.executable, "-m", "multihead", "info", request.output], capture_output=True, text=True, check=True
    )
    assert info.stderr == f"{request.output} is not published yet: using its newest checkpoint, step-{stopped_at}\n"

    train(request)
    whole = replace(request, output=request.output.with_name("whole"))
    train(whole)
    models = [(folder / "model.safetensors").read_bytes() for folder in (request.output, whole.output)]
    assert models[0] == models[1]


def test_a_second_writer_is_refused(quick_request: TrainingRequest) -> None:
    process = start(replace(quick_request, settings={**QUICK, "train.steps": 100_000}))
    try:
        while not read_log(quick_request.output):
            assert process.poll() is None
            time.sleep(0.02)
        with pytest.raises(UserError, match="another process is writing"):
            train(quick_request)
    finally:
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()


def test_the_log_is_json_lines(quick_request: TrainingRequest) -> None:
    train(quick_request)
    lines = (quick_request.output / "log.jsonl").read_text(encoding="utf-8").splitlines()
    assert all("step" in json.loads(line) for line in lines)


def test_a_run_that_cannot_end_is_warned_of(quick_request: TrainingRequest) -> None:
    settings = {**QUICK, "train.steps": 10**10, "train.minutes": 100_000, "train.patience": 1, "train.lr_scale": 1e-12}
    said = talk_of(replace(quick_request, settings={**settings, "train.validate_every": 5}))
    assert said.count("warning: at this speed the run takes") == 1


def test_a_run_from_before_normalization_resumes_without_it(quick_request: TrainingRequest) -> None:
    train(replace(quick_request, settings={**QUICK, "train.steps": 12}))
    path = quick_request.output / "config.json"
    document = json.loads(path.read_text(encoding="utf-8"))
    del document["data"]["unicode"]
    path.write_text(json.dumps(document), encoding="utf-8")
    train(quick_request)
    assert saved_steps(quick_request.output / "checkpoints")[-1] == 24
    assert load_model(quick_request.output)[2].data.unicode == "none"
