"""Collectives of one process, and tensors and modules that are not sharded."""

import pytest
import torch
from torch import Tensor, nn

from multihead.distributed.data_parallel import no_gradient_sync
from multihead.distributed.process_group import SINGLE_PROCESS, process_group, under_torchrun
from multihead.distributed.sharding import full_tensor, shard_like
from multihead.training import optimizers
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


def orthogonalize_on_ranks() -> tuple[list[int], list[float]]:
    """Return how many matrices this rank orthogonalized at a time, and its weights after a step."""
    sizes: list[int] = []
    original = optimizers.orthogonal

    def counting(matrices: Tensor) -> Tensor:
        sizes.append(len(matrices))
        return original(matrices)

    pytest.MonkeyPatch().setattr(optimizers, "orthogonal", counting)  # in this process, which ends with the test
    generator = torch.Generator().manual_seed(3)
    matrices = [nn.Parameter(torch.ones(4, 6)) for _ in range(5)]
    for matrix in matrices:
        matrix.grad = torch.randn(4, 6, generator=generator)
    with process_group() as group:
        muon = optimizers.Muon(matrices, group=group)
        muon.param_groups[0]["lr"] = 0.1
        muon.step()
    return sizes, torch.cat([matrix.detach().flatten() for matrix in matrices]).tolist()


def test_ranks_share_the_matrices_of_muon_out() -> None:
    """Each orthogonalizes half of them, and the step is that of a single process."""
    (_, expected), answers = orthogonalize_on_ranks(), on_ranks(2, orthogonalize_on_ranks)
    assert [sizes for sizes, _ in answers] == [[3], [3]]  # five matrices, and one of zeros
    for _, weights in answers:
        assert weights == pytest.approx(expected, abs=1e-6)
        assert weights == answers[0][1]
