"""Perplexity, and the means that a line of the log shows."""

import math

import pytest
import torch

from multihead.distributed.process_group import SINGLE_PROCESS
from multihead.training.metrics import RunningTotals, perplexity


def test_perplexity_does_not_overflow() -> None:
    assert perplexity(2.0) == pytest.approx(math.e**2)
    assert math.isfinite(perplexity(1e6))


def test_metrics_are_means_per_token() -> None:
    totals = RunningTotals(n_tokens=10, seconds=2.0)
    for loss, plain_loss in ((10.0, 15.0), (20.0, 5.0)):
        totals.add_losses(torch.tensor(loss), torch.tensor(plain_loss))
    metrics = totals.metrics(SINGLE_PROCESS)
    assert metrics == {"loss": 3.0, "perplexity": pytest.approx(math.e**2), "tokens_per_second": 5.0}


def test_totals_of_no_steps_divide_by_nothing() -> None:
    assert RunningTotals().metrics(SINGLE_PROCESS)["loss"] == 0.0
