"""TODO."""

import contextlib
import copy
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from multihead.config.schema import RunConfig, SearchConfig
from multihead.data.augment import augmentation
from multihead.data.epochs import BatchPlan, Cursor, StepPosition, batch_plans, split_step
from multihead.data.shards import Shards, open_training_shards
from multihead.distributed.data_parallel import no_gradient_sync, replicate, shard
from multihead.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from multihead.distributed.sharding import full_tensor, shard_like
from multihead.evaluation.metrics import bleu
from multihead.hardware.device import pick_device, pick_precision, pinned_threads
from multihead.hardware.memory import keep_freed_memory
from multihead.model.build import build_model
from multihead.model.weights import Tensors, load_weights, weights_of
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.batch import Batch, read_batch, validation_batches
from multihead.training.checkpoint import Checkpoint, TrainState
from multihead.training.objective import Objective
from multihead.training.optimizers import make_optimizers
from multihead.training.schedule import Metrics, learning_rate, training_seconds
from multihead.translation.search.beam import search
from multihead.translation.search.candidates import Candidates

GREEDY = SearchConfig(beam=1)  # good enough to follow a run


@dataclass(slots=True)
class RunningTotals:
    """Sums over the steps since the last line of the log."""

    loss: float = 0.0
    plain_loss: float = 0.0
    n_tokens: int = 0
    since: float = field(default_factory=time.perf_counter)

    def metrics(self) -> Metrics:
        seconds = time.perf_counter() - self.since
        tokens = max(self.n_tokens, 1)
        return {
            "loss": self.loss / tokens,
            "perplexity": math.exp(min(self.plain_loss / tokens, 700)),
            "tokens_per_second": self.n_tokens / seconds,
        }


