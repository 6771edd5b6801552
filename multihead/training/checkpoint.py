"""TODO."""

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path

from multihead.config.schema import RunConfig
from multihead.config.serialization import to_json
from multihead.data.epochs import Cursor
from multihead.errors import UserError
from multihead.model.weights import Tensors, to_arrays, to_tensors
from multihead.storage.arrays import read_arrays, write_arrays
from multihead.storage.checkpoints import FILES
from multihead.storage.checksums import CHECKSUM_FILE, checksums, verify
from multihead.storage.files import atomic_directory
from multihead.storage.model_folder import WEIGHTS, read_config

FORMAT = 1


@dataclass(slots=True, kw_only=True)
class TrainState:
    """Where a run stands: numbers only, since order and dropout are functions of (seed, epoch) and (seed, step)."""

    step: int = 0
    cursor: Cursor = field(default_factory=Cursor)
    tokens_seen: int = 0  # target tokens, padding left out
    seconds: float = 0.0  # spent training, over all sessions
    best_loss: float | None = None  # of validation, a token
    best_step: int = 0
    validations_since_best: int = 0
    skipped: int = 0  # steps left out for an infinite or undefined gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that a run needs to go on."""

    weights: Tensors
    optimizer: Tensors
    state: TrainState
    config: RunConfig
    tokenizer_json: str


# Checkpoints


def save_checkpoint(checkpoints: Path, checkpoint: Checkpoint) -> Path:
    """Write `step-N`. A crash at any moment leaves the checkpoints before it, and at most a folder to be swept."""
    final = checkpoints / f"step-{checkpoint.state.step}"
    with atomic_directory(final) as aside:
        write_arrays(aside / "model.safetensors", to_arrays(checkpoint.weights))
        write_arrays(aside / "optimizer.safetensors", to_arrays(checkpoint.optimizer))
        state = {"format": FORMAT, **asdict(checkpoint.state)}
        texts = {
            "state.json": json.dumps(state, indent=2) + "\n",
            "config.json": to_json(checkpoint.config),
            "tokenizer.json": checkpoint.tokenizer_json,
        }
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8")
        (aside / CHECKSUM_FILE).write_text(checksums({name: aside / name for name in FILES}), encoding="utf-8")
    return final


def load_checkpoint(folder: Path) -> Checkpoint:
    """A checkpoint whose sums have been verified."""
    document = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    if document.pop("format") > FORMAT:
        raise UserError(f"{folder} was written by a newer version: update multihead")
    cursor = Cursor(**document.pop("cursor"))
    if "stale" in document:  # the name in older versions
        document["validations_since_best"] = document.pop("stale")
    return Checkpoint(
        weights=to_tensors(read_arrays(folder / "model.safetensors")),
        optimizer=to_tensors(read_arrays(folder / "optimizer.safetensors")),
        state=TrainState(cursor=cursor, **document),
        config=read_config(folder),
        tokenizer_json=(folder / "tokenizer.json").read_text(encoding="utf-8"),
    )


def average_checkpoints(checkpoints: list[Path]) -> Tensors:
    """§6.1: the mean of the weights of several checkpoints, one in memory at a time."""
    total: Tensors = {}
    for folder in checkpoints:
        verify(folder, [WEIGHTS])
        for name, tensor in to_tensors(read_arrays(folder / "model.safetensors")).items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}
