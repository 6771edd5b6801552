"""Model folders and checkpoints: written aside, synced, summed and renamed; verified when read. No code is ever read.

A checkpoint is a folder `step-N` with FILES and their sums; a model folder has config, weights and tokenizer.
"""

import json
import re
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from multihead.batches import Cursor
from multihead.config import ModelSearch, RunConfig, UserError, from_json, search_from_json, to_json
from multihead.distributed import in_shards_like
from multihead.files import appearing_whole, replace_text, replacing, sha256
from multihead.model import Transformer
from multihead.tokenizer import SubwordTokenizer
from multihead.variants import build_model

FORMAT = 1
FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "config.json", "tokenizer.json")
SUMS = "SHA256SUMS"
Tensors = dict[str, Tensor]
Talk = Callable[[str], None]
Provenance = dict[str, Any]  # what config.json keeps of how a model came about


@dataclass(slots=True, kw_only=True)
class TrainState:
    """Where a run stands: numbers only, since order and dropout are functions of (seed, epoch) and (seed, step)."""

    step: int = 0
    cursor: Cursor = field(default_factory=Cursor)
    tokens_seen: int = 0  # target tokens, padding left out
    seconds: float = 0.0  # spent training, over all sessions
    best_loss: float | None = None  # of validation, a token
    best_step: int = 0
    stale: int = 0  # validations since the best one
    skipped: int = 0  # steps left out for an infinite or undefined gradient


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything that a run needs to go on."""

    weights: Tensors
    optimizer: Tensors
    state: TrainState
    config: RunConfig
    tokenizer_json: str


def weights_of(model: Transformer) -> Tensors:
    """The trained tensors by name; one that is shared has one name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def load_weights(model: Transformer, weights: Tensors, origin: Path) -> None:
    """Copy weights into a model of the same shape; `origin` is named when they do not fit."""
    expected = weights_of(model)
    wrong = sorted(expected.keys() ^ weights.keys())
    wrong += [name for name in expected if name in weights and expected[name].shape != weights[name].shape]
    if wrong:
        raise UserError(f"the weights in {origin} do not fit its config.json: see '{wrong[0]}'")
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(in_shards_like(weights[name], tensor))


# Checkpoints


def save(checkpoints: Path, checkpoint: Checkpoint) -> Path:
    """Write `step-N`. A crash at any moment leaves the checkpoints before it, and at most a folder to be swept."""
    final = checkpoints / f"step-{checkpoint.state.step}"
    with appearing_whole(final) as aside:
        _write_tensors(aside / "model.safetensors", checkpoint.weights)
        _write_tensors(aside / "optimizer.safetensors", checkpoint.optimizer)
        state = {"format": FORMAT, **asdict(checkpoint.state)}
        texts = {
            "state.json": json.dumps(state, indent=2) + "\n",
            "config.json": to_json(checkpoint.config),
            "tokenizer.json": checkpoint.tokenizer_json,
        }
        for name, text in texts.items():
            (aside / name).write_text(text, encoding="utf-8")
        sums = "".join(f"{sha256(aside / name)}  {name}\n" for name in FILES)
        (aside / SUMS).write_text(sums, encoding="utf-8")
    return final


def saved_steps(checkpoints: Path) -> list[int]:
    """The steps of the checkpoints in a folder, oldest first, verified or not."""
    names = (re.fullmatch(r"step-(\d+)", path.name) for path in checkpoints.glob("step-*"))
    return sorted(int(name[1]) for name in names if name)


def newest_intact(checkpoints: Path, talk: Talk) -> Path | None:
    """The folder of the newest checkpoint that verifies."""
    for step in reversed(saved_steps(checkpoints)):
        folder = checkpoints / f"step-{step}"
        try:
            verify(folder)
        except UserError as error:
            talk(f"passing over a damaged checkpoint: {error}")
        else:
            return folder
    return None


