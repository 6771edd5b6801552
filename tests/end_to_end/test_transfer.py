"""Runs that take over a part of a trained model: its layers with a new vocabulary, or its text as well."""

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from multihead.config.schema import Settings
from multihead.data.shards import read_summary
from multihead.errors import UsageError
from multihead.model.weights import load_model, weights_of
from multihead.runs.estimate import estimate_run
from multihead.runs.request import TrainingRequest
from multihead.runs.setup import prepare_corpus
from multihead.runs.train import train
from multihead.storage.model_folder import read_config
from tests.conftest import QUICK, copy_or_reverse, write_pairs

PAIRS = copy_or_reverse(200, seed=2)
OTHER_WORDS = str.maketrans("abcdefghij", "qrstuvwxyz")
FEW_STEPS: Settings = {**QUICK, "train.steps": 6, "train.save_every": 2, "train.validate_every": 2}


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("parent")
    source, target = write_pairs(folder, copy_or_reverse(300, seed=1))
    train(TrainingRequest(output=folder / "run", source=source, target=target, preset="tiny", settings=FEW_STEPS))
    return folder / "run"


def request_for(parent: Path, folder: Path, **options: object) -> TrainingRequest:
    """A run on text with other words."""
    pairs = [(one.translate(OTHER_WORDS), two.translate(OTHER_WORDS)) for one, two in PAIRS]
    source, target = write_pairs(folder, pairs)
    settings = {**FEW_STEPS, "train.base_model": str(parent), **options}
    return TrainingRequest(output=folder / "run", source=source, target=target, settings=settings)


def cut_off(run: Path, after: int) -> None:
    """Leave a run as it is when its process dies after a step, before the next one is saved."""
    (run / "model.safetensors").unlink()
    for checkpoint in (run / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step-")) > after:
            shutil.rmtree(checkpoint)


def published(run: Path) -> list[bytes]:
    return [(run / name).read_bytes() for name in ("model.safetensors", "tokenizer.json")]


# A new vocabulary


def test_the_layers_are_the_models_and_the_vocabulary_is_that_of_the_text(parent: Path, tmp_path: Path) -> None:
    request = request_for(parent, tmp_path, **{"train.new_vocabulary": True, "train.lr_scale": 1e-9, "train.steps": 1})
    train(request)
    model, tokenizer, config = load_model(request.output)
    old, old_tokenizer, old_config = load_model(parent)
    assert config.model.d_model == old_config.model.d_model
    assert tokenizer.to_json() != old_tokenizer.to_json()
    weights, old_weights = weights_of(model), weights_of(old)
    (before,), (after,) = (one.encode("k") for one in (old_tokenizer, tokenizer))
    assert weights["source_embedding.weight"][after].allclose(old_weights["source_embedding.weight"][before], atol=1e-4)
    for name in weights:
        if "embedding" not in name:
            assert weights[name].allclose(old_weights[name], atol=1e-4), name


@pytest.mark.parametrize("option", ["train.new_vocabulary", "data.rehearse"])
def test_interrupted_a_transfer_ends_with_the_same_bytes(parent: Path, tmp_path: Path, option: str) -> None:
    request = request_for(parent, tmp_path, **{option: True if option.startswith("train") else 1.0})
    train(request)
    whole = published(request.output)
    cut_off(request.output, after=2)
    train(request)
    assert published(request.output) == whole


def test_a_new_vocabulary_is_learned_at_the_full_rate(parent: Path, tmp_path: Path) -> None:
    rates = {}
    for is_new in (True, False):
        folder = tmp_path / str(is_new)
        folder.mkdir()
        request = request_for(parent, folder, **{"train.new_vocabulary": is_new, "train.steps": 1})
        train(request)
        rates[is_new] = read_config(request.output).train.lr_scale
    assert rates[True] > 2 * rates[False]


def test_a_new_vocabulary_without_a_model_is_refused(parent: Path, tmp_path: Path) -> None:
    request = request_for(parent, tmp_path, **{"train.new_vocabulary": True, "train.base_model": ""})
    with pytest.raises(UsageError, match="add --from MODEL"):
        train(request)


def test_plan_takes_the_model_of_a_transfer(parent: Path, tmp_path: Path) -> None:
    estimate = estimate_run(request_for(parent, tmp_path, **{"train.new_vocabulary": True}), measured_steps=1)
    assert estimate.parameters < load_parameters(parent) * 1.5


def load_parameters(run: Path) -> int:
    return sum(weight.numel() for weight in weights_of(load_model(run)[0]).values())


# The text of a model


def test_a_run_rehearses_the_text_of_its_model_and_says_so(parent: Path, tmp_path: Path) -> None:
    console = Console(record=True, stderr=True, width=200)
    request = request_for(parent, tmp_path)
    train(request, console)
    assert "Rehearsing text of" in console.export_text()
    new, old = read_summary(request.output / "data").parts
    assert new.weight * new.pairs == pytest.approx(old.weight * old.pairs)
    shutil.rmtree(request.output / "checkpoints")
    train(request)  # it needs the text of its model no more


@pytest.mark.parametrize("option", [{"data.rehearse": 0.0}, {"train.new_vocabulary": True}, {"data.target_lang": "fr"}])
def test_nothing_is_rehearsed_if_that_is_not_wanted_or_makes_no_sense(
    parent: Path, tmp_path: Path, option: Settings
) -> None:
    request = request_for(parent, tmp_path, **option)
    prepare_corpus(request, print)
    assert len(read_summary(request.output).parts) == 1


def test_what_cannot_be_rehearsed_is_refused_with_the_reason(parent: Path, tmp_path: Path) -> None:
    bare = tmp_path / "bare"
    shutil.copytree(parent, bare, ignore=shutil.ignore_patterns("data"))
    with pytest.raises(UsageError, match="comes without the text that it was trained on"):
        train(request_for(bare, tmp_path, **{"data.rehearse": 1.0}))
    with pytest.raises(UsageError, match="it is for fine-tuning"):
        train(request_for(parent, tmp_path, **{"data.rehearse": 1.0, "train.base_model": ""}))
    prepared = replace(request_for(parent, tmp_path, **{"data.rehearse": 1.0}), source=None, target=None, data=parent)
    with pytest.raises(UsageError, match="prepare it again"):
        train(replace(prepared, data=parent / "data"))


def test_corrections_are_a_corpus_with_a_weight(parent: Path, tmp_path: Path) -> None:
    """As `multihead train --from my-model --corpus fixes.tsv --weight 5`."""
    fixes = tmp_path / "fixes.tsv"
    fixes.write_text("".join(f"copy {n} k\tfixed {n} k\n" for n in range(40)), encoding="utf-8")
    request = replace(request_for(parent, tmp_path), source=None, target=None, corpora=[fixes], weights=[5.0])
    languages = {"data.source_lang": "en", "data.target_lang": "de"}
    request = replace(request, settings={**request.settings, **languages, "data.rehearse": 0.0})
    train(request)
    assert read_summary(request.output / "data").parts[0].weight == 5
    assert json.loads((request.output / "config.json").read_text(encoding="utf-8"))["data"]["rehearse"] == 0
