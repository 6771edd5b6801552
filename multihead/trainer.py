"""Training (§5): the schedule, the loss, one step, validation.

A run is a function of its configuration and its text: batches depend on (seed, epoch), dropout on (seed, step). So a
run that was cut off goes on exactly as if nothing had happened.
"""

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from multihead import batches, checkpoint, corpus
from multihead.checkpoint import Checkpoint, TrainState
from multihead.config import RunConfig, SearchConfig, TrainConfig
from multihead.devices import keep_memory, pick_device, pick_precision
from multihead.journal import Figures
from multihead.loss import linear_smoothed_loss
from multihead.metrics import bleu
from multihead.model import Transformer
from multihead.search import search
from multihead.tokenizer import PAD_ID, SubwordTokenizer

Hidden = Callable[[Tensor, Tensor], Tensor]  # source and target ids to the decoder's output

GREEDY = SearchConfig(beam=1)  # good enough to follow a run


def learning_rate(step: int, d_model: int, config: TrainConfig, share: float = 0.0) -> float:
    """§5.3, eq. (3): up in a straight line for `warmup` steps, then down with the square root of the step.

    With `decay="linear"` it goes down with the `share` of the run that is done instead, and ends at zero: a short run
    learns most while its rate falls.
    """
    up = step * config.warmup**-1.5
    down = (1 - share) * config.warmup**-0.5 if config.decay == "linear" else step**-0.5
    rate: float = config.lr_scale * d_model**-0.5 * min(up, down)
    return rate


@dataclass(slots=True)
class Meter:
    """Sums over the steps since the last line of the log."""

    loss: float = 0.0
    plain_loss: float = 0.0
    n_tokens: int = 0
    since: float = field(default_factory=time.perf_counter)

    def figures(self) -> Figures:
        seconds = time.perf_counter() - self.since
        tokens = max(self.n_tokens, 1)
        return {
            "loss": self.loss / tokens,
            "perplexity": math.exp(min(self.plain_loss / tokens, 700)),
            "tokens_per_second": self.n_tokens / seconds,
        }