def load(folder: Path) -> Checkpoint:
    """A checkpoint whose sums have been verified."""
    document = json.loads((folder / "state.json").read_text(encoding="utf-8"))
    if document.pop("format") > FORMAT:
        raise UserError(f"{folder} was written by a newer version: update multihead")
    cursor = Cursor(**document.pop("cursor"))
    return Checkpoint(
        weights=_read_tensors(folder / "model.safetensors"),
        optimizer=_read_tensors(folder / "optimizer.safetensors"),
        state=TrainState(cursor=cursor, **document),
        config=read_config(folder),
        tokenizer_json=(folder / "tokenizer.json").read_text(encoding="utf-8"),
    )


def verify(folder: Path) -> None:
    """Raise in words if a file of the checkpoint is missing or is not what was written."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").split("\n")
        sums = {name: expected for expected, _, name in (line.partition("  ") for line in lines)}
        for name in FILES:
            if sha256(folder / name) != sums.get(name):
                raise UserError(f"{folder / name} is not what was written")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{folder} is incomplete: {error}") from None


def sweep(checkpoints: Path) -> None:
    """Remove what a crash inside `save` left behind."""
    for partial in checkpoints.glob(".step-*.partial"):
        shutil.rmtree(partial, ignore_errors=True)


def prune(checkpoints: Path, keep: Iterable[int]) -> None:
    """Remove every checkpoint but these steps."""
    for step in set(saved_steps(checkpoints)) - set(keep):
        shutil.rmtree(checkpoints / f"step-{step}")


def average(checkpoints: list[Path]) -> Tensors:
    """§6.1: the mean of the weights of several checkpoints, one in memory at a time."""
    total: Tensors = {}
    for folder in checkpoints:
        verify(folder)
        for name, tensor in _read_tensors(folder / "model.safetensors").items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}


# Model folders


def save_model(folder: Path, weights: Tensors, config: RunConfig, tokenizer_json: str, provenance: Provenance) -> None:
    """Publish a model: each file is replaced in one go, the weights, which know their step, last."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "config.json", to_json(config, provenance))
    replace_text(folder / "tokenizer.json", tokenizer_json)
    with replacing(folder / "model.safetensors") as aside:
        _write_tensors(aside, weights, {"step": str(provenance.get("steps", 0))})


def published_step(folder: Path) -> int | None:
    """The step of the model that a run has published, if it has."""
    path = folder / "model.safetensors"
    if not path.exists():
        return None
    with safe_open(path, framework="pt") as file:
        return int((file.metadata() or {}).get("step", 0))


def load_model(folder: Path, talk: Talk = lambda line: None) -> tuple[Transformer, SubwordTokenizer, RunConfig]:
    """A model that is ready to translate, from a model folder, a checkpoint, or a run that was cut off."""
    if not folder.is_dir():
        raise UserError(f"there is no model folder {folder}")
    if not (folder / "model.safetensors").exists():
        folder = newest_intact(folder / "checkpoints", talk) or folder
    config = read_config(folder)
    tokenizer = SubwordTokenizer.load(folder / "tokenizer.json")
    if tokenizer.vocab_size != config.model.vocab_size:
        raise UserError(f"{folder}: {tokenizer.vocab_size} pieces, but model.vocab_size={config.model.vocab_size}")
    model = build_model(config.model)
    load_weights(model, _read_tensors(folder / "model.safetensors"), folder)
    return model.eval(), tokenizer, config


def read_provenance(folder: Path) -> Provenance:
    """How a published model came about; empty for one that says nothing of it."""
    document = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    found = document.get("provenance")
    return found if isinstance(found, dict) else {}


def read_search(folder: Path) -> ModelSearch:
    """How a published model translates best; the paper's defaults for one that does not say."""
    path = folder / "config.json"
    return search_from_json(path.read_text(encoding="utf-8"), path) if path.exists() else ModelSearch()


def read_config(folder: Path) -> RunConfig:
    path = folder / "config.json"
    try:
        return from_json(path.read_text(encoding="utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from None


# Files


def _write_tensors(path: Path, tensors: Tensors, metadata: dict[str, str] | None = None) -> None:
    try:
        save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, path, metadata)
    except SafetensorError as error:  # how the library reports a full disk
        raise OSError(f"{path}: {error}") from None
    path.chmod(0o644)  # the library lets nobody but the owner read it, and models are shared


def _read_tensors(path: Path) -> Tensors:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
