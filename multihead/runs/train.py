"""`multihead train`: from raw text to a published model, saved on the way, and resumed where it stopped.

The folder of a run has config.json, data/, checkpoints/step-N/, log.jsonl, tensorboard/ and training.png; a published
run also has model.safetensors, tokenizer.json, shortlist.safetensors, README.md and SHA256SUMS.
"""

import contextlib
import shutil
import time
from pathlib import Path

from rich.console import Console

from multihead.config.resolve import value_of
from multihead.config.schema import TrainConfig
from multihead.console import Log, is_quiet, log_to
from multihead.distributed.process_group import ProcessGroup, process_group, under_torchrun
from multihead.hardware.device import precision_name
from multihead.hardware.load import busy_warning
from multihead.hardware.memory import keep_freed_memory
from multihead.interop.formats import describe_export_support
from multihead.model.weights import Tensors, count_parameters, to_tensors
from multihead.runs.base_model import open_base_model
from multihead.runs.log import TrainingLog
from multihead.runs.loop import TrainingLoop
from multihead.runs.request import TrainingRequest
from multihead.runs.setup import setup_run
from multihead.runs.signals import exit_by_signal
from multihead.storage.checkpoints import latest_valid, remove_partial
from multihead.storage.files import exclusive
from multihead.system import is_link
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.checkpoint import load_checkpoint
from multihead.training.trainer import Trainer


def train(request: TrainingRequest, console: Console | None = None) -> Path:
    """Train into `request.output` and return it; called again, resume where the run stopped.

    After SIGINT or SIGTERM the run is saved, and then KeyboardInterrupt or SystemExit(143) is raised.

    Under torchrun every process calls it. Rank 0 prepares, validates and writes; all ranks must see the folder that it
    writes into. After a signal it returns, since torchrun would treat an exception as a failure.
    """
    started = time.monotonic()
    with process_group(_rank_timeout(request)) as group:
        console = (console or Console(stderr=True, quiet=is_quiet())) if group.is_main else Console(quiet=True)
        with exclusive(request.output) if group.is_main else contextlib.nullcontext():
            trainer = _make_trainer(request, group, log_to(console), started)
            with TrainingLog(request.output, console, trainer.state.step, enabled=group.is_main) as log:
                loop = TrainingLoop(trainer, log, request.output)
                reason = loop.run()
                log.say(f"stopped at step {trainer.state.step:,}: {reason}")
    if loop.stopped_by and not under_torchrun():
        exit_by_signal(loop.stopped_by)
    return request.output


def _rank_timeout(request: TrainingRequest) -> float:
    """Return the setting that is needed before the configuration of the run is known."""
    timeout = value_of(request.layers, "train.rank_timeout")
    return timeout if isinstance(timeout, float) else TrainConfig().rank_timeout


def _make_trainer(request: TrainingRequest, group: ProcessGroup, log: Log, started: float) -> Trainer:
    """Return a trainer at the newest checkpoint, or at the beginning of the run."""
    if group.is_main and (busy := busy_warning()):
        log(busy)
    run_config, data = group.on_main(lambda: setup_run(request, log, group.world_size))
    keep_freed_memory()
    trainer = Trainer(run_config, data, SubwordTokenizer.load(data / "tokenizer.json"), group)
    trainer.state.seconds = group.on_main(lambda: time.monotonic() - started)
    if saved := group.on_main(lambda: _checkpoint_to_resume(request.output, log)):
        trainer.restore(load_checkpoint(saved), saved)
        log(f"resuming from step {trainer.state.step:,}")
    elif name := run_config.train.base_model:
        trainer.start_from(lambda: _weights_of_base(run_config.train, trainer.tokenizer), Path(name))
    processes = "" if group.world_size == 1 else f", {group.world_size} processes ({run_config.train.parallel})"
    log(
        f"{count_parameters(trainer.model) / 1e6:.1f} million parameters, {len(trainer.train_shards):,} pairs, "
        f"{trainer.device.type}, {precision_name(trainer.precision)}{processes}"
    )
    log(describe_export_support(run_config.model, request.output))
    return trainer


def _weights_of_base(config: TrainConfig, tokenizer: SubwordTokenizer) -> Tensors:
    base = open_base_model(config.base_model, config.new_vocabulary)
    return to_tensors(base.initial_weights(tokenizer, config.seed))


def _checkpoint_to_resume(output: Path, log: Log) -> Path | None:
    """Remove partial files of a crash, and return the newest valid checkpoint."""
    remove_partial(output / "checkpoints")
    for partial in output.glob(".*.partial"):
        if partial.is_dir() and not is_link(partial):
            shutil.rmtree(partial)
        else:
            partial.unlink()
    return latest_valid(output / "checkpoints", log)
