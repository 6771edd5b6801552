"""The loss of §5.4 against its definition, and the chunked loss against the loss at once."""

import pytest
import torch
from torch import Tensor, nn

from multihead.training.loss import linear_smoothed_loss, r_drop_divergence, smoothed_loss


def test_the_smoothed_loss_is_its_definition() -> None:
    """Cross-entropy against (1 - ε) · one-hot + ε / V."""
    torch.manual_seed(0)
    logits, target = torch.randn(3, 7), torch.tensor([4, 2, 6])
    expected = 0.0
    for row in range(3):
        log_probs = logits[row].log_softmax(dim=-1)
        for v in range(7):
            expected -= (0.9 * (v == int(target[row])) + 0.1 / 7) * log_probs[v].item()
    loss, plain = smoothed_loss(logits, target, 0.1)
    assert loss.item() == pytest.approx(expected, rel=1e-5)
    assert plain.item() == pytest.approx(smoothed_loss(logits, target, 0.0)[0].item(), rel=1e-6)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.2])
def test_the_smoothed_loss_equals_that_of_torch_with_its_gradient(smoothing: float) -> None:
    torch.manual_seed(0)
    ours, theirs = (torch.randn(20, 11).requires_grad_() for _ in range(2))
    theirs.data.copy_(ours.data)
    target = torch.randint(0, 11, (20,))
    smoothed_loss(ours, target, smoothing)[0].backward()
    torch.nn.functional.cross_entropy(theirs, target, reduction="sum", label_smoothing=smoothing).backward()
    assert ours.grad is not None
    torch.testing.assert_close(ours.grad, theirs.grad)


def case(bias: bool, dtype: torch.dtype = torch.float64) -> tuple[Tensor, nn.Linear, Tensor]:
    torch.manual_seed(1)
    hidden = torch.randn(23, 8, dtype=dtype, requires_grad=True)
    return hidden, nn.Linear(8, 31, bias=bias, dtype=dtype), torch.randint(0, 31, (23,))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("chunk_tokens", [1, 7, 23, 100])
def test_the_loss_in_chunks_equals_the_loss_at_once(bias: bool, smoothing: float, chunk_tokens: int) -> None:
    """Value and gradient, whether the chunks are even or not, and whatever factor the loss has."""
    hidden, output, target = case(bias)
    inputs = [hidden, *output.parameters()]
    at_once, plain = smoothed_loss(output(hidden), target, smoothing)
    expected = torch.autograd.grad(at_once / 3, inputs)
    in_chunks, plain_in_chunks = linear_smoothed_loss(hidden, output, target, smoothing, chunk_tokens=chunk_tokens)
    torch.testing.assert_close((in_chunks, plain_in_chunks), (at_once, plain), check_dtype=False, atol=0, rtol=1e-6)
    torch.testing.assert_close(torch.autograd.grad(in_chunks / 3, inputs), expected, atol=1e-6, rtol=1e-5)


def test_the_loss_in_chunks_is_finite_for_extreme_logits() -> None:
    """A target whose probability is too small for a float still has a loss, and a gradient."""
    hidden, output, target = case(bias=False, dtype=torch.float32)
    output.weight.data *= 500
    at_once, _ = smoothed_loss(output(hidden), target, 0.1)
    in_chunks, _ = linear_smoothed_loss(hidden, output, target, 0.1, chunk_tokens=7)
    assert torch.isfinite(in_chunks)
    torch.testing.assert_close(in_chunks, at_once, rtol=1e-5, atol=1e-3)


def test_the_loss_in_chunks_computes_no_gradient_in_inference_mode() -> None:
    hidden, output, target = case(bias=True)
    with torch.inference_mode():
        loss, _ = linear_smoothed_loss(hidden, output, target, 0.1, chunk_tokens=7)
    assert not loss.requires_grad


def test_the_gradient_of_the_output_loses_no_digits_with_the_number_of_chunks() -> None:
    """In bfloat16: the error with 48 chunks is at most twice that of one."""
    torch.manual_seed(4)
    hidden, output = torch.randn(3072, 64).bfloat16(), nn.Linear(64, 500, bias=False)
    target = torch.randint(0, 500, (3072,))
    exact_output = nn.Linear(64, 500, bias=False, dtype=torch.float64)
    exact_output.weight.data.copy_(output.weight.data.bfloat16())
    loss, _ = smoothed_loss(exact_output(hidden.double()).float(), target, 0.1)
    exact = torch.autograd.grad(loss, exact_output.weight)[0]

    def error(chunk_tokens: int) -> float:
        with torch.autocast("cpu", torch.bfloat16):
            loss, _ = linear_smoothed_loss(hidden, output, target, 0.1, chunk_tokens=chunk_tokens)
        found = torch.autograd.grad(loss, output.weight)[0]
        return float((found - exact).norm() / exact.norm())

    assert error(64) <= 2 * error(3072)


def test_the_r_drop_divergence_is_the_mean_of_both_directions() -> None:
    """Half of KL(p‖p') + KL(p'‖p), as in the paper of R-Drop; zero if both passes agree."""
    torch.manual_seed(2)
    log_probs = torch.randn(2, 5, 7).log_softmax(dim=-1)
    one, other = log_probs
    both = [torch.nn.functional.kl_div(x, y, reduction="sum", log_target=True) for x, y in ((one, other), (other, one))]
    torch.testing.assert_close(r_drop_divergence(log_probs), sum(both) / 2)
    assert float(r_drop_divergence(torch.stack([one, one]))) == 0


@pytest.mark.parametrize("chunk_tokens", [1, 6, 100])
@pytest.mark.parametrize("bias", [False, True])
def test_r_drop_in_chunks_equals_its_definition(bias: bool, chunk_tokens: int) -> None:
    """The loss of both passes, and five times their divergence; value and gradient."""
    _, output, target = case(bias)
    hidden = torch.randn(46, 8, dtype=torch.float64, requires_grad=True)
    inputs = [hidden, *output.parameters()]
    logits = output(hidden)
    at_once, plain = smoothed_loss(logits, target.repeat(2), 0.1)
    at_once = at_once + 5 * r_drop_divergence(logits.view(2, 23, 31).log_softmax(dim=-1))
    found, plain_found = linear_smoothed_loss(hidden, output, target, 0.1, r_drop=5, chunk_tokens=chunk_tokens)
    torch.testing.assert_close((found, plain_found), (at_once, plain), check_dtype=False, atol=0, rtol=1e-5)
    gradients = torch.autograd.grad(found, inputs)
    torch.testing.assert_close(gradients, torch.autograd.grad(at_once, inputs), atol=1e-5, rtol=1e-4)
