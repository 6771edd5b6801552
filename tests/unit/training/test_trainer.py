"""One step: what it computes, and what must not change it."""

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from multihead.text.tokenizer import PAD_ID
from multihead.training import loss
from multihead.training.batch import Batch
from multihead.training.loss import smoothed_loss
from multihead.training.metrics import RunningTotals
from multihead.training.schedule import learning_rate
from multihead.training.trainer import Trainer
from tests.fake_gpu import GPU, FakeGpu
from tests.unit.training.conftest import trainer


def weights(run: Trainer) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in run.model.parameters()])


def gradient(run: Trainer) -> Tensor:
    return torch.cat([parameter.grad.flatten() for parameter in run.model.parameters() if parameter.grad is not None])


def test_a_step_is_adam_at_the_rate_of_equation_3(prepared: Path) -> None:
    """The first step of Adam moves every weight that has a gradient by about the rate."""
    run = trainer(prepared, model__dropout=0.0)
    before = weights(run)
    run.step()
    moved = (weights(run) - before).abs().max().item()
    assert moved == pytest.approx(learning_rate(1, 16, run.config.train), rel=1e-3)


def test_a_new_trainer_leaves_the_global_generator_as_it_was(prepared: Path) -> None:
    """Its weights are a function of the seed alone."""
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    one = trainer(prepared)
    assert torch.equal(torch.rand(3), expected)
    assert torch.equal(weights(one), weights(trainer(prepared)))


def test_dropout_is_a_function_of_seed_and_step(prepared: Path) -> None:
    one, other = trainer(prepared), trainer(prepared)
    one.step()
    torch.manual_seed(999)  # whatever happens in between, such as a validation
    torch.rand(5)
    other.step()
    assert torch.equal(weights(one), weights(other))
    assert not torch.equal(weights(one), weights(trainer(prepared, train__seed=2)))


def plain_loss(run: Trainer, batch: Batch) -> Tensor:
    """The loss as §5.4 defines it, from all logits at once."""
    real = batch.target_out != PAD_ID
    return smoothed_loss(run.model(batch.source, batch.target_in)[real], batch.target_out[real], 0.1)[0]


def test_a_padded_batch_has_the_gradient_of_its_sentences_alone(prepared: Path) -> None:
    run = trainer(prepared, model__dropout=0.0)
    coming = (batch for read in run._batches for _, batch in read.batches)
    batch = next(one for one in coming if (one.source == PAD_ID).any() and (one.target_out == PAD_ID).any())
    run._backward(batch, batch.n_tokens)
    together = gradient(run)
    run.model.zero_grad()
    for source, target_in, target_out in zip(batch.source, batch.target_in, batch.target_out, strict=True):
        n_source, n_target = int((source != PAD_ID).sum()), int((target_out != PAD_ID).sum())
        alone = Batch(
            source=source[None, :n_source],
            target_in=target_in[None, :n_target],
            target_out=target_out[None, :n_target],
            real=torch.arange(n_target),
            n_tokens=n_target,
        )
        run._backward(alone, batch.n_tokens)
    torch.testing.assert_close(gradient(run), together, atol=1e-6, rtol=1e-4)


def test_training_follows_the_plain_definition_over_200_steps(prepared: Path) -> None:
    """What makes a step fast changes nothing: the same losses, step by step, as from all logits at once."""
    fast, plain = (trainer(prepared, train__warmup=1000) for _ in range(2))
    plain.objective.forward = lambda batch, smoothing, r_drop: (
        plain_loss(plain, batch),
        torch.zeros(()),
    )  # the definition
    losses: dict[str, list[float]] = {}
    for name, run in (("fast", fast), ("plain", plain)):
        for _ in range(200):
            run.totals = RunningTotals()
            run.step()
            losses.setdefault(name, []).append(run.totals.losses[0] / run.totals.n_tokens)
    assert losses["fast"] == pytest.approx(losses["plain"], abs=1e-4)
    assert losses["fast"][-1] < losses["fast"][0] - 0.5


def test_without_dropout_r_drop_is_the_plain_step(prepared: Path) -> None:
    """Both passes are one and the same: they agree, and the mean of their losses is the loss."""
    plain, doubled = (trainer(prepared, model__dropout=0.0, train__r_drop=alpha) for alpha in (0, 5))
    for run in (plain, doubled):
        run.step()
    assert doubled.totals.losses == pytest.approx(plain.totals.losses, rel=1e-5)
    torch.testing.assert_close(weights(doubled), weights(plain), atol=1e-5, rtol=1e-4)


def test_r_drop_adds_what_two_passes_disagree_in(prepared: Path) -> None:
    """With other dropout in each pass; the plain loss of the log stays that of the words."""
    weak, strong = (trainer(prepared, model__dropout=0.3, train__r_drop=alpha) for alpha in (1, 5))
    for run in (weak, strong):
        run.step()
    assert strong.totals.losses[0] > weak.totals.losses[0]
    assert strong.totals.losses[1] == pytest.approx(weak.totals.losses[1], rel=1e-5)


def test_r_drop_begins_at_its_share_of_the_run(prepared: Path) -> None:
    """Until then a step is the plain one, to the last bit."""
    settings = {"model__dropout": 0.3, "train__steps": 4, "train__r_drop_from": 0.5}
    plain, later = (trainer(prepared, **settings, train__r_drop=alpha) for alpha in (0, 5))
    for _ in range(2):
        plain.step()
        later.step()
    assert torch.equal(weights(plain), weights(later))
    plain.step()
    later.step()
    assert not torch.equal(weights(plain), weights(later))


