"""The loop around a trainer: when to log, validate, save, publish and stop."""

import math
import signal
import time
from pathlib import Path

from multihead.config.schema import SearchConfig
from multihead.console import duration
from multihead.data.shards import Shards
from multihead.errors import UserError
from multihead.runs.limits import MAX_DAYS
from multihead.runs.log import TrainingLog
from multihead.runs.publish import publish, scheduled_steps
from multihead.runs.publishing_time import PublishingTime
from multihead.runs.signals import catch_signals
from multihead.storage.checkpoints import prune
from multihead.storage.model_folder import is_published, read_provenance
from multihead.training.checkpoint import Checkpoint, save_checkpoint
from multihead.training.metrics import Metrics, RunningTotals
from multihead.training.trainer import Trainer

MAX_SKIPPED = 10  # consecutive steps without a usable gradient, after which a run is stopped
AGREEMENT_SECONDS = 0.5  # about how often the ranks of a run agree on the clock and on signals, which makes them wait
LONG_RUN_SECONDS = 86_400 * MAX_DAYS  # a longer run is warned of
MAX_STEPS_APART = 50
N_EXAMPLES = 4  # validation sentences shown at the end


def steps_until_agreement(pace: float) -> int:
    """Return how many steps of `pace` seconds ranks take without agreeing on anything but gradients."""
    return max(1, min(MAX_STEPS_APART, int(AGREEMENT_SECONDS / pace))) if pace else 1