class Trainer:
    """A model with its optimiser, its stream of batches and its state; one step at a time.

    Of several processes each has a trainer, and all of them call the same methods in the same order; those that only
    read the model, as validation does, are for the first one.
    """

    def __init__(
        self, config: RunConfig, data: Path, tokenizer: SubwordTokenizer, group: ProcessGroup = SINGLE_PROCESS
    ) -> None:
        self.config, self.tokenizer, self.group = config, tokenizer, group
        self.train_shards, self.valid_shards = open_training_shards(data), Shards(data, "valid")
        self.device = pick_device()
        keep_freed_memory()
        self.precision = pick_precision(config.train.precision, self.device)
        torch.manual_seed(config.train.seed)
        self.full_model = build_model(config.model).to(self.device)  # whole, to look at
        is_sharded = group.world_size > 1 and config.train.parallel == "fsdp"
        self.model = copy.deepcopy(self.full_model) if is_sharded else self.full_model
        objective = Objective(self.model, config.train.compile)
        self.objective: nn.Module = objective
        if is_sharded:
            self.objective = shard(objective, objective.shard_units(), group)
            if not group.is_main:
                self.full_model.to("meta")  # not needed on other ranks
        elif group.world_size > 1:
            self.objective = replicate(objective)
        self.optimizers = make_optimizers(self.model, config.train, self.precision)
        self.rate = 0.0  # of the last step
        self.state = TrainState()
        self.totals = RunningTotals()
        self.skipped_in_a_row = 0
        self._augment = augmentation(tokenizer, config.data)
        self._stream = self._open_stream()

    def _open_stream(self) -> Iterator[tuple[BatchPlan, Cursor]]:
        config = self.config
        return batch_plans(self.train_shards, config.data.batch_tokens, config.train.seed, self.state.cursor)

    def step(self) -> None:
        """One update of the weights (§5.3), from one or several batches, by one or several processes."""
        with pinned_threads(self.device):
            self._step()

    def _step(self) -> None:
        train, step = self.config.train, self.state.step + 1
        taken = [next(self._stream) for _ in range(train.accumulate)]
        shares = split_step([batch for batch, _ in taken], self.group.rank, self.group.world_size)
        mine = [(place, self._read(batch)) for place, batch in shares]
        n_tokens = int(self.group.sum(sum(batch.n_tokens for _, batch in mine))[0])
        self.model.train()
        for place, batch in mine:
            torch.manual_seed(_dropout_seed(train.seed, step, place))
            is_last = place == mine[-1][0]
            with contextlib.nullcontext() if is_last else no_gradient_sync(self.objective):
                self._backward(batch.to(self.device), n_tokens)
        usable = self._gradient_is_usable()
        if usable:
            self.rate = self.learning_rate()
            for optimizer in self.optimizers:
                for parameters in optimizer.param_groups:
                    parameters["lr"] = self.rate
                optimizer.step()
        self.model.zero_grad(set_to_none=True)
        self.skipped_in_a_row = 0 if usable else self.skipped_in_a_row + 1
        self.totals.n_tokens += n_tokens
        self.state.step = step
        self.state.cursor = taken[-1][1]
        self.state.tokens_seen += n_tokens
        self.state.skipped += not usable

    def _read(self, batch: BatchPlan) -> Batch:
        return read_batch(self.train_shards, batch, self.config.train.seed, self._augment)

    def progress(self) -> float:
        """How much of the run is done, by whichever limit is nearer."""
        train, state = self.config.train, self.state
        by_time = state.seconds / training_seconds(train) if train.minutes else 0.0
        return min(1.0, max(state.step / train.steps, by_time))

    def learning_rate(self) -> float:
        """Of the next step."""
        return learning_rate(self.state.step + 1, self.config.model.d_model, self.config.train, self.progress())

    def _backward(self, batch: Batch, n_tokens: int) -> None:
        """Add a batch's gradient; dividing by the tokens of the whole step, of all processes, makes accumulation and
        processes change only speed."""
        train = self.config.train
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            loss, plain = self.objective(batch, train.label_smoothing, self._r_drop())
        # Where the gradients of processes meet their mean is taken, and what is wanted is the sum.
        weight = self.group.world_size if batch.n_tokens else 0
        (loss * weight / n_tokens).backward()
        if batch.n_tokens:
            self.totals.loss += float(loss.detach())
            self.totals.plain_loss += float(plain)

    def _r_drop(self) -> float:
        """Its weight in the next step."""
        train = self.config.train
        return train.r_drop if self.progress() >= train.r_drop_from else 0.0

    def _gradient_is_usable(self) -> bool:
        """The gradient is that of all processes, so that they agree."""
        clip = self.config.train.clip_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        return bool(torch.isfinite(full_tensor(norm)))

    def metrics(self) -> Metrics:
        """What the meters of all processes say together."""
        self.totals.loss, self.totals.plain_loss = self.group.sum(self.totals.loss, self.totals.plain_loss)
        return self.totals.metrics()

    def sync_full_model(self) -> None:
        """Bring the model that is looked at up to date, if the one that is trained is in shards."""
        if self.model is self.full_model:
            return
        weights = self._on_first(weights_of(self.model))
        if self.group.is_main:
            load_weights(self.full_model, weights, Path("shards"))

    def _on_first(self, tensors: Tensors) -> Tensors:
        """All of these tensors, of which the other processes may each have a shard; nothing on these others."""
        gathered = ((name, full_tensor(tensor)) for name, tensor in tensors.items())
        return {name: tensor for name, tensor in gathered if self.group.is_main}

    @torch.inference_mode()
    def validation_loss(self) -> float:
        """Nats a token on the validation pairs, without smoothing or dropout."""
        self.full_model.eval()
        objective = Objective(self.full_model)
        total, n_tokens = 0.0, 0
        for _, batch in validation_batches(self.valid_shards, self.config.data.batch_tokens):
            total += float(objective(batch.to(self.device), smoothing=0.0, r_drop=0.0)[1])
            n_tokens += batch.n_tokens
        return total / n_tokens

    def translate_validation(
        self, most: int, config: SearchConfig = GREEDY, words: Shortlist | None = None
    ) -> list[tuple[str, str, str]]:
        """(source, translation, reference) of the first validation pairs."""
        self.full_model.eval()
        candidates = Candidates(words, self.device) if words else None
        found: list[tuple[int, tuple[str, str, str]]] = []
        for pairs, batch in validation_batches(self.valid_shards, self.config.data.batch_tokens, most):
            outputs = search([self.full_model], batch.source.to(self.device), config, shortlist=candidates)
            for pair, output in zip(pairs.tolist(), outputs, strict=True):
                source, reference = (self.tokenizer.decode(ids.tolist()) for ids in self.valid_shards[pair])
                found.append((pair, (source, self.tokenizer.decode(output.best(1)[0].tokens), reference)))
        return [texts for _, texts in sorted(found)]

    def validate(self, most: int) -> Metrics:
        """Loss and perplexity on the validation pairs, and BLEU on so many of them."""
        loss = self.validation_loss()
        metrics = {"valid_loss": loss, "valid_perplexity": math.exp(min(loss, 700))}
        if most:
            metrics["valid_bleu"] = self.validation_bleu(most)
        return metrics

    def validation_bleu(self, most: int) -> float:
        _, translations, references = zip(*self.translate_validation(most), strict=True)
        return bleu(translations, references, self.config.data.target_lang)

    def record_validation(self, loss: float) -> bool:
        """Remember whether this was the best; True if it was."""
        state = self.state
        best = state.best_loss is None or loss < state.best_loss
        state.validations_since_best = 0 if best else state.validations_since_best + 1
        if best:
            state.best_loss, state.best_step = loss, state.step
        return best

    def checkpoint(self) -> Checkpoint:
        """What the run needs to go on, with any number of processes; tensors are on the first one alone."""
        moments = {
            f"{kind}.{name}": tensor
            for optimizer in self.optimizers
            for name, parameter in self.model.named_parameters()
            for kind, tensor in optimizer.state.get(parameter, {}).items()
        }
        return Checkpoint(
            weights=self._on_first(weights_of(self.model)),
            optimizer=self._on_first(moments),
            state=self.state,
            config=self.config,
            tokenizer_json=self.tokenizer.to_json(),
        )

    def restore(self, saved: Checkpoint, origin: Path) -> None:
        """Go on from a checkpoint."""
        load_weights(self.model, saved.weights, origin, shard_like)
        of_parameter: dict[str, dict[str, Tensor]] = {}
        for name, tensor in saved.optimizer.items():
            kind, _, parameter_name = name.partition(".")
            of_parameter.setdefault(parameter_name, {})[kind] = tensor
        names = {parameter: name for name, parameter in self.model.named_parameters()}
        for optimizer in self.optimizers:
            parameters = [parameter for each in optimizer.param_groups for parameter in each["params"]]
            moments = {
                at: {kind: _fitting(tensor, one) for kind, tensor in of_parameter[names[one]].items()}
                for at, one in enumerate(parameters)
                if names[one] in of_parameter
            }
            optimizer.load_state_dict({**optimizer.state_dict(), "state": moments})
        self.state = saved.state
        self._stream = self._open_stream()


def _fitting(moment: Tensor, parameter: Tensor) -> Tensor:
    """A moment in the shards of its parameter; a count of steps has none."""
    return shard_like(moment, parameter) if moment.shape == parameter.shape else moment


def _dropout_seed(seed: int, step: int, place: StepPosition) -> int:
    return int(np.random.SeedSequence([seed, step, *place]).generate_state(1, np.uint64)[0] >> 1)
