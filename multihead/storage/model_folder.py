"""Model folders and checkpoints: written aside, synced, summed and renamed; verified when read. No code is ever read.

A checkpoint is a folder `step-N` with FILES and their sums; a model folder has config, weights and tokenizer.
"""

import json
import logging
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from multihead.config.schema import ModelSearch, RunConfig
from multihead.config.serialization import from_json, search_from_json, to_json
from multihead.console import Log
from multihead.errors import UserError
from multihead.storage.checkpoints import latest_valid
from multihead.storage.checksums import CHECKSUM_FILE, checksums, verify_all
from multihead.storage.files import atomic_file, write_text_atomic
from multihead.storage.shortlist import FILE as SHORTLIST

WEIGHTS = "model.safetensors"
Tensors = dict[str, Tensor]
Provenance = dict[str, Any]  # what config.json keeps of how a model came about

_log = logging.getLogger(__name__)


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
    write_text_atomic(folder / "config.json", to_json(config, provenance, search))
    write_text_atomic(folder / "tokenizer.json", tokenizer_json)
    with atomic_file(folder / WEIGHTS) as aside:
        write_tensors(aside, weights, {"step": str(provenance.get("steps", 0))})
        # People edit the card, so README.md has no sum.
        others = {name: folder / name for name in ("config.json", "tokenizer.json", SHORTLIST)}
        there = {name: path for name, path in others.items() if path.exists()}
        write_text_atomic(folder / CHECKSUM_FILE, checksums({WEIGHTS: aside, **there}))


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
        if (folder / CHECKSUM_FILE).exists():  # older versions wrote none
            verify_all(folder, required=WEIGHTS)
    except UserError:
        return False
    return True


def usable_folder(folder: Path, log: Log = _log.warning) -> Path:
    """Return the folder to load a model from: of a run that has published nothing yet, its newest checkpoint."""
    if (folder / WEIGHTS).exists() or not (newest := latest_valid(folder / "checkpoints", log)):
        return folder
    log(f"{folder} is not published yet: using its newest checkpoint, {newest.name}")
    return newest


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


def write_tensors(path: Path, tensors: Tensors, metadata: dict[str, str] | None = None) -> None:
    try:
        save_file({name: tensor.contiguous().cpu() for name, tensor in tensors.items()}, path, metadata)
    except SafetensorError as error:  # how the library reports a full disk
        raise OSError(f"{path}: {error}") from None
    path.chmod(0o644)  # the library lets nobody but the owner read it, and models are shared


def read_tensors(path: Path) -> Tensors:
    try:
        return load_file(path)
    except (SafetensorError, OSError) as error:
        raise UserError(f"cannot read {path}: {error}") from None
