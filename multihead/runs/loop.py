"""TODO."""

import contextlib
import math
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path

from multihead.config.schema import BEAM, SearchConfig
from multihead.data.augment import noisy_copies
from multihead.data.shards import Shards, corpus_identity, read_summary
from multihead.errors import UserError
from multihead.evaluation.metrics import scores
from multihead.hardware.device import matmul_flops
from multihead.hardware.flops import counted_flops
from multihead.model.weights import count_parameters, load_weights, to_arrays
from multihead.runs.base_model import SHORTLIST_FOLDER
from multihead.runs.estimate import MAX_DAYS
from multihead.runs.learn_shortlist import learn_shortlists
from multihead.runs.log import NullLog, TrainingLog
from multihead.runs.model_card import write_card
from multihead.runs.publish import MIN_BLEU_GAIN, N_EXAMPLES, N_SCORED, Candidate
from multihead.runs.tuning import MAX_SENTENCES, Tuned, Tuner, ValidationText, shortlists
from multihead.storage.checkpoints import prune, saved_steps, valid_checkpoints
from multihead.storage.files import write_text_atomic
from multihead.storage.model_folder import WEIGHTS, Provenance, PublishedScore, is_published, save_model
from multihead.storage.shortlist import FILE, Shortlist, load_shortlist
from multihead.training.checkpoint import Checkpoint, average_checkpoints, save_checkpoint
from multihead.training.metrics import Metrics, RunningTotals, perplexity
from multihead.training.schedule import training_seconds
from multihead.training.trainer import Trainer
from multihead.training.validation import Validator

MAX_SKIPPED = 10  # steps in a row without a usable gradient, after which a run is stopped
LONG_RUN = 86_400 * MAX_DAYS  # seconds; who starts a longer one is warned


