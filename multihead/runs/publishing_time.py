"""How long publishing takes, measured on samples, so that a run with a time limit stops training early enough for it.

Publishing validates, averages checkpoints, translates validation text with several search settings and learns
shortlists. For a large model that takes minutes, for a tiny one seconds.
"""

import hashlib
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from multihead.config.schema import SearchConfig
from multihead.data.augment import noisy_copies
from multihead.data.shards import Shards
from multihead.model.weights import to_arrays, weights_of
from multihead.runs.learn_shortlist import SIZES, learning_seconds
from multihead.runs.tuning import MAX_SENTENCES
from multihead.training.trainer import Trainer
from multihead.training.validation import Validator

N_SCORED = 1024  # validation sentences on which a published model is scored
SAMPLES = (8, 64, 256)  # validation pairs that are translated, until a sample takes MIN_SECONDS
MIN_SECONDS = 0.3
OF_SOURCE_LENGTH = replace(SearchConfig(), max_extra=0)  # an untrained model would never end a translation
FIXED_SECONDS = 2.0  # the capacity of the machine is measured, a figure is drawn, small files are written
MARGIN = 1.25  # other programs may need the machine


class PublishingTime:
    """Estimates the seconds between the last step of a run and its end; measuring changes nothing."""

    def __init__(self, trainer: Trainer, validator: Validator) -> None:
        self._train, self._validator = trainer.config.train, validator
        vocab_size, noise = trainer.config.model.vocab_size, noisy_copies(trainer.tokenizer, trainer.config.data)
        n_copies = self._train.average_checkpoints + 1 + 3 + 1  # read: those averaged, the best; written: 3, the model
        self._once = (
            FIXED_SECONDS
            + learning_seconds(trainer.train_shards, vocab_size, noise)
            + n_copies * _seconds(lambda: _copy_weights(trainer))
        )
        self.measure(OF_SOURCE_LENGTH)

    def measure(self, search: SearchConfig) -> None:
        """Estimate with the model as it is; how long its translations are depends on what it has learned."""
        n_valid = len(self._validator.shards)
        for size in SAMPLES:
            n_pairs = min(size, n_valid)
            searching = _seconds(lambda: self._validator.translate(n_pairs, search))  # noqa: B023  # called at once
            if searching > MIN_SECONDS:
                break
        loss = _seconds(lambda: self._validator.loss(n_pairs))
        # Tuning searches to choose alpha, without a shortlist and with each. Greedy BLEU chooses between two models,
        # and a validation may begin just before the time is over.
        n_translated = (2 + len(SIZES)) * min(MAX_SENTENCES, n_valid) + min(N_SCORED, n_valid)
        n_translated += 3 * min(self._train.bleu_sentences, n_valid)
        self.seconds = MARGIN * (self._once + (searching * n_translated + loss * 2 * n_valid) / n_pairs)


def publishing_seconds(trainer: Trainer, data: Path) -> float:
    """Return about how long publishing takes for a run on a prepared corpus."""
    return PublishingTime(trainer, trainer.validator(Shards(data, "valid"))).seconds


def _copy_weights(trainer: Trainer) -> None:
    """Do what reading a checkpoint does: check the bytes of the weights, and add them to a sum."""
    for array in to_arrays(weights_of(trainer.full_model)).values():
        hashlib.sha256(array.tobytes())
        _ = array.astype("float64") + array


def _seconds(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began
