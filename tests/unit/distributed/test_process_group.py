"""Collectives of one process, and tensors and modules that are not sharded."""

import pytest
import torch
from torch import nn

from multihead.distributed.data_parallel import no_gradient_sync
from multihead.distributed.process_group import SINGLE_PROCESS, process_group, under_torchrun
from multihead.distributed.sharding import full_tensor, shard_like
from tests.ranks import on_ranks


def test_a_single_process_needs_no_collectives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    assert not under_torchrun()
    with process_group() as group:
        assert group == SINGLE_PROCESS
        assert group.is_main
        assert group.sum(1.0, 2.0) == group.max(1.0, 2.0) == [1.0, 2.0]
        assert group.on_main(lambda: "here") == "here"


def use_collectives() -> tuple[list[float], list[float], str, bool]:
    with process_group() as group:
        rank = group.rank
        return group.sum(1.0, rank), group.max(rank, -rank), group.on_main(lambda: f"rank {rank}"), group.is_main


def test_collectives_give_every_rank_the_same() -> None:
    assert on_ranks(3, use_collectives) == [
        ([3.0, 3.0], [2.0, 0.0], "rank 0", is_main) for is_main in (True, False, False)
    ]


def test_plain_tensors_and_modules_pass_through() -> None:
    tensor, module = torch.arange(3), nn.Linear(2, 2)
    assert full_tensor(tensor) is shard_like(tensor, torch.zeros(3)) is tensor
    with no_gradient_sync(module):
        module(torch.ones(1, 2)).sum().backward()
    assert module.weight.grad is not None