class TrainingLoop:
    """A trainer, told when to log, validate, save and stop.

    Of several processes each has a run, and all decide alike: by the step, by the clock of the first one, by a signal
    to any of them.
    """

    def __init__(self, trainer: Trainer, journal: TrainingLog | NullLog, output: Path) -> None:
        self.trainer, self.journal, self.output, self.group = trainer, journal, output, trainer.group
        self.config = trainer.config.train
        self.checkpoints = output / "checkpoints"
        self.validator = Validator(
            trainer.full_model, trainer.tokenizer, Shards(output / "data", "valid"), trainer.config.data
        )
        self._started = time.monotonic() - trainer.state.seconds
        self._first_step, self._first_seconds = trainer.state.step, trainer.state.seconds
        self._saved_seconds = trainer.state.seconds
        self._saved_step = trainer.state.step or -1  # the checkpoint that the run resumes from has been verified
        self._validated_step = -1
        self._warned = False
        self._signal = 0  # that some process was asked to stop with
        self.stopped_by = 0  # the signal that ended the run before it was complete

    def until_finished(self) -> str:
        """Train until the run is complete or a signal asks to leave; returns why it stopped."""
        with catch_signals(insisting=self.group.world_size == 1) as received:
            while not (reason := self._complete()):
                if self._signal:
                    self._save()
                    self.stopped_by = self._signal
                    asked = signal.Signals(self._signal).name
                    return f"asked to stop ({asked}); run the same command again to go on"
                self._step(received)
        step = self.trainer.state.step
        if self.group.on_main(lambda: is_published(self.output, step)):
            if self._saved_step != step:
                self._save()  # its checkpoint was damaged
            return f"{reason}; raise --steps or --minutes to go on"
        if self._validated_step != self.trainer.state.step:
            self._validate(bleu_sentences=0)  # what is published is translated and scored right after
        self._save()
        if self.group.is_main:
            self._publish()
        return reason

    def _complete(self) -> str:
        """Why the run is complete, or nothing."""
        state = self.trainer.state
        if state.step >= self.config.steps:
            return f"all {self.config.steps:,} steps are done"
        if self.config.minutes and state.seconds >= training_seconds(self.config):
            return f"{self.config.minutes:g} minutes are over"
        if self.config.patience and state.validations_since_best >= self.config.patience:
            return f"no better validation loss than at step {state.best_step:,}"
        return ""

    def _step(self, received: list[int]) -> None:
        trainer, state = self.trainer, self.trainer.state
        began = time.perf_counter()
        trainer.step()
        self._agree(received)
        trainer.totals.seconds += time.perf_counter() - began
        if trainer.skipped_in_a_row >= MAX_SKIPPED:
            raise UserError(
                f"the gradient was infinite or undefined for {MAX_SKIPPED} steps in a row, up to step {state.step:,}: "
                "lower train.lr_scale, lengthen train.warmup or set train.clip_norm, and start anew"
            )
        self.journal.progress(state.step, trainer.progress())
        if state.step % self.config.log_every == 0:
            self._log()
        better = state.step % self.config.validate_every == 0 and self._validate(self.config.bleu_sentences)
        late = state.seconds - self._saved_seconds > 60 * self.config.save_minutes
        if better or late or state.step % self.config.save_every == 0:
            self._save()

    def _agree(self, received: list[int]) -> None:
        """The clock of the first process is that of all, and a signal to one is a signal to all."""
        seconds = time.monotonic() - self._started if self.group.is_main else 0.0
        number, self.trainer.state.seconds = self.group.max(received[0] if received else 0, seconds)
        self._signal = int(number)

    def _seconds_left(self) -> float:
        state = self.trainer.state
        pace = (state.seconds - self._first_seconds) / max(1, state.step - self._first_step)
        by_steps = pace * (self.config.steps - state.step)
        by_time = training_seconds(self.config) - state.seconds if self.config.minutes else math.inf
        return max(0.0, min(by_steps, by_time))

    def _log(self) -> None:
        trainer = self.trainer
        metrics = {**trainer.metrics(), "learning_rate": trainer.rate, "skipped": trainer.state.skipped}
        left = self._seconds_left()
        self._record(metrics, left)
        if left > LONG_RUN and not self._warned:
            self._warned = True
            self.journal.say(
                f"warning: at this pace the run takes {left / 86_400:,.0f} more days: "
                "`multihead plan` says what it needs, and --minutes sets a limit"
            )
        trainer.totals = RunningTotals()

    def _record(self, metrics: Metrics, seconds_left: float | None = None) -> None:
        minutes = round((time.monotonic() - self._started) / 60, 3)
        self.journal.record(self.trainer.state.step, {**metrics, "minutes": minutes}, seconds_left)

    def _validate(self, bleu_sentences: int) -> bool:
        """Validate and say so; True if it is the best so far."""
        self.trainer.sync_full_model()
        metrics = self.group.on_main(lambda: self.validator.metrics(bleu_sentences))
        self._record(metrics)
        self.journal.draw()
        self._validated_step = self.trainer.state.step
        return self.trainer.state.record_validation(metrics["valid_loss"])

    def _save(self) -> None:
        state = self.trainer.state
        saved = self.trainer.checkpoint()
        if self.group.is_main:
            self._write(saved)
        self._saved_step, self._saved_seconds = state.step, state.seconds

    def _write(self, saved: Checkpoint) -> None:
        state = saved.state
        # A folder of this step that this run neither wrote nor resumed from is damaged: it is replaced.
        if state.step != self._saved_step or self._complete():
            save_checkpoint(self.checkpoints, saved)
        regular = self._regular_steps()[-self.config.keep_checkpoints :]
        prune(self.checkpoints, {*regular, state.best_step, state.step})

    def _regular_steps(self) -> list[int]:
        """Checkpoints that the schedule alone accounts for, so that an interruption does not change the average."""
        steps = saved_steps(self.checkpoints)
        return [step for step in steps if step % self.config.save_every == 0 or step == self.trainer.state.step]

    def _publish(self) -> None:
        """Make everything that belongs to the model, then write it, the weights last.

        The weights carry the step, so a publication that is interrupted counts as none and is repeated.
        """
        trainer = self.trainer
        published, weights, loss = self._chosen()
        load_weights(trainer.full_model, weights, self.checkpoints)
        tuned = Tuner(trainer.full_model, trainer.tokenizer, self._validation_text()).tune(
            self.config, self._shortlists()
        )
        provenance = self._provenance(published, loss, tuned)
        summary = read_summary(self.output / "data")
        card = write_card(self.output.name, trainer.config, summary, provenance)
        if tuned.shortlist:
            tuned.shortlist.save(self.output)
        else:
            (self.output / FILE).unlink(missing_ok=True)  # of an earlier publication
        write_text_atomic(self.output / "README.md", card)
        vocabulary = trainer.tokenizer.to_json()
        save_model(self.output, to_arrays(weights), trainer.config, vocabulary, provenance, tuned.search)
        self.journal.draw()
        self._tell_published(provenance, tuned)

    def _chosen(self) -> Candidate:
        """§6.1: the average of the last checkpoints; or the one of the lowest loss, if that of the average is higher.

        Where a text is learned by heart the loss rises long before translations get worse. So an average that clearly
        translates better is published all the same.
        """
        state, folders = self.trainer.state, self._intact(self._regular_steps()[-self.config.average_checkpoints :])
        weights = average_checkpoints(folders)
        load_weights(self.trainer.full_model, weights, self.checkpoints)
        average = Candidate(f"the average of {len(folders)} checkpoints", weights, self.validator.loss())
        if state.best_loss is None or average.loss <= state.best_loss or not (best := self._intact([state.best_step])):
            return average
        alone = Candidate(f"step {state.best_step:,}", average_checkpoints(best), state.best_loss)
        if self.config.bleu_sentences and self._bleu(average) > self._bleu(alone) + MIN_BLEU_GAIN:
            return average
        return alone

    def _intact(self, steps: Sequence[int]) -> list[Path]:
        """Return the checkpoints of these steps; one whose weights are damaged is reported and left out."""
        folders = [self.checkpoints / f"step-{step}" for step in steps]
        return list(valid_checkpoints(folders, self.journal.say, [WEIGHTS]))

    def _bleu(self, choice: Candidate) -> float:
        load_weights(self.trainer.full_model, choice.weights, self.checkpoints)
        return self.validator.bleu(self.config.bleu_sentences)

    def _validation_text(self) -> ValidationText:
        trainer, shards = self.trainer, self.validator.shards
        pairs = [shards[pair] for pair in range(min(len(shards), MAX_SENTENCES))]
        return ValidationText(
            segments=[source.tolist() for source, _ in pairs],
            sources=[trainer.tokenizer.decode(source.tolist()) for source, _ in pairs],
            references=[trainer.tokenizer.decode(target.tolist()) for _, target in pairs],
            source_lang=trainer.config.data.source_lang,
            target_lang=trainer.config.data.target_lang,
        )

    def _shortlists(self) -> list[Shortlist]:
        """Learn shortlists, the smallest first; words of the model that the run started from stay possible."""
        trainer, before = self.trainer, None
        if self.config.base_model:
            before = load_shortlist(self.output / SHORTLIST_FOLDER) or load_shortlist(
                self.output
            )  # as older versions kept it
            if before is None:
                return []  # that model may say anything
        forms = noisy_copies(trainer.tokenizer, trainer.config.data)
        found = shortlists(learn_shortlists(trainer.train_shards, trainer.config.model.vocab_size, forms))
        return [words.union(before) for words in found] if before else found

    def _provenance(self, published: str, loss: float, tuned: Tuned) -> Provenance:
        """What the card and `multihead info` say of the model; validation text is translated as the model is used."""
        trainer, state = self.trainer, self.trainer.state
        parameters, capacity = (
            count_parameters(trainer.full_model),
            self.group.world_size * matmul_flops(trainer.device),
        )
        metrics = {"loss": loss, "perplexity": perplexity(loss)}
        translated = self.validator.translate(N_SCORED, SearchConfig().of_model(tuned.search), tuned.shortlist)
        _, translations, references = zip(*translated, strict=True)
        found = scores(translations, references, trainer.config.data.target_lang)
        return Provenance(
            steps=state.step,
            published=published,
            started_from=self.config.base_model or None,
            corpus_sha256=corpus_identity(self.output / "data"),
            parameters=parameters,
            target_tokens=state.tokens_seen,
            seconds=round(state.seconds, 1),
            matmul_flops=capacity,
            flops_by_time=state.seconds * capacity,
            flops_counted=counted_flops(trainer.config.model, state.tokens_seen),
            validation=metrics,
            scores=tuple(
                PublishedScore(set=f"validation, {len(translations)} sentences", **asdict(score)) for score in found
            ),
        )

    def _tell_published(self, provenance: Provenance, tuned: Tuned) -> None:
        metrics = {f"valid_{name}": value for name, value in provenance.validation.items()}
        words = "with a shortlist" if tuned.shortlist else "without a shortlist, which would cost BLEU"
        self.journal.say(
            f"published {provenance.published}, searched with beam {BEAM}, alpha {tuned.search.alpha:g}, {words}:"
        )
        self._record({**metrics, "valid_bleu": provenance.scores[0].value, "published": 1.0})
        search = SearchConfig().of_model(tuned.search)
        for source, translation, reference in self.validator.translate(N_EXAMPLES, search, tuned.shortlist):
            self.journal.say(f"  source       {source}\n  translation  {translation}\n  reference    {reference}\n")


@contextlib.contextmanager
def catch_signals(insisting: bool) -> Iterator[list[int]]:
    """SIGTERM and Ctrl-C fill the list instead of ending the process; if it may insist, a second one ends it.

    torchrun passes on what it is sent, so that its processes may be told twice; it ends by force who does not leave.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # signals reach the main thread only
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def remember(number: int, _: object) -> None:
        received.append(number)
        if insisting:
            signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, remember)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
