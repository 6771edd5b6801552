"""The loss of §5.4: its definition, and the same in pieces that never hold all logits.

Shapes: N target tokens, padding left out, D d_model, V vocabulary.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

ROWS = 512  # target tokens whose logits are held at a time; with fewer, the matrix products are slower
ROUND = 64  # rows, and multiples of it, that those products have: CPUs compile one anew for each number


def smoothed_loss(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """§5.4: cross-entropy against (1 - ε) · one-hot + ε · uniform, and the plain one; both summed over tokens.

    ε is spread over the whole vocabulary, as in the work that §5.4 cites (Szegedy et al., 2015).
    """
    log_probs = F.log_softmax(logits.float(), dim=-1)  # N V
    plain = F.nll_loss(log_probs, target, reduction="sum")
    uniform = -log_probs.mean(dim=-1).sum()
    return (1 - smoothing) * plain + smoothing * uniform, plain.detach()


def disagreement(log_probs: Tensor) -> Tensor:
    """R-Drop (Liang et al., 2021): half of KL(p‖p') + KL(p'‖p), summed over tokens; log_probs is 2 N V.

    Two passes over the same sentence differ in their dropout alone; where they disagree, the model leans on chance.
    """
    one, other = log_probs
    total: Tensor = 0.5 * ((one.exp() - other.exp()) * (one - other)).sum()
    return total


def linear_smoothed_loss(  # noqa: PLR0913  # what a loss is made of
    hidden: Tensor, output: nn.Linear, target: Tensor, smoothing: float, r_drop: float = 0.0, rows: int = ROWS
) -> tuple[Tensor, Tensor]:
    """`smoothed_loss(output(hidden), target, smoothing)` for hidden N D, in pieces of so many rows.

    The logits are by far the largest tensor of a step, and their gradient is another of that size. Here both are made
    in one place and used up at once; what is kept is the gradient of `hidden` and of the weights.

    With `r_drop`, hidden is 2N D, one pass below the other: both have their loss, and `r_drop` times their
    `disagreement` is added.
    """
    in_pieces: Callable[..., tuple[Tensor, Tensor]] = _InPieces.apply
    return in_pieces(hidden, output.weight, output.bias, target, smoothing, r_drop, rows)


class _InPieces(torch.autograd.Function):
    """The gradient of the loss by the logits is p - q: their softmax less the smoothed target.

    q is ε/V everywhere, and 1 - ε more at the target. Its first part is the same for every row and entry, so it is left
    to the end: there it takes the mean row of the weights from each row of `hidden`'s gradient, and the sum of `hidden`
    from each row of the weights'.
    """

    @staticmethod
    def forward(  # noqa: PLR0913  # what may have a gradient has to be an argument of its own
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        r_drop: float,
        rows: int,
    ) -> tuple[Tensor, Tensor]:
        x, w = (tensor.to(_precision(hidden)) for tensor in (hidden, weight))
        even = smoothing / len(weight)  # ε/V
        d_hidden, d_weight = torch.empty_like(x), torch.zeros_like(w)
        d_bias = None if bias is None else torch.full_like(bias, -even * len(x))
        plain, total = hidden.new_zeros(2, dtype=torch.float32)
        for piece, wanted in _pieces(len(x), target, rows, n_passes=2 if r_drop else 1):
            taken = _filled(x[piece])
            logits = F.linear(taken, w, bias)[: len(wanted)].float()  # R V
            said = logits.gather(1, wanted)
            largest, mean = logits.amax(dim=1, keepdim=True), logits.mean(dim=1, keepdim=True)
            p = torch.softmax(logits, dim=1) if r_drop else torch.softmax(logits, dim=1, out=logits)
            log_sum = largest - p.amax(dim=1, keepdim=True).log()  # no underflow: the largest p is at least 1/V
            plain += (log_sum - said).sum()
            total += (log_sum - (1 - smoothing) * said - smoothing * mean).sum()
            if r_drop:
                difference, gradient = _disagreement(p.unflatten(0, (2, -1)), (logits - log_sum).unflatten(0, (2, -1)))
                total += r_drop * difference
                p.add_(gradient.flatten(0, 1), alpha=r_drop)
            if any(ctx.needs_input_grad):
                p.scatter_add_(1, wanted, torch.full_like(said, smoothing - 1))
                d_logits = _filled(p.to(w.dtype))
                d_hidden[piece] = (d_logits @ w)[: len(wanted)]
                d_weight.addmm_(d_logits.T, taken)
                if d_bias is not None:
                    d_bias += p.sum(dim=0)
        d_hidden -= even * w.sum(dim=0)
        d_weight -= even * x.sum(dim=0)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.mark_non_differentiable(plain)
        return total, plain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        of_hidden, of_weight, of_bias = (None if one is None else one * gradients[0] for one in ctx.saved_tensors)
        return of_hidden, of_weight, of_bias, None, None, None, None


def _pieces(n_rows: int, target: Tensor, rows: int, n_passes: int) -> Iterator[tuple[Tensor | slice, Tensor]]:
    """Rows of the decoder's output to be taken at a time, and the targets of each; a token with its other pass."""
    for at in range(0, len(target), max(1, rows // n_passes)):
        end = min(len(target), at + max(1, rows // n_passes))
        if n_passes == 1:
            yield slice(at, end), target[at:end, None]
        else:
            both = torch.arange(n_rows, device=target.device).view(n_passes, -1)[:, at:end].flatten()
            yield both, target[at:end, None].repeat(n_passes, 1)


def _filled(x: Tensor) -> Tensor:
    """With rows of zeros below, up to a round number; to a product by rows they add nothing."""
    missing = -len(x) % ROUND
    return F.pad(x, (0, 0, 0, missing)) if missing else x


def _disagreement(p: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """`disagreement` for p and log_p of 2 R V, and its gradient by the logits."""
    difference = log_p[0] - log_p[1]  # R V
    divergence = p * torch.stack([difference, -difference])  # 2 R V; its sums are both KL divergences
    sums = divergence.sum(dim=2, keepdim=True)  # 2 R 1
    gradient = divergence.addcmul_(p, sums, value=-1).add_(p).sub_(p.flip(0)).mul_(0.5)
    return 0.5 * sums.sum(), gradient


def _precision(x: Tensor) -> torch.dtype:
    """What a matrix product takes: autocast's choice, if it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