def test_accumulated_batches_equal_one_batch_of_all(prepared: Path) -> None:
    """Two batches in one step have the gradient of their union: losses are divided by all tokens of the step."""
    run = trainer(prepared, train__accumulate=2, model__dropout=0.0)
    one, other = (batch for _, batch in next(run._batches).batches)
    n_tokens = one.n_tokens + other.n_tokens
    assert one.n_tokens != other.n_tokens
    expected = torch.zeros_like(weights(run))
    for batch in (one, other):
        loss = plain_loss(run, batch) / n_tokens
        gradients = torch.autograd.grad(loss, list(run.model.parameters()))
        expected += torch.cat([gradient.flatten() for gradient in gradients])
    for batch in (one, other):
        run._backward(batch, n_tokens)
    torch.testing.assert_close(gradient(run), expected, atol=1e-7, rtol=1e-5)


def test_the_gradient_can_be_clipped(prepared: Path) -> None:
    run = trainer(prepared, train__clip_norm=0.01, model__dropout=0.0)
    ((_, batch),) = next(run._batches).batches
    run._backward(batch, batch.n_tokens)
    assert run._clip_gradient()
    norms = [parameter.grad.norm() for parameter in run.model.parameters() if parameter.grad is not None]
    assert torch.stack(norms).norm().item() == pytest.approx(0.01, rel=1e-3)


@pytest.mark.parametrize("poison", [math.nan, math.inf])
def test_a_step_without_a_usable_gradient_is_left_out_and_counted(prepared: Path, poison: float) -> None:
    run = trainer(prepared)
    run.step()
    before = weights(run)
    hook = run.model.output.weight.register_hook(lambda gradient: gradient * poison)
    run.step()
    assert torch.equal(weights(run), before)
    assert (run.state.step, run.state.skipped, run.skipped_in_a_row) == (2, 1, 1)
    hook.remove()
    run.step()
    assert not torch.equal(weights(run), before)
    assert (run.state.skipped, run.skipped_in_a_row) == (1, 0)


@pytest.mark.parametrize(
    "settings",
    [
        {"train__optimizer": "adam"},
        {"train__optimizer": "muon"},
        {"model__attention_score": "local-p"},
        {"model__cross": "last"},
        {"model__system": "neural-gpu"},
        {"model__system": "memory-network"},
    ],
    ids=lambda settings: next(iter(settings.values())),
)
def test_a_restored_run_goes_on_bit_for_bit(prepared: Path, settings: dict[str, str]) -> None:
    n_steps = 12 if "train__optimizer" in settings else 3
    whole, first, second = (trainer(prepared, **settings, train__r_drop=1) for _ in range(3))
    for _ in range(n_steps):
        whole.step()
    for _ in range(2):
        first.step()
    second.restore(first.checkpoint(), Path("there"))
    for _ in range(n_steps - 2):
        second.step()
    assert torch.equal(weights(second), weights(whole))


@pytest.mark.parametrize("optimizer", ["adam", "muon"])
def test_a_step_in_bfloat16_is_close_to_one_in_float32(optimizer: str, prepared: Path) -> None:
    settings = {"model__dropout": 0.0, "train__optimizer": optimizer}
    full, half = (trainer(prepared, train__precision=name, **settings) for name in ("float32", "bfloat16"))
    for run in (full, half):
        for _ in range(3):
            run.step()
    assert half.totals.losses[0] == pytest.approx(full.totals.losses[0], rel=0.01)
    assert weights(half).dtype == torch.float32


def test_a_gpu_is_waited_for_once_a_step(prepared: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the norm of the gradient decides on the update; and the gradient is that of the CPU."""
    monkeypatch.setattr(loss, "_precision", lambda x: x.dtype)  # autocast does not know the fake device
    settings = {"model__dropout": 0.0, "train__accumulate": 2, "train__clip_norm": 1.0, "train__r_drop": 1.0}
    on_cpu, run = (trainer(prepared, **settings, model__tie_embeddings="none") for _ in range(2))
    batches = next(run._batches).batches
    on_cpu._compute_gradient(batches)
    assert on_cpu._clip_gradient()
    with FakeGpu() as gpu:
        run.model.to(GPU)
        run.device = torch.device(GPU)
        gpu.waits.clear()
        run._compute_gradient(batches)
        assert gpu.waits == []
        assert run._clip_gradient()
        assert len(gpu.waits) == 1
        assert run.totals.losses == pytest.approx(on_cpu.totals.losses)
        run.model.cpu()
    torch.testing.assert_close(gradient(run), gradient(on_cpu), atol=1e-6, rtol=1e-5)


def test_a_thread_reads_ahead_for_a_gpu(prepared: Path) -> None:
    """The batches are the same, in the same order."""
    settings = {"train__accumulate": 2, "data__bpe_dropout": 0.3}
    on_cpu, run = (trainer(prepared, **settings) for _ in range(2))
    run.device = torch.device(GPU)
    run._batches = run._open_stream()
    for _ in range(30):
        expected, found = next(on_cpu._batches), next(run._batches)
        assert found.following == expected.following
        assert [batch.source.tolist() for _, batch in found.batches] == [
            batch.source.tolist() for _, batch in expected.batches
        ]
