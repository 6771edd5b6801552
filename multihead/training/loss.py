"""The loss of §5.4: its definition, and the same computed in chunks so that all logits are never held at once.

`F.linear_cross_entropy` of torch 2.13 is chunked too, but has no label smoothing.

Shapes: N target tokens without padding, C tokens of a chunk, D d_model, V vocabulary.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

CHUNK_TOKENS = 512  # target tokens whose logits are held at once; with fewer, the matrix products are slower
GPU_CHUNK_TOKENS = 4096  # on a GPU, where small products leave most of it idle
ROW_MULTIPLE = 64  # of the rows of those products: oneDNN compiles a kernel for each number of rows


def smoothed_loss(logits: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
    """Return the cross-entropy against (1 - ε) · one-hot + ε · uniform (§5.4) and the plain one, summed over tokens.

    ε is spread over the whole vocabulary, as in the work that §5.4 cites (Szegedy et al., 2015).
    """
    log_probs = F.log_softmax(logits.float(), dim=-1)  # N V
    plain = F.nll_loss(log_probs, target, reduction="sum")
    uniform = -log_probs.mean(dim=-1).sum()
    return (1 - smoothing) * plain + smoothing * uniform, plain.detach()


def r_drop_divergence(log_probs: Tensor) -> Tensor:
    """Return half of KL(p‖p') + KL(p'‖p), summed over tokens (R-Drop, Liang et al., 2021); log_probs is 2 N V.

    The two passes over each sentence differ only in their dropout, so this penalizes what depends on dropout.
    """
    one, other = log_probs
    total: Tensor = 0.5 * ((one.exp() - other.exp()) * (one - other)).sum()
    return total


def linear_smoothed_loss(  # noqa: PLR0913  # the inputs of a loss
    hidden: Tensor,
    output: nn.Linear,
    target: Tensor,
    smoothing: float,
    r_drop: float = 0.0,
    chunk_tokens: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Return `smoothed_loss(output(hidden), target, smoothing)` for hidden N D, computed in chunks.

    The logits are by far the largest tensor of a step, and their gradient is as large. The forward pass computes both
    for one chunk at a time and keeps only the gradients of `hidden` and of the weights.

    With `r_drop`, hidden is 2N D, the second pass after the first. The loss is the sum of both passes, plus `r_drop`
    times their `r_drop_divergence`.
    """
    chunk_tokens = chunk_tokens or (CHUNK_TOKENS if hidden.device.type == "cpu" else GPU_CHUNK_TOKENS)
    apply: Callable[..., tuple[Tensor, Tensor]] = _ChunkedLoss.apply
    return apply(hidden, output.weight, output.bias, target, smoothing, r_drop, chunk_tokens)


class _ChunkedLoss(torch.autograd.Function):
    """The gradient of the loss with respect to the logits is p - q: their softmax minus the smoothed target.

    q is ε/V everywhere, plus 1 - ε at the target. The ε/V part is the same for every row and entry, so it is applied
    once at the end: it subtracts ε/V times the sum of the weights from each row of the gradient of `hidden`, and ε/V
    times the sum of `hidden` from each row of the gradient of the weights.
    """

    @staticmethod
    def forward(  # noqa: PLR0913  # autograd wants each tensor as an argument
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        smoothing: float,
        r_drop: float,
        chunk_tokens: int,
    ) -> tuple[Tensor, Tensor]:
        x, w = (tensor.to(_precision(hidden)) for tensor in (hidden, weight))
        uniform = smoothing / len(weight)  # ε/V
        d_hidden = torch.empty_like(x)
        # In bfloat16, a sum over dozens of chunks would lose digits with each of them.
        d_weight = torch.zeros_like(w, dtype=torch.promote_types(w.dtype, torch.float32))
        d_bias = None if bias is None else torch.full_like(bias, -uniform * len(x))
        plain, total = hidden.new_zeros(2, dtype=torch.float32)
        for chunk, targets in _chunks(len(x), target, chunk_tokens, n_passes=2 if r_drop else 1):
            rows = _pad_rows(x[chunk])
            logits = F.linear(rows, w, bias)[: len(targets)].float()  # C V
            target_logits = logits.gather(1, targets)  # C 1
            largest, mean = logits.amax(dim=1, keepdim=True), logits.mean(dim=1, keepdim=True)
            p = torch.softmax(logits, dim=1) if r_drop else torch.softmax(logits, dim=1, out=logits)
            log_sum = largest - p.amax(dim=1, keepdim=True).log()  # no underflow: the largest p is at least 1/V
            plain += (log_sum - target_logits).sum()
            total += (log_sum - (1 - smoothing) * target_logits - smoothing * mean).sum()
            if r_drop:
                divergence, gradient = _divergence(p.unflatten(0, (2, -1)), (logits - log_sum).unflatten(0, (2, -1)))
                total += r_drop * divergence
                p.add_(gradient.flatten(0, 1), alpha=r_drop)
            if any(ctx.needs_input_grad):
                p.scatter_add_(1, targets, torch.full_like(target_logits, smoothing - 1))
                d_logits = _pad_rows(p.to(w.dtype))
                d_hidden[chunk] = (d_logits @ w)[: len(targets)]
                _add_product(d_weight, d_logits.T, rows)
                if d_bias is not None:
                    d_bias += p.sum(dim=0)
        d_hidden -= uniform * w.sum(dim=0)
        d_weight -= uniform * x.sum(dim=0, dtype=d_weight.dtype)
        ctx.save_for_backward(d_hidden, d_weight, d_bias)
        ctx.mark_non_differentiable(plain)
        return total, plain

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Any:
        d_hidden, d_weight, d_bias = (None if saved is None else saved * gradients[0] for saved in ctx.saved_tensors)
        return d_hidden, d_weight, d_bias, None, None, None, None


def _add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """Add a matrix product to `total`, whose precision may be higher."""
    if total.dtype == left.dtype:
        total.addmm_(left, right)
    else:
        total += left @ right


def _chunks(n_rows: int, target: Tensor, chunk_tokens: int, n_passes: int) -> Iterator[tuple[Tensor | slice, Tensor]]:
    """Yield the rows of `hidden` in each chunk and their targets; both passes of a token are in one chunk."""
    size = max(1, chunk_tokens // n_passes)
    for start in range(0, len(target), size):
        end = min(len(target), start + size)
        if n_passes == 1:
            yield slice(start, end), target[start:end, None]
        else:
            rows = torch.arange(n_rows, device=target.device).view(n_passes, -1)[:, start:end].flatten()
            yield rows, target[start:end, None].repeat(n_passes, 1)


def _pad_rows(x: Tensor) -> Tensor:
    """Append rows of zeros up to a multiple of ROW_MULTIPLE; they add nothing to the products."""
    missing = -len(x) % ROW_MULTIPLE
    return F.pad(x, (0, 0, 0, missing)) if missing else x


def _divergence(p: Tensor, log_p: Tensor) -> tuple[Tensor, Tensor]:
    """Return `r_drop_divergence` for p and log_p of 2 C V, and its gradient with respect to the logits."""
    difference = log_p[0] - log_p[1]  # C V
    divergence = p * torch.stack([difference, -difference])  # 2 C V; its sums are both KL divergences
    sums = divergence.sum(dim=2, keepdim=True)  # 2 C 1
    gradient = divergence.addcmul_(p, sums, value=-1).add_(p).sub_(p.flip(0)).mul_(0.5)
    return 0.5 * sums.sum(), gradient


def _precision(x: Tensor) -> torch.dtype:
    """Return the precision of matrix products: that of autocast if it is on."""
    device = x.device.type
    return torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else x.dtype
