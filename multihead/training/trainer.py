"""One step of training (§5): gradients of a few batches, on one or several ranks, then one update of the weights.

A run is a function of its configuration and its text: batches depend on (seed, epoch), augmentation on (seed, epoch,
pair) and dropout on (seed, step). So an interrupted run continues exactly as if it had not been interrupted.
"""

import contextlib
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import nn

from multihead.concurrency import map_ahead
from multihead.config.schema import RunConfig
from multihead.data.augment import augmentation
from multihead.data.epochs import BatchPlan, Cursor, StepPosition, batch_plans, in_groups, split_step
from multihead.data.shards import Shards, open_training_shards
from multihead.distributed.data_parallel import no_gradient_sync, replicate, shard
from multihead.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from multihead.distributed.sharding import full_tensor, gather, scatter, shard_like
from multihead.hardware.device import (
    autocast,
    pick_device,
    pick_precision,
    pinned_threads,
    use_tensor_cores,
    validation_precision,
)
from multihead.model.build import build_model, model_without_memory
from multihead.model.transformer import Transformer
from multihead.model.weights import Tensors, load_weights, weights_of
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training import schedule
from multihead.training.batch import Batch, read_batch
from multihead.training.checkpoint import Checkpoint, TrainState, load_optimizer_tensors, optimizer_tensors
from multihead.training.metrics import Metrics, RunningTotals
from multihead.training.objective import Objective
from multihead.training.optimizers import make_optimizers
from multihead.training.validation import Validator


@dataclass(frozen=True, slots=True)
class StepBatches:
    """What a rank computes in a step."""

    batches: list[tuple[StepPosition, Batch]]
    following: Cursor  # of the next step


