"""Validation: what is measured, and what must not change it."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from multihead.data.shards import Shards
from multihead.training.validation import Validator
from tests.fake_gpu import GPU, FakeGpu
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


def test_validation_can_be_in_bfloat16(prepared: Path) -> None:
    """As on GPUs, in the precision of training; CPUs validate in float32."""
    measured = validator(prepared)
    rounded = replace(measured, precision=torch.bfloat16)
    assert rounded.loss() == pytest.approx(measured.loss(), rel=0.01)
    assert rounded.loss() != measured.loss()
    assert rounded.translate(5)


def test_validation_waits_for_a_gpu_once(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multihead.training.loss._precision", lambda x: x.dtype)  # autocast does not know this device
    measured = validator(prepared, data__batch_tokens=100)
    expected = measured.loss()
    with FakeGpu() as gpu:
        measured.model.to(GPU)
        gpu.waits.clear()
        assert measured.loss() == pytest.approx(expected, rel=1e-6)
        assert len(gpu.waits) == 1
