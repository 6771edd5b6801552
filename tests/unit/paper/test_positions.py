"""The sinusoids of §3.5."""

import math

import pytest
import torch
from torch import Tensor

from multihead.errors import UsageError
from multihead.model.positions import sinusoids
from multihead.paper import positions


def test_the_product_of_two_positions_depends_on_their_distance_alone() -> None:
    for record in positions.measure(length=400, d_model=64):
        expected = sum(math.cos(record["distance"] / 10_000 ** (2 * i / 64)) for i in range(32)) / 32
        assert record["similarity"] == pytest.approx(expected, abs=1e-6)
        assert record["spread"] < 1e-6


def test_a_shift_is_a_rotation_that_can_be_learned_from_other_positions() -> None:
    """PE(pos + k) is a linear function of PE(pos): fitted on the first half, it holds in the second."""
    for record in positions.measure(length=400, d_model=64):
        assert record["linear_error"] < 1e-5
        assert record["difference_from_rotation"] < 1e-5


def test_positions_at_random_have_neither_property() -> None:
    table: Tensor = torch.randn(400, 64, generator=torch.Generator().manual_seed(1))
    assert positions.similarity_at(table, 8)[1] > 0.1
    assert positions.fit_error(table, 8)[0] > 0.1


def test_a_position_is_most_like_itself() -> None:
    assert int(positions.similarity(torch.from_numpy(sinusoids(100, 64)), 30).argmax()) == 30


@pytest.mark.parametrize(("length", "d_model", "words"), [(100, 15, "must be even"), (4, 16, "at least 8 positions")])
def test_sizes_that_show_nothing_are_refused(length: int, d_model: int, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        positions.measure(length, d_model)
