"""Runs that start from a trained model, with other text."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

import multihead
from multihead.config.fit import for_fine_tuning
from multihead.config.presets import preset
from multihead.config.schema import Settings
from multihead.errors import UsageError, UserError
from multihead.model.weights import load_model, weights_of
from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from multihead.storage.model_folder import read_config, read_provenance, replace_config
from multihead.storage.shortlist import load_shortlist
from multihead.text.tokenizer import EOS_ID

# So little that a model is afterwards what it was before.
ONE_STEP: Settings = {"train.steps": 1, "train.lr_scale": 1e-6, "data.max_length": 32, "data.batch_tokens": 512}


@pytest.fixture
def request_from(toy_text: tuple[Path, Path], trained: Path, tmp_path: Path) -> TrainingRequest:
    source, target = toy_text
    settings = {**ONE_STEP, "train.base_model": str(trained)}
    return TrainingRequest(output=tmp_path / "run", source=source, target=target, settings=settings)


def with_settings(request: TrainingRequest, settings: Settings) -> TrainingRequest:
    return replace(request, settings={**request.settings, **settings})


def copy_of(model: Path, folder: Path, **data: str) -> Path:
    """The model alone, with other entries in its configuration."""
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("checkpoints", "data", "tensorboard"))
    stored = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    stored["data"] |= data
    replace_config(folder, json.dumps(stored))
    return folder


def same_weights(one: Path, other: Path) -> bool:
    models = [load_model(folder)[0] for folder in (one, other)]
    weights, others = map(weights_of, models)
    return all(torch.allclose(weights[name], others[name], atol=1e-4) for name in weights)


def test_a_run_begins_with_the_shape_vocabulary_and_weights_of_its_model(
    request_from: TrainingRequest, trained: Path
) -> None:
    console = Console(record=True, stderr=True, width=200)
    train(request_from, console)
    _, tokenizer, config = load_model(request_from.output)
    _, its_tokenizer, its_config = load_model(trained)
    assert same_weights(request_from.output, trained)
    assert tokenizer.to_json() == its_tokenizer.to_json()
    assert replace(config.model, dropout=0.0) == its_config.model  # how much is dropped is the run's own
    assert f"Fine-tuning {trained}" in console.export_text()


def test_the_card_and_the_facts_name_the_model(request_from: TrainingRequest, trained: Path) -> None:
    train(request_from)
    assert f"fine-tuned from {trained.name}:" in (request_from.output / "README.md").read_text(encoding="utf-8")
    assert read_provenance(request_from.output).started_from == str(trained)


def test_what_the_model_could_say_it_can_say_still(request_from: TrainingRequest, trained: Path) -> None:
    train(request_from)
    before, after = load_shortlist(trained), load_shortlist(request_from.output)
    assert before and after
    for could, can in zip(before.candidates.tolist(), after.candidates.tolist(), strict=True):
        assert set(could) <= {*can, EOS_ID}


def test_a_run_that_was_cut_off_before_its_first_checkpoint_starts_from_the_model_again(
    request_from: TrainingRequest, trained: Path
) -> None:
    train(request_from)
    shutil.rmtree(request_from.output / "checkpoints")
    (request_from.output / "model.safetensors").unlink()
    train(replace(request_from, settings=ONE_STEP))  # the run knows by itself
    assert same_weights(request_from.output, trained)


def test_a_run_goes_on_after_its_model_is_gone(request_from: TrainingRequest, trained: Path, tmp_path: Path) -> None:
    model = copy_of(trained, tmp_path / "model")
    begun = with_settings(request_from, {"train.base_model": str(model)})
    train(begun)
    shutil.rmtree(model)
    train(with_settings(begun, {"train.steps": 2}))
    assert read_provenance(begun.output).steps == 2
    assert load_shortlist(begun.output)


@pytest.mark.parametrize(("setting", "value"), [("model.d_model", 32), ("model.vocab_size", 1000)])
def test_a_setting_that_would_make_it_another_model_is_refused(
    request_from: TrainingRequest, setting: str, value: int
) -> None:
    with pytest.raises(UsageError, match=rf"base model .* has {setting}=\d+, but --set sets {setting}={value}"):
        train(with_settings(request_from, {setting: value}))


def test_a_preset_says_how_to_train_and_not_what_the_model_is(request_from: TrainingRequest, trained: Path) -> None:
    train(replace(request_from, preset="small"))
    shape = read_config(request_from.output).model
    assert shape.d_model == read_config(trained).model.d_model != preset("small")["model.d_model"]


def test_a_trained_model_is_trained_on_more_gently() -> None:
    new, trained_on = preset("tiny"), for_fine_tuning(preset("tiny"))
    assert trained_on["train.lr_scale"] < new["train.lr_scale"]  # type: ignore[operator]  # both are numbers
    assert trained_on["train.steps"] < new["train.steps"]  # type: ignore[operator]
    assert {name for name in new if new[name] != trained_on[name]} == {"train.lr_scale", "train.steps"}


def test_languages_are_the_models_if_nothing_else_is_said(
    request_from: TrainingRequest, trained: Path, tmp_path: Path
) -> None:
    model = copy_of(trained, tmp_path / "model", source_lang="en", target_lang="de")
    train(with_settings(request_from, {"train.base_model": str(model), "data.target_lang": "fr"}))
    data = read_config(request_from.output).data
    assert (data.source_lang, data.target_lang) == ("en", "fr")


def test_a_model_that_is_not_there_is_refused_before_any_work(request_from: TrainingRequest) -> None:
    with pytest.raises(UserError, match="there is no model 'nowhere'"):
        train(with_settings(request_from, {"train.base_model": "nowhere"}))
    assert not (request_from.output / "data").exists()


def test_the_bundled_model_learns_more_from_the_command_line(tmp_path: Path) -> None:
    """Text is prepared with its vocabulary, and text that has another one is refused."""
    source, target = tmp_path / "a.en", tmp_path / "a.de"
    source.write_text("".join(f"We rent out room {n}.\n" for n in range(200)), encoding="utf-8")
    target.write_text("".join(f"Wir vermieten Zimmer {n}.\n" for n in range(200)), encoding="utf-8")
    text = ["--source", str(source), "--target", str(target)]

    def multihead_(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "multihead", *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert multihead_("prepare", *text, "--from", "en-de", "--output", "text").returncode == 0
    assert multihead_("prepare", *text, "--output", "other").returncode == 0
    refused = multihead_("train", "--data", "other", "--from", "en-de", "--output", "run")
    assert refused.returncode == 1
    assert "was prepared with a different vocabulary than en-de" in refused.stderr
    done = multihead_("train", "--data", "text", "--from", "en-de", "--output", "run", "--steps", "2")
    assert done.returncode == 0, done.stderr
    assert multihead.load(tmp_path / "run").translate("Good evening!").text == "Guten Abend!"
