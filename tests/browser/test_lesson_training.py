"""Training in Chromium: losses, p - q and steps of Adam are those of torch, for any pair of sentences."""

import math
import re
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F

from multihead.interop.hub import find_model
from multihead.model.weights import load_model
from multihead.training.loss import smoothed_loss

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.xdist_group("browser")]

SOURCE, TARGET = "The old woman gave the child an apple.", "Die Frau gab dem Kind einen Apfel, nicht wahr?"
SMOOTHING = 0.1
FORCED = """([source, target]) => {
  const {model, tokenizer} = lesson.app;
  const {losses, gradient, written, read} = lesson.tools.forced(model, tokenizer, source, target);
  return {losses, gradient: [...gradient], written, read};
}"""
STEPS = """([source, target, n]) => {
  const {model, tokenizer} = lesson.app, {d_model: D, vocab_size: V} = model.config;
  const {graph, written} = lesson.tools.forced(model, tokenizer, source, target);
  const options = {D, V, warmup: 2000, first: 2000};
  const task = new lesson.tools.OutputTraining(model.weight(model.output), graph.get("hidden").data, written, options);
  const losses = [task.loss];
  for (let i = 0; i < n; i++) { task.step(); losses.push(task.loss); }
  return losses;
}"""


def forced_pass(written: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return what the output matrix reads (T D) and that matrix (V D), as the model's own modules have them."""
    model, tokenizer, _ = load_model(find_model("lesson"))
    hidden: list[torch.Tensor] = []
    model.decoder_norm.register_forward_hook(lambda _module, _inputs, output: hidden.append(output[0]))
    with torch.inference_mode():
        model(torch.tensor([[*tokenizer.encode(SOURCE), 3]]), torch.tensor([[2, *written[:-1]]]))
    return hidden[0].double(), model.output.weight.detach().double()


def test_losses_and_their_gradient_are_those_of_torch(lesson: "Page") -> None:
    found: dict[str, Any] = lesson.evaluate(FORCED, [SOURCE, TARGET])
    assert found["read"] == [2, *found["written"][:-1]]
    hidden, matrix = forced_pass(found["written"])
    logits = (hidden @ matrix.T).requires_grad_()
    target = torch.tensor(found["written"])
    smoothed = F.cross_entropy(logits, target, label_smoothing=SMOOTHING, reduction="none")
    assert [one["smoothed"] for one in found["losses"]] == pytest.approx(smoothed.tolist(), abs=2e-5)
    plain = F.cross_entropy(logits, target, reduction="none")
    assert [one["plain"] for one in found["losses"]] == pytest.approx(plain.tolist(), abs=2e-5)
    total, _ = smoothed_loss(logits, target, SMOOTHING)  # the loss that training uses
    (gradient,) = torch.autograd.grad(total, logits)
    ours = torch.tensor(found["gradient"]).view_as(gradient)
    assert (ours - gradient).abs().max() < 1e-5


def test_steps_of_adam_are_those_of_torch(lesson: "Page") -> None:
    written = lesson.evaluate(FORCED, [SOURCE, TARGET])["written"]
    hidden, matrix = forced_pass(written)
    weight = torch.nn.Parameter(matrix.clone())
    adam = torch.optim.Adam([weight], lr=1.0, betas=(0.9, 0.98), eps=1e-9)
    losses = []
    for step in range(2000, 2004):
        loss = F.cross_entropy(hidden @ weight.T, torch.tensor(written), label_smoothing=SMOOTHING)
        losses.append(loss.item())
        adam.zero_grad()
        loss.backward()
        adam.param_groups[0]["lr"] = 128**-0.5 * min(step**-0.5, step * 2000**-1.5)
        adam.step()
    assert lesson.evaluate(STEPS, [SOURCE, TARGET, 3]) == pytest.approx(losses, abs=2e-4)
    assert losses == sorted(losses, reverse=True)


def test_a_reader_gives_another_translation_and_trains_on_it(lesson: "Page") -> None:
    lesson.evaluate("lesson.app.go(21)")
    lesson.fill("#target", "Meine Schwester kaufte ein Fahrrad.")
    lesson.click("#train-target")
    words = lesson.locator("#losses tbody button").all_inner_texts()
    assert words[0] == "Meine"
    assert words[-1] == "</s>"
    probability, plain = lesson.locator("#losses tbody tr").first.locator("td").all_inner_texts()[2:4]
    assert float(probability.rstrip("%")) / 100 == pytest.approx(math.exp(-float(plain)), abs=0.01)
    lesson.click("#train-steps")
    text = lesson.inner_text("#train-loss")
    after, first = (float(x) for x in re.findall(r"\d\.\d{4}\b", text))
    assert text.startswith("After 10 steps")
    assert after < first
