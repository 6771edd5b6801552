"""A model folder is opened without reading its weights; its provenance is read leniently."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from multihead.errors import UserError
from multihead.model.transformer import Transformer
from multihead.model.weights import count_parameters, to_arrays, weights_of
from multihead.storage.checkpoints import FILES
from multihead.storage.checksums import CHECKSUM_FILE, checksums
from multihead.storage.model_folder import (
    WEIGHTS,
    ModelFolder,
    Provenance,
    PublishedScore,
    is_published,
    published_step,
    read_provenance,
    replace_config,
    save_model,
)
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import SubwordTokenizer
from tests.conftest import store_model, tiny_shape

TOKENIZER = SubwordTokenizer.learn(["a b c"], 300)
SCORE = PublishedScore(set="test", name="BLEU", value=41.5, signature="nrefs:1")


def make_model(**changes: object) -> Transformer:
    torch.manual_seed(1)
    return Transformer(tiny_shape(vocab_size=TOKENIZER.vocab_size, **changes))


def test_a_stored_model_opens_again(tmp_path: Path) -> None:
    model, shortlist = make_model(), Shortlist(np.full((260, 1), 5), np.array([6]))
    stored = store_model(tmp_path / "model", model, TOKENIZER, shortlist)
    expected = to_arrays(weights_of(model))
    assert (stored.root, stored.path, stored.config.model) == (tmp_path / "model", tmp_path / "model", model.config)
    assert stored.weights().keys() == expected.keys()
    assert all(np.array_equal(array, expected[name]) for name, array in stored.weights().items())
    assert stored.tokenizer().encode("a b") == TOKENIZER.encode("a b")
    loaded = stored.shortlist()
    assert loaded is not None
    assert loaded.frequent.tolist() == [6]
    assert published_step(tmp_path / "model") == 7


@pytest.mark.parametrize("tie", ["all", "target", "none"])
def test_parameters_are_counted_from_the_header(tmp_path: Path, tie: str) -> None:
    model = make_model(tie_embeddings=tie)
    stored = store_model(tmp_path / "model", model, TOKENIZER)
    assert stored.n_parameters == stored.facts()["parameters"] == count_parameters(model)


def test_of_an_interrupted_run_the_newest_valid_checkpoint_is_opened(tmp_path: Path) -> None:
    for step in (9, 10):
        folder = store_model(tmp_path / "checkpoints" / f"step-{step}", make_model(), TOKENIZER).path
        for name in set(FILES) - {path.name for path in folder.iterdir()}:
            (folder / name).touch()
        (folder / CHECKSUM_FILE).write_text(checksums({name: folder / name for name in FILES}))
    (tmp_path / "checkpoints" / "step-10" / "state.json").write_text("damaged")
    lines: list[str] = []
    opened = ModelFolder.open(tmp_path, lines.append)
    assert (opened.root, opened.path) == (tmp_path, tmp_path / "checkpoints" / "step-9")
    assert lines[-1] == f"{tmp_path} is not published yet: using its newest checkpoint, step-9"
    assert published_step(tmp_path) is None


def test_a_folder_that_is_not_a_model_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no model folder"):
        ModelFolder.open(tmp_path / "missing")
    with pytest.raises(UserError, match="the folder is empty"):
        ModelFolder.open(tmp_path)
    (tmp_path / "notes.txt").touch()
    with pytest.raises(UserError, match=r"config\.json"):
        ModelFolder.open(tmp_path)


def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    other = SubwordTokenizer.learn(["other words entirely " * 3] * 3, 270)
    with pytest.raises(UserError, match=r"pieces, but model\.vocab_size"):
        store_model(tmp_path, make_model(), other).tokenizer()


def test_damaged_weights_are_refused_when_they_are_read(tmp_path: Path) -> None:
    stored = store_model(tmp_path, make_model(), TOKENIZER)
    (tmp_path / WEIGHTS).write_bytes(b"\x80\x04pickle")
    with pytest.raises(UserError, match=r"cannot read .*model\.safetensors"):
        stored.weights()
    with pytest.raises(UserError, match=r"cannot read .*model\.safetensors"):
        assert stored.n_parameters
    assert published_step(tmp_path) is None


def test_a_published_model_is_complete_and_readable_by_others(tmp_path: Path) -> None:
    store_model(tmp_path, make_model(), TOKENIZER)
    assert not is_published(tmp_path, 7)  # without a model card
    (tmp_path / "README.md").touch()
    assert is_published(tmp_path, 7)
    assert not is_published(tmp_path, 8)
    assert (tmp_path / WEIGHTS).stat().st_mode & 0o044
    (tmp_path / "tokenizer.json").write_text("changed")
    assert not is_published(tmp_path, 7)


# Provenance


def test_a_provenance_is_stored_and_read_again(tmp_path: Path) -> None:
    stored = store_model(tmp_path, make_model(), TOKENIZER)
    provenance = Provenance(steps=5, seconds=1.5, validation={"loss": 1.25}, scores=(SCORE,), other={"later": [1]})
    save_model(tmp_path, stored.weights(), stored.config, TOKENIZER.files(), provenance)
    assert read_provenance(tmp_path) == ModelFolder.open(tmp_path).provenance == provenance
    document = json.loads((tmp_path / "config.json").read_text())["provenance"]
    assert document == provenance.to_json()
    assert list(document) == ["steps", "seconds", "validation", "scores", "later"]


@pytest.mark.parametrize("document", [None, [], "text", {}, {"steps": None}])
def test_a_missing_provenance_has_no_fields(document: object) -> None:
    assert Provenance.from_json(document).to_json() in ({}, {"steps": None})


def test_fields_of_another_type_are_kept_without_being_used() -> None:
    document = {"steps": "many", "seconds": 3, "scores": [{"name": "BLEU"}], "unknown": {"a": 1}}
    provenance = Provenance.from_json(document)
    assert (provenance.steps, provenance.seconds, provenance.scores) == (None, 3.0, ())
    assert provenance.to_json() == document


def test_the_bundled_model_keeps_its_provenance_word_by_word() -> None:
    folder = ModelFolder.open(Path(sys.modules["multihead"].__file__ or "").parent / "bundled" / "en-de")
    document = json.loads((folder.path / "config.json").read_text(encoding="utf-8"))["provenance"]
    assert json.dumps(folder.provenance.to_json()) == json.dumps(document)


def test_a_folder_is_read_without_torch(tmp_path: Path) -> None:
    stored = store_model(tmp_path / "model", make_model(), TOKENIZER)
    script = (
        "import sys; sys.modules['torch'] = None\n"
        "from pathlib import Path\n"
        "from multihead.storage.model_folder import ModelFolder\n"
        "model = ModelFolder.open(Path(sys.argv[1]))\n"
        "print(model.n_parameters, len(model.weights()), model.tokenizer().vocab_size, model.shortlist())"
    )
    command: list[str | Path] = [sys.executable, "-c", script, tmp_path / "model"]
    result = subprocess.run(command, capture_output=True, text=True, check=True)
    n_parameters, n_arrays = stored.n_parameters, len(stored.weights())
    assert result.stdout == f"{n_parameters} {n_arrays} {TOKENIZER.vocab_size} None\n"


@pytest.mark.parametrize(("stored", "layer"), [(None, 1), (0, 0), (1, 1)])
def test_the_alignment_layer_is_the_last_unless_the_model_names_one(
    tmp_path: Path, stored: int | None, layer: int
) -> None:
    store_model(tmp_path, make_model(decoder_layers=2), TOKENIZER)
    document = json.loads((tmp_path / "config.json").read_text())
    search = {} if stored is None else {"alignment_layer": stored}
    replace_config(tmp_path, json.dumps({**document, "search": search}))
    assert ModelFolder.open(tmp_path).alignment_layer == layer


@pytest.mark.parametrize(
    ("stored", "message"),
    [(2, r"search\.alignment_layer=2, but there are 2 layers"), (-1, "alignment_layer"), ("x", "alignment_layer")],
)
def test_an_alignment_layer_that_does_not_exist_is_refused(tmp_path: Path, stored: object, message: str) -> None:
    store_model(tmp_path, make_model(decoder_layers=2), TOKENIZER)
    document = json.loads((tmp_path / "config.json").read_text())
    replace_config(tmp_path, json.dumps({**document, "search": {"alignment_layer": stored}}))
    with pytest.raises(UserError, match=message):
        print(ModelFolder.open(tmp_path).alignment_layer)
