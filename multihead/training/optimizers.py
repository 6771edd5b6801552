"""What moves the weights: the paper's Adam (§5.3), or Muon for the matrices inside the layers.

Muon (Jordan et al., 2024) moves a matrix by its momentum made orthogonal: every direction that the gradient names gets
a step of the same size, the faint ones too. Embeddings, norms and biases are no maps from one space to another, and
stay with Adam. The products that it needs do not grow with the batch.

Weight decay, which the paper has not, is for the same matrices with either, and apart from the gradient (Loshchilov and
Hutter, 2017): a text that is seen dozens of times is otherwise learned by heart with ever larger weights.
"""

import math
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from multihead.config.schema import TrainConfig
from multihead.distributed.sharding import full_tensor, shard_like
from multihead.model.transformer import Transformer

TINY = 1e-7  # keeps a gradient of zeros from being divided by its size
ADAM_LIKE = 0.2  # RMS of an update of Adam, about: with it one rate serves both (Liu et al., 2025)
# Of two polynomials a x + b x³ + c x⁵, one after the other: of all such pairs, the one that takes singular values
# between 0.04 and 1 nearest to 1 (0.69 to 1.26). What is fainter grows eighteenfold.
COEFFICIENTS = ((4.5791, -12.5838, 9.1273), (3.9973, -6.7700, 3.5585))


def make_optimizers(model: Transformer, config: TrainConfig, precision: torch.dtype = torch.float32) -> list[Optimizer]:
    """What moves every weight of the model; their rates are set before each step.

    `precision` is that of the large products. Weights and moments are in float32 always.
    """
    matrices = matrices_of(model)
    taken = {id(matrix) for matrix in matrices}
    others = [parameter for parameter in model.parameters() if id(parameter) not in taken]
    is_muon = config.optimizer == "muon"
    groups: list[dict[str, Any]] = [{"params": others}]
    groups += [] if is_muon else [{"params": matrices, "weight_decay": config.weight_decay}]
    betas = (config.beta1, config.beta2)
    adam = torch.optim.AdamW(groups, lr=0.0, betas=betas, eps=config.eps, weight_decay=0.0, fused=True)
    return [adam, Muon(matrices, config.weight_decay, precision)] if is_muon else [adam]


def matrices_of(model: Transformer) -> list[nn.Parameter]:
    """The matrices of the projections and feed-forward layers, in the order of the model."""
    modules = [module for stack in (model.encoder, model.decoder) for module in stack.modules()]
    return [cast(nn.Parameter, module.weight) for module in modules if isinstance(module, nn.Linear)]


class Muon(Optimizer):
    """Momentum, orthogonalised; matrices of one shape are moved together, and one in shards is put together first."""

    def __init__(
        self,
        matrices: Iterable[nn.Parameter],
        weight_decay: float = 0.0,
        precision: torch.dtype = torch.float32,
        momentum: float = 0.95,
    ) -> None:
        super().__init__(matrices, {"lr": 0.0, "weight_decay": weight_decay, "momentum": momentum})
        self.precision = precision

    @torch.no_grad()
    def step(self, closure: None = None) -> None:  # type: ignore[override]  # no loss is evaluated anew
        for group in self.param_groups:
            by_shape: dict[torch.Size, list[nn.Parameter]] = {}
            for matrix in group["params"]:
                if matrix.grad is not None:
                    by_shape.setdefault(matrix.shape, []).append(matrix)
            for shape, matrices in by_shape.items():
                directions = [full_tensor(self._direction(matrix, group["momentum"])) for matrix in matrices]
                updates = orthogonal(torch.stack(directions).to(self.precision)).float()
                size = group["lr"] * ADAM_LIKE * math.sqrt(max(shape))
                for matrix, update in zip(matrices, updates, strict=True):
                    matrix.mul_(1 - group["lr"] * group["weight_decay"])
                    matrix.sub_(shard_like(update, matrix), alpha=size)

    def _direction(self, matrix: nn.Parameter, momentum: float) -> Tensor:
        """The mean of the gradients so far, seen from where it leads (Nesterov)."""
        assert matrix.grad is not None
        state = self.state[matrix]
        if not state:
            state["mean"] = torch.zeros_like(matrix)
        mean: Tensor = state["mean"].lerp_(matrix.grad, 1 - momentum)
        return matrix.grad.lerp(mean, momentum)


def orthogonal(matrices: Tensor) -> Tensor:
    """The nearest matrices whose singular values are about 1, by Newton-Schulz iteration; matrices is N R C."""
    is_tall = matrices.shape[1] > matrices.shape[2]
    x = matrices.mT if is_tall else matrices  # the products below are of the shorter side
    x = x / (x.norm(dim=(1, 2), keepdim=True) + TINY)
    gram = x @ x.mT
    # The root of its norm is no smaller than any singular value, and half as far from the largest as the norm of x.
    bound = gram.norm(dim=(1, 2), keepdim=True) + TINY
    x = _polynomial(x / bound.sqrt(), gram / bound, COEFFICIENTS[0])
    x = _polynomial(x, x @ x.mT, COEFFICIENTS[1])
    return x.mT if is_tall else x


def _polynomial(x: Tensor, gram: Tensor, coefficients: tuple[float, float, float]) -> Tensor:
    """a x + b x³ + c x⁵ of the singular values of x, whose gram is x xᵀ."""
    a, b, c = coefficients
    return torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
