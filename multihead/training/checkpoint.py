"""Checkpoints of a run: everything that it needs to continue, in a folder `step-N`.

storage/checkpoints.py finds, verifies and prunes these folders.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from torch import Tensor, nn
from torch.optim import Optimizer

from multihead.config.schema import RunConfig
from multihead.config.serialization import to_json
from multihead.data.epochs import Cursor
from multihead.distributed.sharding import shard_like
from multihead.errors import UserError
from multihead.model.weights import StoredTensors, Tensors, to_arrays, to_tensors
from multihead.storage.arrays import read_arrays, write_arrays
from multihead.storage.checkpoints import FILES
from multihead.storage.checksums import CHECKSUM_FILE, checksums, verify
from multihead.storage.files import atomic_directory
from multihead.storage.model_folder import WEIGHTS, read_config, read_vocabulary_files

FORMAT = 1


@dataclass(slots=True, kw_only=True)
class TrainState:
    """How far a run is. There is no generator state: order and dropout are functions of (seed, epoch), (seed, step)."""

    step: int = 0
    cursor: Cursor = field(default_factory=Cursor)
    tokens_seen: int = 0  # target tokens without padding
    seconds: float = 0.0  # since the run began, without the time between its sessions
    best_loss: float | None = None  # on the validation pairs, in nats per token
    best_step: int = 0
    validations_since_best: int = 0
    skipped: int = 0  # steps without an update, since the gradient was infinite or NaN

    def record_validation(self, loss: float) -> bool:
        """Record a validation loss at this step, and return whether it is the best so far."""
        is_best = self.best_loss is None or loss < self.best_loss
        self.validations_since_best = 0 if is_best else self.validations_since_best + 1
        if is_best:
            self.best_loss, self.best_step = loss, self.step
        return is_best


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that a run needs to continue."""

    weights: Mapping[str, Tensor]
    optimizer: Mapping[str, Tensor]  # by name, such as "exp_avg.encoder.0.feed_forward.w_1.weight"
    state: TrainState
    config: RunConfig
    vocabulary: dict[str, str]  # files of the tokenizer by name


def save_checkpoint(checkpoints: Path, checkpoint: Checkpoint) -> Path:
    """Write the folder `step-N` and return it.

    A crash at any moment leaves the earlier checkpoints intact, and at most a partial folder that is removed on resume.
    """
    final = checkpoints / f"step-{checkpoint.state.step}"
    with atomic_directory(final) as aside:
        write_arrays(aside / "model.safetensors", to_arrays(checkpoint.weights))
        write_arrays(aside / "optimizer.safetensors", to_arrays(checkpoint.optimizer))
        state = {"format": FORMAT, **asdict(checkpoint.state)}
        texts = {
            "state.json": json.dumps(state, indent=2) + "\n",
            "config.json": to_json(checkpoint.config),
            **checkpoint.vocabulary,
        }
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8")
        names = dict.fromkeys([*FILES, *texts])
        (aside / CHECKSUM_FILE).write_text(checksums({name: aside / name for name in names}), encoding="utf-8")
    return final


def load_checkpoint(folder: Path) -> Checkpoint:
    """Load a checkpoint, whose tensors are read when they are needed; the caller has verified its checksums."""
    document = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    if document.pop("format") > FORMAT:
        raise UserError(f"{folder} was written by a newer version of multihead: update multihead")
    cursor = Cursor(**document.pop("cursor"))
    if "stale" in document:  # the name in older versions
        document["validations_since_best"] = document.pop("stale")
    return Checkpoint(
        weights=StoredTensors(folder / "model.safetensors"),
        optimizer=StoredTensors(folder / "optimizer.safetensors"),
        state=TrainState(cursor=cursor, **document),
        config=read_config(folder),
        vocabulary=read_vocabulary_files(folder),
    )


def average_checkpoints(checkpoints: list[Path]) -> Tensors:
    """Return the mean of the weights of several checkpoints (§6.1), with one checkpoint in memory at a time."""
    total: Tensors = {}
    for folder in checkpoints:
        verify(folder, [WEIGHTS])
        for name, tensor in to_tensors(read_arrays(folder / "model.safetensors")).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}


def optimizer_tensors(model: nn.Module, optimizers: Sequence[Optimizer]) -> Tensors:
    """Return the state of the optimizers by its kind and the name of the parameter."""
    return {
        f"{kind}.{name}": tensor
        for optimizer in optimizers
        for name, parameter in model.named_parameters()
        for kind, tensor in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(model: nn.Module, optimizers: Sequence[Optimizer], tensors: Mapping[str, Tensor]) -> None:
    """Load what `optimizer_tensors` returned, in shards where the parameters are sharded."""
    kinds_of: dict[str, list[str]] = {}
    for name in tensors:
        kind, _, parameter_name = name.partition(".")
        kinds_of.setdefault(parameter_name, []).append(kind)
    names = {parameter: name for name, parameter in model.named_parameters()}
    for optimizer in optimizers:
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        state = {
            index: {kind: _placed(tensors[f"{kind}.{name}"], parameter) for kind in kinds_of[name]}
            for index, parameter in enumerate(parameters)
            if (name := names[parameter]) in kinds_of
        }
        optimizer.load_state_dict({**optimizer.state_dict(), "state": state})


def _placed(tensor: Tensor, parameter: Tensor) -> Tensor:
    """Return a tensor in shards like those of its parameter; a step count has no shards."""
    return shard_like(tensor, parameter) if tensor.shape == parameter.shape else tensor
