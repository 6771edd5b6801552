"""A run that is killed at every file event, from preparing to publishing, and resumed: the bytes are the same."""

import multiprocessing
import os
import signal
import sys
import time
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from pathlib import Path

from multihead.runs.request import TrainingRequest
from multihead.runs.train import train
from tests.conftest import QUICK, copy_or_reverse, write_pairs
from tests.gauntlet.outcome import Row
from tests.ranks import PRELOADED

SETTINGS = {**QUICK, "train.steps": 4, "train.save_every": 2, "train.validate_every": 4}
EVENTS = (
    "open",
    "os.mkdir",
    "os.rename",
    "os.remove",
    "os.rmdir",
    "os.link",
    "os.symlink",
    "os.chmod",
    "shutil.rmtree",
)
SECONDS = 300.0


def train_and_die(request: TrainingRequest, kill_at: int) -> None:
    """Train, and die at the nth time that a file of the run is opened, made, renamed or removed."""
    events, output = 0, str(request.output)

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        nonlocal events
        if event in EVENTS and str(arguments[0]).startswith(output):
            events += 1
            if events == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(watch)
    sys.stderr = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - of a process that ends here
    train(request)


def _status(context: ForkServerContext, request: TrainingRequest, kill_at: int = 0) -> int | None:
    """Train in a process of its own, and return its status; None if it hung."""
    process = context.Process(target=train_and_die, args=(request, kill_at))
    process.start()
    process.join(SECONDS)
    if process.exitcode is None:
        process.kill()
    return process.exitcode


def run(fast: bool, folder: Path) -> Row:
    """Kill at event 1, 2, 3 ... until a run gets through. A fast round takes a few of them."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    source, target = write_pairs(folder, copy_or_reverse(120, seed=1))
    request = TrainingRequest(output=folder / "whole" / "run", source=source, target=target, preset="base",
                              settings=SETTINGS)  # fmt: skip
    row = Row("kills at file events")
    train(request)
    expected = (request.output / "model.safetensors").read_bytes()
    for kill_at in (20, 80) if fast else range(1, 1000):
        killed = replace(request, output=folder / f"at{kill_at}" / "run")
        began = time.monotonic()
        first = _status(context, killed, kill_at)
        second = _status(context, killed)
        same = (killed.output / "model.safetensors").read_bytes() == expected if second == 0 else False
        row.add(f"event {kill_at}", None if same else f"status {first}, then {second}", time.monotonic() - began)
        if first == 0:
            break
    return row
