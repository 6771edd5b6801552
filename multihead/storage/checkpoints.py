"""The checkpoints of a run, folders named `step-N`: list, verify, remove."""

import re
import shutil
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from multihead.console import Log
from multihead.errors import UserError
from multihead.storage.checksums import verify

FILES = ("model.safetensors", "optimizer.safetensors", "state.json", "config.json", "tokenizer.json")


def saved_steps(checkpoints: Path) -> list[int]:
    """Return the steps of the checkpoints in a folder, oldest first, without verifying them."""
    names = (re.fullmatch(r"step-(\d+)", path.name) for path in checkpoints.glob("step-*"))
    return sorted(int(name[1]) for name in names if name)


def latest_valid(checkpoints: Path, log: Log) -> Path | None:
    """Return the folder of the newest valid checkpoint, or None."""
    folders = (checkpoints / f"step-{step}" for step in reversed(saved_steps(checkpoints)))
    return next(valid_checkpoints(folders, log), None)


def valid_checkpoints(folders: Iterable[Path], log: Log, names: Sequence[str] = FILES) -> Iterator[Path]:
    """Yield the checkpoints whose files match their checksums; log the others."""
    for folder in folders:
        try:
            verify(folder, names)
        except UserError as error:
            log(f"skipping damaged checkpoint: {error}")
        else:
            yield folder


def remove_partial(checkpoints: Path) -> None:
    """Remove partial checkpoints that a crash left behind; a complete one gets its final name."""
    for partial in checkpoints.glob(".step-*.partial"):
        for complete in valid_checkpoints([partial], log=lambda line: None):
            final = checkpoints / partial.name.removeprefix(".").removesuffix(".partial")
            shutil.rmtree(final, ignore_errors=True)  # the checkpoint that was being replaced
            complete.rename(final)
        shutil.rmtree(partial, ignore_errors=True)


def prune(checkpoints: Path, keep: Iterable[int]) -> None:
    """Remove all checkpoints except those of these steps."""
    for step in set(saved_steps(checkpoints)) - set(keep):
        shutil.rmtree(checkpoints / f"step-{step}")
