"""Checkpoints hold the whole state of a run, and can be averaged."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch

from multihead.config.resolve import configure
from multihead.data.epochs import Cursor
from multihead.errors import UserError
from multihead.model.transformer import Transformer
from multihead.model.weights import weights_of
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
        vocabulary=TOKENIZER.files(),
    )


def same_tensors(one: Mapping[str, torch.Tensor], other: Mapping[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_checkpoint_reads_back_as_it_was_written(tmp_path: Path) -> None:
    written = sample()
    folder = save_checkpoint(tmp_path, written)
    read = load_checkpoint(folder)
    assert same_tensors(read.weights, written.weights)
    assert same_tensors(read.optimizer, written.optimizer)
    assert (read.state, read.config, read.vocabulary) == (written.state, CONFIG, TOKENIZER.files())


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


def test_averaging_is_the_mean_of_every_weight(tmp_path: Path) -> None:
    samples = [sample(step, seed=step) for step in (1, 2, 3)]
    mean = average_checkpoints([save_checkpoint(tmp_path, one) for one in samples])
    for name, tensor in mean.items():
        expected = torch.stack([one.weights[name] for one in samples]).mean(dim=0)
        torch.testing.assert_close(tensor, expected, atol=1e-6, rtol=1e-6)