class TrainingLoop:
    """Tells a trainer when to log, validate, save and stop.

    Under torchrun each process has a loop, and all of them decide alike: by the step, by the clock of rank 0, by a
    signal to any rank.
    """

    def __init__(self, trainer: Trainer, log: TrainingLog, output: Path) -> None:
        self.trainer, self.log, self.output, self.group = trainer, log, output, trainer.group
        self.config = trainer.config.train
        self.checkpoints = output / "checkpoints"
        shards = Shards(output / "data", "valid")
        self.validator = trainer.validator(shards)
        self.stopped_by = 0  # the signal that ended the run before it was complete
        self._started = time.monotonic() - trainer.state.seconds
        self._first_step, self._first_seconds = trainer.state.step, trainer.state.seconds
        self._saved_seconds = trainer.state.seconds
        self._saved_step = trainer.state.step or -1  # the checkpoint that the run resumes from has been verified
        self._validated_step = -1
        self._has_warned = False
        self._signal = 0  # received by any rank
        self._has_used_its_time = False
        self._next_agreement = 0  # the step after which the ranks agree again
        self._publishing: PublishingTime | None = None  # on rank 0, if the time of the run is limited
        self._reserved = 0.0  # seconds for publishing

    def run(self) -> str:
        """Train until the run is complete or a signal arrives, publish, and return why the run stopped."""
        with catch_signals(second_signal_exits=self.group.world_size == 1) as received:
            if self.config.minutes:
                self._prepare_time_limit(received)
            while not (reason := self._stop_reason()):
                if self._signal:
                    self._save()
                    self.stopped_by = self._signal
                    return f"received {signal.Signals(self._signal).name}; run the same command again to resume"
                self._step(received)
        return self._finish(reason)

    def _finish(self, reason: str) -> str:
        """Publish a complete run, unless that has been done."""
        step = self.trainer.state.step
        if not step:
            raise UserError(
                f"{reason} before the first step, so there is no model to publish: run the same command again with "
                "more --minutes; what is prepared is kept"
            )
        if self.group.on_main(lambda: is_published(self.output, step)):
            if self._saved_step != step:
                self._save()  # its checkpoint was damaged
            return f"{reason}; raise --steps or --minutes to continue"
        if self._validated_step != step:
            self._validate(bleu_sentences=0)  # the published model is translated with and scored below
        self._save()
        if self.group.is_main:
            self._publish()
        return reason

    def _stop_reason(self) -> str | None:
        """Return why the run is complete; None if it is not."""
        state = self.trainer.state
        if self.config.steps and state.step >= self.config.steps:
            return f"all {self.config.steps:,} steps are done"
        if self._has_used_its_time or (self.config.minutes and state.seconds + self._pace() > self._max_seconds()):
            return f"the limit of {self.config.minutes:g} minutes is reached"
        if self.config.patience and state.validations_since_best >= self.config.patience:
            return f"no better validation loss than at step {state.best_step:,}"
        return None

    def _step(self, received: list[int]) -> None:
        trainer, state = self.trainer, self.trainer.state
        began = time.perf_counter()
        trainer.step()
        self._sync_clock_and_signals(received)
        trainer.totals.seconds += time.perf_counter() - began
        if trainer.skipped_in_a_row >= MAX_SKIPPED:
            raise UserError(
                f"the gradient was infinite or undefined for {MAX_SKIPPED} steps in a row, up to step {state.step:,}: "
                "lower train.lr_scale, lengthen train.warmup or set train.clip_norm, and start a new run"
            )
        self.log.progress(state.step, trainer.progress())
        if state.step % self.config.log_every == 0:
            self._log_metrics()
        is_best = False
        if state.step % self.config.validate_every == 0:
            is_best = self._validate(self.config.bleu_sentences)
            if self._publishing:
                self._publishing.measure(SearchConfig())
        is_late = state.seconds - self._saved_seconds > 60 * self.config.save_minutes
        if is_best or is_late or state.step % self.config.save_every == 0:
            self._save()

    def _sync_clock_and_signals(self, received: list[int]) -> None:
        """Take the clock and the estimate of rank 0, and a signal that any rank received.

        Short steps share an agreement; all ranks take the number of them from rank 0.
        """
        step = self.trainer.state.step
        if step < self._next_agreement:
            return
        seconds = time.monotonic() - self._started if self.group.is_main else 0.0
        reserved = self._publishing.seconds if self._publishing else 0.0
        n_steps = steps_until_agreement(self._pace()) if self.group.world_size > 1 and self.group.is_main else 1
        number, self.trainer.state.seconds, self._reserved, n_steps_of_all = self.group.max(
            received[0] if received else 0, seconds, reserved, n_steps
        )
        self._signal, self._next_agreement = int(number), step + int(n_steps_of_all)
        if self.config.minutes:
            self.trainer.max_seconds = self._max_seconds()

    # The time limit

    def _prepare_time_limit(self, received: list[int]) -> None:
        """Reserve the time that publishing needs, unless the model of these minutes is published already."""
        self._has_used_its_time = self.group.on_main(self._is_published_with_this_limit)
        if self.group.is_main and not self._has_used_its_time:
            self._publishing = PublishingTime(self.trainer, self.validator)
        self._sync_clock_and_signals(received)
        self._first_seconds = self.trainer.state.seconds

    def _is_published_with_this_limit(self) -> bool:
        is_complete = is_published(self.output, self.trainer.state.step)
        return is_complete and read_provenance(self.output).minutes == self.config.minutes

    def _max_seconds(self) -> float:
        """Return the seconds after which training stops so that publishing ends within the limit."""
        return 60 * self.config.minutes - self._reserved

    def _pace(self) -> float:
        """Return the mean seconds of a step in this session."""
        state = self.trainer.state
        return (state.seconds - self._first_seconds) / max(1, state.step - self._first_step)

    # Logging

    def _log_metrics(self) -> None:
        trainer = self.trainer
        metrics = {**trainer.metrics(), "learning_rate": trainer.rate, "skipped": trainer.state.skipped}
        left = self._seconds_left()
        self._record(metrics, left)
        if left > LONG_RUN_SECONDS and not self._has_warned:
            self._has_warned = True
            self.log.say(
                f"warning: at this speed the run takes {duration(left)} more; estimate it with `multihead plan`, "
                "or set a limit with --minutes"
            )
        trainer.totals = RunningTotals()

    def _seconds_left(self) -> float:
        state = self.trainer.state
        by_steps = self._pace() * (self.config.steps - state.step) if self.config.steps else math.inf
        by_time = self._max_seconds() - state.seconds if self.config.minutes else math.inf
        return max(0.0, min(by_steps, by_time))

    def _record(self, metrics: Metrics, seconds_left: float | None = None) -> None:
        minutes = round((time.monotonic() - self._started) / 60, 3)
        self.log.record(self.trainer.state.step, {**metrics, "minutes": minutes}, seconds_left)

    # Validating, saving, publishing

    def _validate(self, bleu_sentences: int) -> bool:
        """Validate, and return whether the loss is the best so far."""
        self.trainer.sync_full_model()
        metrics = self.group.on_main(lambda: self.validator.metrics(bleu_sentences))
        self._record(metrics)
        self.log.draw()
        self._validated_step = self.trainer.state.step
        return self.trainer.state.record_validation(metrics["valid_loss"])

    def _save(self) -> None:
        state = self.trainer.state
        checkpoint = self.trainer.checkpoint()
        if self.group.is_main:
            self._write(checkpoint)
        self._saved_step, self._saved_seconds = state.step, state.seconds

    def _write(self, checkpoint: Checkpoint) -> None:
        """Write a checkpoint, and delete those that are no longer needed."""
        state = checkpoint.state
        # A folder of this step that this run neither wrote nor resumed from is damaged, and is replaced.
        if state.step != self._saved_step or self._stop_reason():
            save_checkpoint(self.checkpoints, checkpoint)
        newest = scheduled_steps(self.checkpoints, self.config, state.step)[-self.config.keep_checkpoints :]
        prune(self.checkpoints, {*newest, state.best_step, state.step})

    def _publish(self) -> None:
        published = publish(self.trainer, self.validator, self.output, self.log.say)
        self.log.draw()
        self.log.say(published.summary())
        self._record(published.metrics())
        for pair in published.examples(self.validator, N_EXAMPLES):
            self.log.say(
                f"  source       {pair.source}\n  translation  {pair.translation}\n  reference    {pair.reference}\n"
            )