class Trainer:
    """A model with its optimiser, its stream of batches and its state; one step at a time."""

    def __init__(self, config: RunConfig, data: Path, tokenizer: SubwordTokenizer) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.train_shards, self.valid_shards = corpus.Shards(data, "train"), corpus.Shards(data, "valid")
        self.device = pick_device()
        keep_memory()
        self.precision = pick_precision(config.train.precision, self.device)
        torch.manual_seed(config.train.seed)
        self.model = Transformer(config.model).to(self.device)
        self.hidden = torch.compile(self.model.hidden, dynamic=True) if config.train.compile else self.model.hidden
        train = config.train
        self.optimizer = torch.optim.Adam(
            self.model.parameters(), lr=0.0, betas=(train.beta1, train.beta2), eps=train.eps, fused=True
        )
        self.state = TrainState()
        self.meter = Meter()
        self.skipped_in_a_row = 0
        self._stream = self._open_stream()

    def _open_stream(self) -> Iterator[tuple[batches.Batch, batches.Cursor]]:
        data = self.config.data
        augment = batches.bpe_dropout(self.tokenizer, data.bpe_dropout, data.max_length) if data.bpe_dropout else None
        return batches.stream(self.train_shards, data.batch_tokens, self.config.train.seed, self.state.cursor, augment)

    def step(self) -> None:
        """One update of the weights (§5.3), from one or several batches."""
        train, step = self.config.train, self.state.step + 1
        taken = [next(self._stream) for _ in range(train.accumulate)]
        n_tokens = sum(batch.n_tokens for batch, _ in taken)
        self.model.train()
        for part, (batch, _) in enumerate(taken):
            torch.manual_seed(_dropout_seed(train.seed, step, part))
            self._backward(batch.to(self.device), n_tokens)
        usable = self._gradient_is_usable()
        if usable:
            for group in self.optimizer.param_groups:
                group["lr"] = self.learning_rate()
            self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.skipped_in_a_row = 0 if usable else self.skipped_in_a_row + 1
        self.meter.n_tokens += n_tokens
        self.state.step = step
        self.state.cursor = taken[-1][1]
        self.state.tokens_seen += n_tokens
        self.state.skipped += not usable

    def share(self) -> float:
        """How much of the run is done, by whichever limit is nearer."""
        train, state = self.config.train, self.state
        by_time = state.seconds / (60 * train.minutes) if train.minutes else 0.0
        return min(1.0, max(state.step / train.steps, by_time))

    def learning_rate(self) -> float:
        """Of the next step."""
        return learning_rate(self.state.step + 1, self.config.model.d_model, self.config.train, self.share())

    def _backward(self, batch: batches.Batch, n_tokens: int) -> None:
        """Add a batch's gradient; dividing by the tokens of the whole step makes accumulation change only speed."""
        with torch.autocast(self.device.type, self.precision, enabled=self.precision != torch.float32):
            loss, plain = self._loss(self.hidden, batch, self.config.train.label_smoothing)
        (loss / n_tokens).backward()
        self.meter.loss += float(loss.detach())
        self.meter.plain_loss += float(plain)

    def _loss(self, hidden: Hidden, batch: batches.Batch, smoothing: float) -> tuple[Tensor, Tensor]:
        """Smoothed and plain loss, summed over the real tokens of a batch."""
        real = batch.target_out != PAD_ID  # B T
        x = hidden(batch.source, batch.target_in)[real]  # N D
        return linear_smoothed_loss(x, self.model.output, batch.target_out[real], smoothing)

    def _gradient_is_usable(self) -> bool:
        clip = self.config.train.clip_norm or math.inf
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), clip)
        return bool(torch.isfinite(norm))

    @torch.inference_mode()
    def validation_loss(self) -> float:
        """Nats a token on the validation pairs, without smoothing or dropout."""
        self.model.eval()
        total, n_tokens = 0.0, 0
        for _, batch in batches.in_order(self.valid_shards, self.config.data.batch_tokens):
            on_device = batch.to(self.device)
            total += float(self._loss(self.model.hidden, on_device, smoothing=0.0)[1])
            n_tokens += batch.n_tokens
        return total / n_tokens

    def translate_validation(self, most: int, config: SearchConfig = GREEDY) -> list[tuple[str, str, str]]:
        """(source, translation, reference) of the first validation pairs."""
        self.model.eval()
        found: list[tuple[int, tuple[str, str, str]]] = []
        for pairs, batch in batches.in_order(self.valid_shards, self.config.data.batch_tokens, most):
            outputs = search([self.model], batch.source.to(self.device), config)
            for pair, output in zip(pairs.tolist(), outputs, strict=True):
                source, reference = (self.tokenizer.decode(ids.tolist()) for ids in self.valid_shards[pair])
                found.append((pair, (source, self.tokenizer.decode(output.best(1)[0].tokens), reference)))
        return [texts for _, texts in sorted(found)]

    def validate(self) -> Figures:
        """Loss, perplexity and BLEU on the validation pairs."""
        loss = self.validation_loss()
        figures = {"valid_loss": loss, "valid_perplexity": math.exp(min(loss, 700))}
        if most := self.config.train.bleu_sentences:
            _, translations, references = zip(*self.translate_validation(most), strict=True)
            figures["valid_bleu"] = bleu(translations, references, self.config.data.target_lang)
        return figures

    def note_validation(self, loss: float) -> bool:
        """Remember whether this was the best; True if it was."""
        state = self.state
        best = state.best_loss is None or loss < state.best_loss
        state.stale = 0 if best else state.stale + 1
        if best:
            state.best_loss, state.best_step = loss, state.step
        return best

    def checkpoint(self) -> Checkpoint:
        moments = {
            f"{kind}.{name}": self.optimizer.state[parameter][kind]
            for name, parameter in self.model.named_parameters()
            for kind in self.optimizer.state[parameter]
        }
        return Checkpoint(
            weights=checkpoint.weights_of(self.model),
            optimizer=moments,
            state=self.state,
            config=self.config,
            tokenizer_json=self.tokenizer.to_json(),
        )

    def restore(self, saved: Checkpoint, origin: Path) -> None:
        """Go on from a checkpoint."""
        checkpoint.load_weights(self.model, saved.weights, origin)
        moments: dict[int, dict[str, Tensor]] = {}
        for at, (name, _) in enumerate(self.model.named_parameters()):
            kinds = ("step", "exp_avg", "exp_avg_sq")
            moments[at] = {kind: saved.optimizer[f"{kind}.{name}"] for kind in kinds if saved.optimizer}
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": moments if saved.optimizer else {}})
        self.state = saved.state
        self._stream = self._open_stream()


def _dropout_seed(seed: int, step: int, part: int) -> int:
    return int(np.random.SeedSequence([seed, step, part]).generate_state(1, np.uint64)[0] >> 1)
