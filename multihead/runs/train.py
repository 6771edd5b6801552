"""A training run: from raw text to a published model, saved on the way, and resumed where it stopped.

DIR/config.json  data/  checkpoints/step-N/  log.jsonl  tensorboard/  training.png, and in the end
DIR/model.safetensors  tokenizer.json  shortlist.safetensors  README.md  SHA256SUMS: the average of the last
checkpoints, or the best one if that is better
"""

import contextlib
import shutil
import signal
import time
from pathlib import Path
from typing import NoReturn

from rich.console import Console

from multihead.console import Log, log_to
from multihead.distributed.process_group import ProcessGroup, process_group, under_torchrun
from multihead.distributed.sharding import shard_like
from multihead.hardware.device import precision_name
from multihead.hardware.memory import keep_freed_memory
from multihead.interop.formats import describe_export_support
from multihead.model.weights import count_parameters, load_weights, weights_of
from multihead.runs.base_model import open_base_model
from multihead.runs.log import NullLog, TrainingLog
from multihead.runs.loop import TrainingLoop
from multihead.runs.request import TrainingRequest
from multihead.runs.setup import setup_run
from multihead.storage.checkpoints import latest_valid, remove_partial
from multihead.storage.files import exclusive
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.checkpoint import load_checkpoint
from multihead.training.trainer import Trainer


def train(request: TrainingRequest, console: Console | None = None) -> Path:
    """Train into `request.output` and return it; called again, resume where the run stopped.

    After SIGINT or SIGTERM the run is saved, and then KeyboardInterrupt or SystemExit(143) is raised.

    Under torchrun every process calls it. The first one prepares, validates and writes; all of them have to see the
    folder that it writes into. A signal makes it return, since torchrun takes any other end for a failure.
    """
    started = time.monotonic()
    with process_group() as group:
        console = (console or Console(stderr=True)) if group.is_main else Console(quiet=True)
        with exclusive(request.output) if group.is_main else contextlib.nullcontext():
            trainer = _make_trainer(request, group, log_to(console), started)
            with _open_log(request.output, console, trainer) as journal:
                run = TrainingLoop(trainer, journal, request.output)
                reason = run.until_finished()
                journal.say(f"stopped at step {trainer.state.step:,}: {reason}")
    if run.stopped_by and not under_torchrun():
        _exit_by_signal(run.stopped_by)
    return request.output


def _exit_by_signal(number: int) -> NoReturn:
    """End as a process that did not handle the signal would, so that scripts notice."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)


def _make_trainer(request: TrainingRequest, group: ProcessGroup, log: Log, started: float) -> Trainer:
    """A trainer that stands where the run stopped, or at its beginning."""
    run_config, data = group.on_main(lambda: setup_run(request, log, group.world_size))
    keep_freed_memory()
    trainer = Trainer(run_config, data, SubwordTokenizer.load(data / "tokenizer.json"), group)
    trainer.state.seconds = group.on_main(lambda: time.monotonic() - started)
    if saved := group.on_main(lambda: _checkpoint_to_resume(request.output, log)):
        trainer.restore(load_checkpoint(saved), saved)
        log(f"going on from step {trainer.state.step:,}")
    elif name := run_config.train.base_model:
        load_weights(trainer.model, weights_of(open_base_model(name).model), Path(name), shard_like)
    processes = "" if group.world_size == 1 else f", {group.world_size} processes ({run_config.train.parallel})"
    log(
        f"{count_parameters(trainer.model) / 1e6:.1f} million parameters, {len(trainer.train_shards):,} pairs, "
        f"{trainer.device.type}, {precision_name(trainer.precision)}{processes}"
    )
    log(describe_export_support(run_config.model))
    return trainer


def _checkpoint_to_resume(output: Path, log: Log) -> Path | None:
    """Remove what a crash left behind, and return the newest checkpoint."""
    remove_partial(output / "checkpoints")
    for partial in output.glob(".*.partial"):
        if partial.is_dir() and not partial.is_symlink():
            shutil.rmtree(partial)
        else:
            partial.unlink()
    return latest_valid(output / "checkpoints", log)


def _open_log(output: Path, console: Console, trainer: Trainer) -> TrainingLog | NullLog:
    return TrainingLog(output, console, after_step=trainer.state.step) if trainer.group.is_main else NullLog()
