"""Model folders and checkpoints: written aside, synced, summed and renamed; verified when read. No code is ever read.

A checkpoint is a folder `step-N` with FILES and their sums; a model folder has config, weights and tokenizer.
"""

import json
import logging
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from multihead.shortlist import FILE as SHORTLIST
from multihead.tokenizer import SubwordTokenizer
from multihead.variants import build_model

FORMAT = 1
FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "config.json", "tokenizer.json")
SUMS = "SHA256SUMS"
WEIGHTS = "model.safetensors"
Tensors = dict[str, Tensor]
Talk = Callable[[str], None]
Provenance = dict[str, Any]  # what config.json keeps of how a model came about
_log = logging.getLogger(__name__)


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
        (aside / SUMS).write_text(_sums({name: aside / name for name in FILES}), encoding="utf-8")
    return final


def _sums(files: dict[str, Path]) -> str:
    return "".join(f"{sha256(path)}  {name}\n" for name, path in files.items())


def saved_steps(checkpoints: Path) -> list[int]:
    """The steps of the checkpoints in a folder, oldest first, verified or not."""
    names = (re.fullmatch(r"step-(\d+)", path.name) for path in checkpoints.glob("step-*"))
    return sorted(int(name[1]) for name in names if name)


def newest_intact(checkpoints: Path, talk: Talk) -> Path | None:
    """Return the folder of the newest checkpoint that verifies."""
    folders = (checkpoints / f"step-{step}" for step in reversed(saved_steps(checkpoints)))
    return next(intact(folders, talk), None)


def intact(folders: Iterable[Path], talk: Talk, names: Sequence[str] = FILES) -> Iterator[Path]:
    """Yield the checkpoints of which these files verify; the others are reported."""
    for folder in folders:
        try:
            verify(folder, names)
        except UserError as error:
            talk(f"skipping a damaged checkpoint: {error}")
        else:
            yield folder


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


def verify(folder: Path, names: Sequence[str] | None = FILES) -> None:
    """Raise UserError if one of these files is missing or is not what was written; None means all that have sums."""
    try:
        lines = (folder / SUMS).read_text(encoding="utf-8").splitlines()
        sums = {name: expected for expected, _, name in (line.partition("  ") for line in lines)}
        for name in (WEIGHTS, *sums) if names is None else names:
            if sha256(folder / name) != sums.get(name):
                raise UserError(f"{folder / name} is not what was written")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{folder} is incomplete: {error}") from None


def sweep(checkpoints: Path) -> None:
    """Remove what a crash inside `save` left behind; a checkpoint that was complete gets its name."""
    for partial in checkpoints.glob(".step-*.partial"):
        for complete in intact([partial], talk=lambda line: None):
            final = checkpoints / partial.name.removeprefix(".").removesuffix(".partial")
            shutil.rmtree(final, ignore_errors=True)  # it was being replaced
            complete.rename(final)
        shutil.rmtree(partial, ignore_errors=True)


def prune(checkpoints: Path, keep: Iterable[int]) -> None:
    """Remove every checkpoint but these steps."""
    for step in set(saved_steps(checkpoints)) - set(keep):
        shutil.rmtree(checkpoints / f"step-{step}")


def average(checkpoints: list[Path]) -> Tensors:
    """§6.1: the mean of the weights of several checkpoints, one in memory at a time."""
    total: Tensors = {}
    for folder in checkpoints:
        verify(folder, [WEIGHTS])
        for name, tensor in _read_tensors(folder / "model.safetensors").items():
            total[name] = total[name] + tensor.double() if name in total else tensor.double()
    return {name: (tensor / len(checkpoints)).float() for name, tensor in total.items()}


# Model folders


def save_model(  # noqa: PLR0913 - the parts of a model folder
    folder: Path,
    weights: Tensors,
    config: RunConfig,
    tokenizer_json: str,
    provenance: Provenance,
    search: ModelSearch | None = None,
) -> None:
    """Write a model folder: each file is replaced atomically, the weights, which carry the step, last."""
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "config.json", to_json(config, provenance, search))
    replace_text(folder / "tokenizer.json", tokenizer_json)
    with replacing(folder / WEIGHTS) as aside:
        _write_tensors(aside, weights, {"step": str(provenance.get("steps", 0))})
        # People edit the card, so README.md has no sum.
        others = {name: folder / name for name in ("config.json", "tokenizer.json", SHORTLIST)}
        there = {name: path for name, path in others.items() if path.exists()}
        replace_text(folder / SUMS, _sums({WEIGHTS: aside, **there}))


def published_step(folder: Path) -> int | None:
    """Return the step of the model that a run has published; None if there is none, or it is damaged."""
    try:
        with safe_open(folder / WEIGHTS, framework="pt") as file:
            return int((file.metadata() or {}).get("step", 0))
    except (SafetensorError, OSError, ValueError):
        return None


def is_published(folder: Path, step: int) -> bool:
    """Return whether the model of this step is published and complete."""
    if published_step(folder) != step or not (folder / "README.md").exists():
        return False
    try:
        if (folder / SUMS).exists():  # older versions wrote none
            verify(folder, names=None)
    except UserError:
        return False
    return True


def usable(folder: Path, talk: Talk = _log.warning) -> Path:
    """Return the folder to load a model from: of a run that has published nothing yet, its newest checkpoint."""
    if (folder / WEIGHTS).exists() or not (newest := newest_intact(folder / "checkpoints", talk)):
        return folder
    talk(f"{folder} is not published yet: using its newest checkpoint, {newest.name}")
    return newest


def load_model(folder: Path, talk: Talk = _log.warning) -> tuple[Transformer, SubwordTokenizer, RunConfig]:
    """Load a model that is ready to translate, from a model folder, a checkpoint, or a run that was interrupted."""
    if not folder.is_dir():
        raise UserError(f"there is no model folder {folder}")
    folder = usable(folder, talk)
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