class Trainer:
    """A model, its optimizers and its place in the training data.

    With several ranks each has a trainer, and all call the same methods in the same order. `model` is the module that
    is trained, in shards under FSDP. `full_model` is for validation and publishing. Under FSDP rank 0 has all of it in
    the memory of the CPU, as of the last `sync_full_model`, and the other ranks have none of it.
    """

    def __init__(
        self, config: RunConfig, data: Path, tokenizer: SubwordTokenizer, group: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        self.config, self.tokenizer, self.group = config, tokenizer, group
        self.train_shards = open_training_shards(data)
        self.device = pick_device()
        self.precision = pick_precision(config.train.precision, self.device)
        if config.train.precision != "float32":
            use_tensor_cores(self.device)
        self._is_sharded = group.world_size > 1 and config.train.parallel == "fsdp"
        if self._is_sharded:
            self.full_model = _initial_model(config) if group.is_main else model_without_memory(config.model)
            self.model = model_without_memory(config.model)
        else:
            self.full_model = self.model = _initial_model(config).to(self.device)
        objective = Objective(self.model, config.train.compile)
        self.objective: nn.Module = objective
        if self._is_sharded:
            self.objective = shard(objective, objective.shard_units(), group, self.device)
            scatter(self.full_model, self.model)
        elif group.world_size > 1:
            self.objective = replicate(objective)
        self.optimizers = make_optimizers(self.model, config.train, self.precision, group)
        self.rate = 0.0  # of the last step
        self.state = TrainState()
        self.totals = RunningTotals()
        self.skipped_in_a_row = 0
        self.max_seconds: float | None = None  # of training, if the run needs a part of its time for something else
        self._augment = augmentation(tokenizer, config.data)
        self._batches = self._open_stream()

    def _open_stream(self) -> Iterator[StepBatches]:
        """Yield the batches of each step from `state.cursor` on. For a GPU a thread reads one step ahead."""
        config = self.config
        plans = batch_plans(self.train_shards, config.data.batch_tokens, config.train.seed, self.state.cursor)
        steps = in_groups(plans, config.train.accumulate)
        return map(self._read_step, steps) if self.device.type == "cpu" else map_ahead(self._read_step, steps)

    def _read_step(self, planned: Sequence[tuple[BatchPlan, Cursor]]) -> StepBatches:
        """Read the batches of a step that this rank computes."""
        share = split_step([plan for plan, _ in planned], self.group.rank, self.group.world_size)
        seed, is_pinned = self.config.train.seed, self.device.type == "cuda"
        batches = [(position, read_batch(self.train_shards, plan, seed, self._augment)) for position, plan in share]
        return StepBatches(
            batches=[(position, batch.pin_memory() if is_pinned else batch) for position, batch in batches],
            following=planned[-1][1],
        )

    def step(self) -> None:
        """Update the weights once (§5.3), from `train.accumulate` batches that all ranks share."""
        read = next(self._batches)
        with pinned_threads(self.device):
            n_tokens = self._compute_gradient(read.batches)
            updated = self._update_weights()
        self.skipped_in_a_row = 0 if updated else self.skipped_in_a_row + 1
        self.totals.n_tokens += n_tokens
        self.state.step += 1
        self.state.cursor = read.following
        self.state.tokens_seen += n_tokens
        self.state.skipped += not updated

    def _compute_gradient(self, batches: Sequence[tuple[StepPosition, Batch]]) -> int:
        """Compute the gradient of these batches on all ranks, and return the number of their target tokens."""
        n_tokens = int(self.group.sum(sum(batch.n_tokens for _, batch in batches))[0])
        self.model.train()
        for position, batch in batches:
            torch.manual_seed(_dropout_seed(self.config.train.seed, self.state.step + 1, position))
            is_last = position == batches[-1][0]
            with contextlib.nullcontext() if is_last else no_gradient_sync(self.objective):
                self._backward(batch.to(self.device), n_tokens)
        return n_tokens

    def _backward(self, batch: Batch, n_tokens: int) -> None:
        """Add the gradient of a batch.

        It is divided by the tokens of the whole step, so that neither accumulation nor the number of ranks changes it.
        """
        train = self.config.train
        r_drop = train.r_drop if self.progress() >= train.r_drop_from else 0.0
        with autocast(self.device, self.precision):
            loss, plain_loss = self.objective(batch, train.label_smoothing, r_drop)
        # DDP and FSDP average gradients over ranks; multiply by world_size to get their sum.
        weight = self.group.world_size if batch.n_tokens else 0
        (loss * weight / n_tokens).backward()
        if batch.n_tokens:
            self.totals.add_losses(loss, plain_loss)

    def _update_weights(self) -> bool:
        """Apply the gradient and clear it; return False, without an update, if it is not finite.

        This is where a step waits for a GPU, once.
        """
        is_finite = self._clip_gradient()
        if is_finite:
            self.rate = self.learning_rate()
            for optimizer in self.optimizers:
                for parameters in optimizer.param_groups:
                    parameters["lr"] = self.rate
                optimizer.step()
        self.model.zero_grad(set_to_none=True)
        return is_finite

    def _clip_gradient(self) -> bool:
        """Clip the norm of the gradient and return whether it is finite, which is the same on all ranks."""
        max_norm = self.config.train.clip_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm)
        return bool(torch.isfinite(full_tensor(norm)))

    def progress(self) -> float:
        """Return the share of the run that is done, by steps or by `state.seconds`, which the training loop sets."""
        return schedule.progress(self.config.train, self.state.step, self.state.seconds, self.max_seconds)

    def learning_rate(self) -> float:
        """Return the rate of the next step."""
        config = self.config
        return schedule.learning_rate(self.state.step + 1, config.model.d_model, config.train, self.progress())

    def metrics(self) -> Metrics:
        """Return the means over the steps in `totals`; every rank must call this."""
        return self.totals.metrics(self.group)

    def validator(self, shards: Shards) -> Validator:
        """Return what measures `full_model` on these pairs."""
        device = next(self.full_model.parameters()).device
        precision = validation_precision(device, self.precision)
        return Validator(self.full_model, self.tokenizer, shards, self.config.data, precision)

    def sync_full_model(self) -> None:
        """Copy the sharded weights to `full_model` on rank 0; every rank must call this."""
        if self._is_sharded:
            gather(self.model, self.full_model if self.group.is_main else None)

    def checkpoint(self) -> Checkpoint:
        """Return what a run needs to continue, on any number of ranks; every rank must call this.

        Tensors are on rank 0 only.
        """
        return Checkpoint(
            weights=self._gather(weights_of(self.model)),
            optimizer=self._gather(optimizer_tensors(self.model, self.optimizers)),
            state=self.state,
            config=self.config,
            vocabulary=self.tokenizer.files(),
        )

    def _gather(self, tensors: Tensors) -> Tensors:
        """Return full tensors in the memory of the CPU on rank 0, and nothing on the other ranks.

        Devices hold one of them in full at a time.
        """
        gathered = ((name, full_tensor(tensor)) for name, tensor in tensors.items())
        return {name: tensor.cpu() for name, tensor in gathered if self.group.is_main}

    def start_from(self, weights: Callable[[], Tensors], origin: Path) -> None:
        """Start with these weights instead of random ones; only ranks that hold all of them call `weights`."""
        if not self._is_sharded or self.group.is_main:
            load_weights(self.full_model, weights(), origin)
        if self._is_sharded:
            scatter(self.full_model, self.model)

    def restore(self, saved: Checkpoint, origin: Path) -> None:
        """Continue from a checkpoint; `origin` is named in the error if its weights do not fit."""
        load_weights(self.model, saved.weights, origin, shard_like)
        load_optimizer_tensors(self.model, self.optimizers, saved.optimizer)
        self.state = saved.state
        self._batches = self._open_stream()


def _initial_model(config: RunConfig) -> Transformer:
    """Build the model with weights drawn from `train.seed`; torch's global generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(config.train.seed)
        return build_model(config.model)


def _dropout_seed(seed: int, step: int, position: StepPosition) -> int:
    return int(np.random.SeedSequence([seed, step, *position]).generate_state(1, np.uint64)[0] >> 1)
