"""Under FSDP each rank holds its shards, and at most one tensor in full, from the first moment on."""

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from multihead.config.resolve import configure
from multihead.config.schema import RunConfig, Settings
from multihead.data.parallel_text import from_files
from multihead.data.prepare import prepare
from multihead.distributed.process_group import process_group
from multihead.distributed.sharding import full_tensor
from multihead.model.weights import to_arrays, to_tensors, weights_of
from multihead.storage.arrays import Array
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.checkpoint import load_checkpoint, save_checkpoint
from multihead.training.trainer import Trainer
from tests.conftest import QUICK
from tests.ranks import on_ranks

SHAPE: Settings = {
    **QUICK,
    "model.d_model": 64,
    "model.max_len": 64,
    "model.d_ff": 128,
    "model.encoder_layers": 6,
    "model.decoder_layers": 6,
}
FLOAT = 4  # bytes


class PeakMemory(TorchDispatchMode):
    """The largest number of bytes of all tensors that operations inside this context have made, at any time."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # torch does not declare it
        self.live: dict[int, int] = {}
        self.peak = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in tree_leaves(result):
            if type(tensor) is Tensor and tensor.device.type == "cpu":  # not a DTensor, whose memory is its shard's
                self._note(tensor.untyped_storage())
        self.peak = max(self.peak, sum(self.live.values()))
        return result

    def _note(self, storage: torch.UntypedStorage) -> None:
        key = storage._cdata
        if key not in self.live:
            self.live[key] = storage.nbytes()
            weakref.finalize(storage, self.live.pop, key, None)


@pytest.fixture(scope="module")
def prepared(toy_text: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("prepared") / "data"
    prepare(from_files(*toy_text), folder, configure(QUICK).data)
    return folder


def config_of(data: Path, more: Settings) -> tuple[RunConfig, SubwordTokenizer]:
    tokenizer = SubwordTokenizer.load(data / "tokenizer.json")
    return configure(SHAPE, {"model.vocab_size": tokenizer.vocab_size, "train.parallel": "fsdp"}, more), tokenizer


def measure(data: Path, folder: Path) -> dict[str, float]:
    """Return the peak memory of each stage on this rank, in bytes; `model` and `largest` are sizes to compare with."""
    config, tokenizer = config_of(data, {})
    with process_group() as group:
        with PeakMemory() as building:
            trainer = Trainer(config, data, tokenizer, group)
        trainer.step()
        with PeakMemory() as saving:
            checkpoint = trainer.checkpoint()
        if group.is_main:
            save_checkpoint(folder, checkpoint)
        group.max(0)  # the others wait for the file
        resumed = Trainer(config, data, tokenizer, group)
        with PeakMemory() as loading:
            resumed.restore(load_checkpoint(folder / "step-1"), folder)
        sizes = [parameter.numel() * FLOAT for parameter in trainer.model.parameters()]
        same = all(
            torch.equal(full_tensor(one), full_tensor(other))
            for one, other in zip(trainer.model.parameters(), resumed.model.parameters(), strict=True)
        )
        return {
            "model": sum(sizes),
            "largest": max(sizes),
            "building": building.peak,
            "saving": saving.peak,
            "loading": loading.peak,
            "same": same,
        }


@pytest.fixture(scope="module")
def ranks(prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    return on_ranks(2, measure, prepared, tmp_path_factory.mktemp("checkpoints"))


def test_a_rank_builds_its_shards_without_the_whole_model(ranks: list[dict[str, float]]) -> None:
    """Rank 0 has all of it in the memory of the CPU, for validation."""
    one = ranks[1]
    assert one["building"] < one["model"] / 2 + 4 * one["largest"] < one["model"]


def test_a_rank_saves_with_one_tensor_in_full_at_a_time(ranks: list[dict[str, float]]) -> None:
    assert ranks[1]["saving"] < 4 * ranks[1]["largest"]


def test_a_rank_loads_its_shards_tensor_by_tensor(ranks: list[dict[str, float]]) -> None:
    """Both moments are as large as the weights; the weights go into memory that is there."""
    for one in ranks:
        assert one["loading"] < one["model"] + 4 * one["largest"]
        assert one["same"]


def full_arrays(trainer: Trainer) -> list[Array]:
    return [full_tensor(weight).numpy().copy() for weight in weights_of(trainer.model).values()]


def start(data: Path, more: Settings) -> tuple[list[Array], bool, list[Array]]:
    """Return the full weights of a new trainer, whether tied weights are one parameter, and weights that it took up."""
    config, tokenizer = config_of(data, more)
    with process_group() as group:
        trainer = Trainer(config, data, tokenizer, group)
        before = full_arrays(trainer)
        is_tied = trainer.model.output.weight is trainer.model.source_embedding.weight
        ones = {name: torch.ones(weight.shape) for name, weight in weights_of(trainer.model).items()}
        trainer.start_from(lambda: to_tensors(to_arrays(ones)), data)
        trainer.step()
        trainer.sync_full_model()
        if group.is_main:
            pairs = zip(trainer.full_model.parameters(), trainer.checkpoint().weights.values(), strict=True)
            assert all(torch.equal(full, gathered) for full, gathered in pairs)
        else:
            trainer.checkpoint()
        return before, is_tied, full_arrays(trainer)


@pytest.mark.parametrize("tied", ["all", "none"])
def test_shards_start_with_the_weights_of_a_single_process(prepared: Path, tied: str) -> None:
    more: Settings = {"model.tie_embeddings": tied, "model.positions": "learned", "train.lr_scale": 1e-6}
    config, tokenizer = config_of(prepared, more)
    alone = Trainer(config, prepared, tokenizer)
    for before, is_tied, after in on_ranks(2, start, prepared, more):
        assert is_tied == (tied == "all")
        for one, other in zip(before, full_arrays(alone), strict=True):
            assert np.array_equal(one, other)
        assert all(np.allclose(weight, 1, atol=1e-3) for weight in after)
