"""Damaged models and prepared data are refused with a message that names the file."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from multihead.cli.main import app
from multihead.config.resolve import configure
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.data.shards import check_corpus, verify_corpus
from multihead.errors import UserError
from multihead.interop.export_cache import cached_export
from multihead.storage.arrays import Arrays, read_arrays, write_arrays
from multihead.storage.checksums import CHECKSUM_FILE
from multihead.storage.files import BUNDLED
from multihead.storage.model_folder import WEIGHTS, ModelFolder
from multihead.storage.shortlist import FILE, load_shortlist


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return shutil.copytree(BUNDLED / "lesson", tmp_path / "model")


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def read_all(folder: Path) -> None:
    stored = ModelFolder.open(folder)
    stored.tokenizer()
    stored.shortlist()
    stored.weights()


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", WEIGHTS])
def test_a_flipped_bit_in_a_model_is_noticed(model: Path, name: str) -> None:
    flip(model / name)
    with pytest.raises(UserError, match=f"checksum mismatch in .*{name}"):
        read_all(model)


@pytest.mark.parametrize("name", ["en-de", "lesson"])
def test_the_bundled_models_match_their_checksums(name: str) -> None:
    assert {"config.json", "tokenizer.json", WEIGHTS} <= set(ModelFolder.open(BUNDLED / name).verify())


def test_info_verifies_all_files(model: Path) -> None:
    result = CliRunner().invoke(app, ["info", str(model), "--verify"])
    assert result.exit_code == 0
    assert "verified: config.json, model.safetensors, tokenizer.json" in result.output
    flip(model / WEIGHTS)
    assert isinstance(CliRunner().invoke(app, ["info", str(model), "--verify"]).exception, UserError)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_weights_that_are_not_finite_are_refused(model: Path, value: float) -> None:
    (model / CHECKSUM_FILE).unlink()
    arrays = read_arrays(model / WEIGHTS)
    arrays["encoder.0.feed_forward.w_1.weight"][1, 2] = value
    write_arrays(model / WEIGHTS, arrays)
    with pytest.raises(UserError, match="are not finite"):
        read_all(model)


def test_weights_that_are_integers_are_refused(model: Path) -> None:
    (model / CHECKSUM_FILE).unlink()
    write_arrays(model / WEIGHTS, {name: a.astype(np.int8) for name, a in read_arrays(model / WEIGHTS).items()})
    with pytest.raises(UserError, match="of type int8"):
        read_all(model)


@pytest.mark.parametrize("field", ["d_model", "d_ff", "n_heads", "encoder_layers", "decoder_layers", "max_len"])
@pytest.mark.parametrize("value", [10**9, 999])
def test_sizes_that_are_not_those_of_the_weights_are_refused(model: Path, field: str, value: int) -> None:
    if (field, value) == ("max_len", 999):
        return  # another number of positions needs no other weights
    (model / CHECKSUM_FILE).unlink()
    document = json.loads((model / "config.json").read_text(encoding="utf-8"))
    document["model"][field] = value
    (model / "config.json").write_text(json.dumps(document), encoding="utf-8")
    with pytest.raises(UserError, match=rf"do not fit|{field}=|is too large"):
        read_all(model)


IDS = np.zeros((9, 3), np.int16)


@pytest.mark.parametrize(
    "arrays",
    [
        {"candidates": IDS},
        {"candidates": IDS, "frequent": IDS},
        {"candidates": IDS - 1, "frequent": IDS[0]},
        {"candidates": IDS + 9, "frequent": IDS[0]},
        {"candidates": IDS.astype(np.float32), "frequent": IDS[0]},
        {"candidates": np.zeros((9, 5000), np.int16), "frequent": IDS[0]},
    ],
)
def test_a_shortlist_of_another_form_is_refused(tmp_path: Path, arrays: Arrays) -> None:
    write_arrays(tmp_path / FILE, arrays)
    with pytest.raises(UserError, match="is not a shortlist"):
        load_shortlist(tmp_path)


@pytest.mark.parametrize("name", ["config.json", WEIGHTS])
def test_a_file_that_blocks_is_not_opened(model: Path, name: str) -> None:
    (model / name).unlink()
    os.mkfifo(model / name)
    with pytest.raises(UserError, match="not a regular file"):
        read_all(model)


@pytest.mark.parametrize("name", [WEIGHTS, FILE, "tokenizer.json"])
@pytest.mark.parametrize("is_device", [False, True], ids=["a hole of a terabyte", "/dev/zero"])
def test_an_endless_file_is_refused_before_its_checksum_is_computed(model: Path, name: str, is_device: bool) -> None:
    """The folder has no checksums, as folders of older versions."""
    (model / CHECKSUM_FILE).unlink()
    (model / name).unlink(missing_ok=True)
    if is_device:
        (model / name).symlink_to("/dev/zero")
    else:
        (model / name).touch()
        os.truncate(model / name, 1 << 40)
    with pytest.raises(UserError, match=f"cannot read .*{name}"):
        cached_export(ModelFolder.open(model), "int8")


# Prepared data


@pytest.fixture
def data(toy_text: tuple[Path, Path], tmp_path: Path) -> Path:
    config = configure({"data.max_length": 32, "data.source_lang": "en", "data.target_lang": "de"}).data
    prepare(from_files(*toy_text), tmp_path / "data", config, 270)
    return tmp_path / "data"


def test_prepared_data_has_a_checksum_for_every_file(data: Path) -> None:
    check_corpus(data)
    assert verify_corpus(data) == sorted(path.name for path in data.iterdir() if path.name != CHECKSUM_FILE)


@pytest.mark.parametrize("name", ["train-00000.tokens.npy", "train-00000.ends.npy", "corpus.json", "tokenizer.json"])
@pytest.mark.parametrize("damage", [flip, Path.unlink, lambda path: path.write_bytes(path.read_bytes()[:150])])
def test_damaged_data_is_refused(data: Path, name: str, damage: Callable[[Path], object]) -> None:
    damage(data / name)
    with pytest.raises(UserError, match=r"checksum mismatch|incomplete|is damaged|not a prepared corpus|is not JSON"):
        check_corpus(data)


@pytest.mark.parametrize("name", ["train-00000.tokens.npy", "train-00000.ends.npy"])
def test_data_of_older_versions_is_refused_if_its_sizes_are_wrong(data: Path, name: str) -> None:
    (data / CHECKSUM_FILE).unlink()
    check_corpus(data)
    (data / name).write_bytes((data / name).read_bytes()[:-8])
    with pytest.raises(UserError, match="is damaged"):
        check_corpus(data)
    (data / name).unlink()
    with pytest.raises(UserError, match=r"is damaged|No such file"):
        check_corpus(data)
