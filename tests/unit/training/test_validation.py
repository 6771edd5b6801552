"""Validation: what is measured, and what must not change it."""

import math
from pathlib import Path

import pytest

from multihead.data.shards import Shards
from multihead.training.validation import Validator
from tests.unit.training.conftest import trainer


def validator(data: Path, **settings: object) -> Validator:
    run = trainer(data, **settings)
    return Validator(run.full_model, run.tokenizer, Shards(data, "valid"), run.config.data)


def test_validation_measures_perplexity_and_bleu(prepared: Path) -> None:
    metrics = validator(prepared).metrics(bleu_sentences=1000)
    assert metrics["valid_perplexity"] == pytest.approx(math.exp(metrics["valid_loss"]))
    assert 0 <= metrics["valid_bleu"] <= 100
    assert "valid_bleu" not in validator(prepared).metrics(bleu_sentences=0)


def test_validation_does_not_depend_on_the_batch_size(prepared: Path) -> None:
    losses = [validator(prepared, data__batch_tokens=tokens).loss() for tokens in (33, 100, 1000)]
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-5)


def test_translations_come_in_the_order_of_the_corpus(prepared: Path) -> None:
    """Batches are sorted by length."""
    measured = validator(prepared)
    expected = [measured.tokenizer.decode(measured.shards[pair][0].tolist()) for pair in range(5)]
    assert [pair.source for pair in measured.translate(5)] == expected
