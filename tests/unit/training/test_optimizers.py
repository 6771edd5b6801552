"""Adam as in §5.3 for everything, or Muon for what maps one space to another."""

import pytest
import torch
from torch import Tensor, nn

from multihead.config.resolve import configure
from multihead.config.schema import TrainConfig
from multihead.model.transformer import Transformer
from multihead.training.optimizers import ADAM_RMS, Muon, make_optimizers, matrices_of, orthogonal
from tests.conftest import tiny_shape
from tests.fake_gpu import GPU, FakeGpu


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_every_weight_has_one_optimizer(optimizer: str) -> None:
    model = Transformer(tiny_shape())
    config = configure({"train.optimizer": optimizer}).train
    groups = [group for one in make_optimizers(model, config) for group in one.param_groups]
    moved = [id(parameter) for group in groups for parameter in group["params"]]
    assert sorted(moved) == sorted(id(parameter) for parameter in model.parameters())


def test_muon_has_the_projections_and_feed_forward_layers_alone() -> None:
    """Not the embeddings, which are a table; in each layer 4 matrices for an attention, and 2 to feed forward."""
    _, muon = make_optimizers(Transformer(tiny_shape()), TrainConfig(optimizer="muon"))
    (group,) = muon.param_groups
    assert len(group["params"]) == 2 * (4 + 2) + 2 * (4 + 4 + 2)
    assert all(matrix.ndim == 2 and 31 not in matrix.shape for matrix in group["params"])


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (16, 40), (40, 16)])
def test_an_orthogonal_matrix_keeps_the_directions_and_evens_their_sizes(rows: int, columns: int) -> None:
    """Singular values come near 1, and the singular vectors stay."""
    torch.manual_seed(3)
    u, _, vh = torch.linalg.svd(torch.randn(3, rows, columns), full_matrices=False)
    sizes = torch.logspace(0, -1, 16)  # the faintest direction is a tenth of the strongest
    found = orthogonal(u * sizes @ vh)
    inside = u.mT @ found @ vh.mT  # 3 16 16: diagonal if the directions are the same
    diagonal = inside.diagonal(dim1=1, dim2=2)
    assert 0.6 < float(diagonal.min()) <= float(diagonal.max()) < 1.3
    torch.testing.assert_close(inside, torch.diag_embed(diagonal), atol=1e-4, rtol=0)


def test_faint_directions_grow_the_most() -> None:
    """What is below a hundredth of the strongest is above a tenth afterwards, and nothing grows far beyond 1."""
    torch.manual_seed(3)
    u, _, vh = torch.linalg.svd(torch.randn(1, 16, 16))
    sizes = torch.linalg.svdvals(orthogonal(u * torch.logspace(0, -4, 16) @ vh))
    assert float(sizes.max()) < 1.3
    assert float(sizes[0, 8]) > 0.1


def test_a_step_of_muon_is_about_as_large_as_one_of_adam() -> None:
    """So that one rate serves both: its root mean square is 0.2 of the rate."""
    torch.manual_seed(4)
    matrix = nn.Parameter(torch.zeros(24, 48))
    muon = Muon([matrix])
    muon.param_groups[0]["lr"] = 0.01
    matrix.grad = torch.randn(24, 48)
    muon.step()
    assert matrix.detach().square().mean().sqrt().item() == pytest.approx(0.01 * ADAM_RMS, rel=0.2)


def test_matrices_of_one_shape_move_as_each_would_alone() -> None:
    torch.manual_seed(5)
    gradients = [torch.randn(6, 10) for _ in range(3)]
    together, alone = ([nn.Parameter(torch.ones(6, 10)) for _ in range(3)] for _ in range(2))
    optimizers = [Muon(together), *(Muon([matrix]) for matrix in alone)]
    for _ in range(3):
        for matrix, gradient in zip(together + alone, gradients * 2, strict=True):
            matrix.grad = gradient.clone()
        for optimizer in optimizers:
            optimizer.param_groups[0]["lr"] = 0.1
            optimizer.step()
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_a_matrix_without_a_gradient_stays() -> None:
    matrices = [nn.Parameter(torch.ones(2, 3)) for _ in range(2)]
    muon = Muon(matrices)
    muon.param_groups[0]["lr"] = 0.1
    matrices[0].grad = torch.ones(2, 3)
    muon.step()
    assert not torch.equal(matrices[0], matrices[1])
    assert torch.equal(matrices[1], torch.ones(2, 3))


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_weight_decay_takes_from_the_matrices_of_the_layers_alone(optimizer: str) -> None:
    """Without a gradient to follow, a step takes the rate times `weight_decay` of each, and nothing of the others."""
    model = Transformer(tiny_shape())
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    for one in make_optimizers(model, configure({"train.optimizer": optimizer, "train.weight_decay": 0.5}).train):
        for group in one.param_groups:
            group["lr"] = 0.1
            for weight in group["params"]:
                weight.grad = torch.zeros_like(weight)
        one.step()
    matrices = {id(matrix) for matrix in matrices_of(model)}
    for name, weight in model.named_parameters():
        torch.testing.assert_close(weight.detach(), before[name] * (0.95 if id(weight) in matrices else 1.0))


def test_muon_does_not_wait_for_a_gpu() -> None:
    gradients = [torch.randn(6, 10) for _ in range(3)]
    on_cpu, on_gpu = ([nn.Parameter(torch.ones(6, 10)) for _ in range(3)] for _ in range(2))
    step(on_cpu, gradients)
    with FakeGpu() as gpu:
        moved = [nn.Parameter(matrix.detach().to(GPU)) for matrix in on_gpu]
        there = [gradient.to(GPU) for gradient in gradients]
        gpu.waits.clear()
        step(moved, there)
        assert gpu.waits == []
        torch.testing.assert_close([matrix.detach().cpu() for matrix in moved], [one.detach() for one in on_cpu])


def step(matrices: list[nn.Parameter], gradients: list[Tensor]) -> None:
    muon = Muon(matrices)
    muon.param_groups[0]["lr"] = 0.1
    for matrix, gradient in zip(matrices, gradients, strict=True):
        matrix.grad = gradient
    muon.step()
