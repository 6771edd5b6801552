"""Checkpoints and model folders: what was saved is what is read, and damage is noticed."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from multihead.config.resolve import configure
from multihead.config.schema import RunConfig
from multihead.data.epochs import Cursor
from multihead.errors import UserError
from multihead.model.transformer import Transformer
from multihead.model.weights import load_model, to_arrays, weights_of
from multihead.storage.checkpoints import latest_valid, prune, remove_partial, saved_steps
from multihead.storage.model_folder import Provenance, published_step, read_provenance, save_model
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.checkpoint import Checkpoint, TrainState, average_checkpoints, load_checkpoint, save_checkpoint

TOKENIZER = SubwordTokenizer.learn(["a b c"], 300)
CONFIG = configure(
    {
        "model.vocab_size": TOKENIZER.vocab_size,
        "model.d_model": 8,
        "model.d_ff": 8,
        "model.n_heads": 1,
        "model.encoder_layers": 1,
        "model.decoder_layers": 1,
    }
)


def sample(step: int = 5, seed: int = 1) -> Checkpoint:
    torch.manual_seed(seed)
    model = Transformer(CONFIG.model)
    return Checkpoint(
        weights=weights_of(model),
        optimizer={"exp_avg.x": torch.randn(3)},
        state=TrainState(step=step, cursor=Cursor(epoch=1, batch=2), best_loss=1.5, best_step=3, seconds=0.1),
        config=CONFIG,
        tokenizer_json=TOKENIZER.to_json(),
    )


def same_tensors(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def quiet(_: str) -> None:
    pass


def test_a_checkpoint_reads_back_as_it_was_written(tmp_path: Path) -> None:
    written = sample()
    folder = save_checkpoint(tmp_path, written)
    read = load_checkpoint(folder)
    assert same_tensors(read.weights, written.weights)
    assert same_tensors(read.optimizer, written.optimizer)
    assert (read.state, read.config, read.tokenizer_json) == (written.state, CONFIG, TOKENIZER.to_json())


def test_a_checkpoint_has_the_promised_files(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, sample(step=7))
    assert folder == tmp_path / "step-7"
    assert {file.name for file in folder.iterdir()} == {
        "model.safetensors",
        "optimizer.safetensors",
        "state.json",
        "config.json",
        "tokenizer.json",
        "SHA256SUMS",
    }


def test_shared_weights_are_stored_once(tmp_path: Path) -> None:
    weights = load_checkpoint(save_checkpoint(tmp_path, sample())).weights
    assert [name for name in weights if "embedding" in name or "output" in name] == ["source_embedding.weight"]


def flip_a_byte(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-5] ^= 1
    (folder / "model.safetensors").write_bytes(bytes(data))


def cut_short(folder: Path) -> None:
    data = (folder / "optimizer.safetensors").read_bytes()
    (folder / "optimizer.safetensors").write_bytes(data[: len(data) // 2])


def lose_a_file(folder: Path) -> None:
    (folder / "state.json").unlink()


def lose_the_sums(folder: Path) -> None:
    (folder / "SHA256SUMS").unlink()


def empty_the_sums(folder: Path) -> None:
    (folder / "SHA256SUMS").write_text("", encoding="utf-8")


@pytest.mark.parametrize("damage", [flip_a_byte, cut_short, lose_a_file, lose_the_sums, empty_the_sums])
def test_a_damaged_checkpoint_is_passed_over_in_words(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    save_checkpoint(tmp_path, sample(step=5))
    damage(save_checkpoint(tmp_path, sample(step=6)))
    said: list[str] = []
    assert latest_valid(tmp_path, said.append) == tmp_path / "step-5"
    assert len(said) == 1
    assert "step-6" in said[0]


def test_no_checkpoint_is_found_where_there_is_none(tmp_path: Path) -> None:
    assert latest_valid(tmp_path / "nowhere", quiet) is None


def test_a_checkpoint_of_a_newer_format_is_refused_by_name(tmp_path: Path) -> None:
    folder = save_checkpoint(tmp_path, sample())
    state = json.loads((folder / "state.json").read_text(encoding="utf-8")) | {"format": 99}
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    with pytest.raises(UserError, match="newer version"):
        load_checkpoint(folder)


def test_a_checkpoint_of_an_older_version_loads(tmp_path: Path) -> None:
    """What is called validations_since_best now was called stale."""
    folder = save_checkpoint(tmp_path, sample())
    state = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    state["stale"] = state.pop("validations_since_best") + 3
    (folder / "state.json").write_text(json.dumps(state), encoding="utf-8")
    assert load_checkpoint(folder).state.validations_since_best == 3


def test_the_best_validation_is_remembered() -> None:
    state = TrainState()
    for state.step, loss in ((10, 2.0), (20, 1.0), (30, 1.5), (40, 1.0)):
        state.record_validation(loss)
    assert (state.best_loss, state.best_step, state.validations_since_best) == (1.0, 20, 2)


def test_pruning_keeps_what_it_is_told_to(tmp_path: Path) -> None:
    for step in (1, 2, 10, 30):
        save_checkpoint(tmp_path, sample(step))
    prune(tmp_path, {2, 30})
    assert saved_steps(tmp_path) == [2, 30]


def test_what_a_crash_left_behind_is_swept(tmp_path: Path) -> None:
    (tmp_path / ".step-9.partial").mkdir()
    remove_partial(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_was_complete_before_the_crash_gets_its_name(tmp_path: Path) -> None:
    """A crash while a checkpoint is replaced must not cost both."""
    folder = tmp_path / "checkpoints"
    lose_the_sums(save_checkpoint(folder, sample(step=9, seed=1)))
    save_checkpoint(tmp_path, sample(step=9, seed=2)).rename(folder / ".step-9.partial")
    remove_partial(folder)
    assert latest_valid(folder, quiet) == folder / "step-9"
    assert same_tensors(load_checkpoint(folder / "step-9").weights, sample(seed=2).weights)
    assert len(list(folder.iterdir())) == 1


def test_averaging_is_the_mean_of_every_weight(tmp_path: Path) -> None:
    samples = [sample(step, seed=step) for step in (1, 2, 3)]
    mean = average_checkpoints([save_checkpoint(tmp_path, one) for one in samples])
    for name, tensor in mean.items():
        expected = torch.stack([one.weights[name] for one in samples]).mean(dim=0)
        torch.testing.assert_close(tensor, expected, atol=1e-6, rtol=1e-6)


# Model folders


def test_a_published_model_loads_again(tmp_path: Path) -> None:
    written = sample()
    save_model(tmp_path / "model", to_arrays(written.weights), CONFIG, TOKENIZER.to_json(), Provenance(steps=5))
    model, tokenizer, config = load_model(tmp_path / "model")
    assert same_tensors(weights_of(model), written.weights)
    assert (config, tokenizer.encode("a b")) == (CONFIG, TOKENIZER.encode("a b"))
    assert not model.training
    assert published_step(tmp_path / "model") == 5
    assert read_provenance(tmp_path / "model") == Provenance(steps=5)


def test_a_run_that_was_cut_off_loads_from_its_newest_checkpoint(tmp_path: Path) -> None:
    save_checkpoint(tmp_path / "checkpoints", sample(step=9, seed=9))
    flip_a_byte(save_checkpoint(tmp_path / "checkpoints", sample(step=10)))
    said: list[str] = []
    model, _, _ = load_model(tmp_path, said.append)
    assert said[-1] == f"{tmp_path} is not published yet: using its newest checkpoint, step-9"
    assert same_tensors(weights_of(model), sample(seed=9).weights)
    assert published_step(tmp_path) is None


def test_weights_that_do_not_fit_the_configuration_are_refused_by_name(tmp_path: Path) -> None:
    weights = sample().weights
    name = "encoder.0.feed_forward.w_1.weight"
    for wrong in ({**weights, name: torch.zeros(3, 3)}, {**weights, "extra": torch.zeros(1)}):
        save_model(tmp_path, to_arrays(wrong), CONFIG, TOKENIZER.to_json(), Provenance())
        with pytest.raises(UserError, match="do not fit"):
            load_model(tmp_path)


def test_a_vocabulary_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    other = SubwordTokenizer.learn(["other words entirely " * 3] * 3, 270).to_json()
    save_model(tmp_path, to_arrays(sample().weights), CONFIG, other, Provenance())
    with pytest.raises(UserError, match="pieces"):
        load_model(tmp_path)


def test_a_folder_that_is_no_model_is_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no model folder"):
        load_model(tmp_path / "nowhere")
    with pytest.raises(UserError, match=r"config\.json"):
        load_model(tmp_path)
    save_model(tmp_path, to_arrays(sample().weights), CONFIG, TOKENIZER.to_json(), Provenance())
    (tmp_path / "model.safetensors").write_bytes(b"\x80\x04pickle")
    with pytest.raises(UserError, match=r"model\.safetensors"):
        load_model(tmp_path)


def test_a_published_model_can_be_read_by_others(tmp_path: Path) -> None:
    save_model(tmp_path, to_arrays(sample().weights), RunConfig(), TOKENIZER.to_json(), Provenance())
    assert (tmp_path / "model.safetensors").stat().st_mode & 0o044
