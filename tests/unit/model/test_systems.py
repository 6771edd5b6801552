"""Systems other than the Transformer, each against its definition by loops; test_variants.py has what holds for all."""

import math
from typing import cast

import pytest
import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.errors import UsageError
from multihead.model.build import build_model
from multihead.model.variants.memory_network import Facts, Hop, MemoryNetwork
from multihead.model.variants.neural_gpu import ConvolutionalGRU, NeuralGPU, image_length
from tests.conftest import tiny_shape

STOP = 7  # the id of the piece that ends a fact


def make(**changes: object) -> nn.Module:
    torch.manual_seed(1)
    return build_model(tiny_shape(**changes)).double().eval()


def memory_network(hops: int = 3, **changes: object) -> MemoryNetwork:
    return cast(MemoryNetwork, make(system="memory-network", fact_end_id=STOP, encoder_layers=hops, **changes))


def neural_gpu(**changes: object) -> NeuralGPU:
    return cast(NeuralGPU, make(**{"system": "neural-gpu", "image_width": 2, "positions": "none", **changes}))


def assert_same(one: Tensor, other: Tensor) -> None:
    torch.testing.assert_close(one, other, atol=1e-10, rtol=0)


# The Neural GPU


def convolved(convolution: nn.Conv2d, image: Tensor) -> Tensor:
    """Convolve an image (D W N) by loops; beyond it everything is zero."""
    height, length = convolution.weight.shape[2:]
    out = torch.zeros(convolution.out_channels, *image.shape[1:], dtype=image.dtype)
    for row in range(image.size(1)):
        for position in range(image.size(2)):
            if convolution.bias is not None:
                out[:, row, position] = convolution.bias
            for i in range(height):
                for j in range(length):
                    r, p = row + i - (height - 1) // 2, position + j - (length - 1) // 2
                    if 0 <= r < image.size(1) and 0 <= p < image.size(2):
                        out[:, row, position] += convolution.weight[:, :, i, j] @ image[:, r, p]
    return out


def changed(unit: ConvolutionalGRU, s: Tensor, tape: Tensor | None = None) -> Tensor:
    """One step of the unit by its definition."""
    d_model, u_r = s.size(0), convolved(unit.gates, s)
    p = torch.zeros(3 * d_model, *s.shape[1:], dtype=s.dtype)
    if unit.tape is not None and tape is not None:
        p = convolved(unit.tape, tape)
    u, r = torch.sigmoid(u_r + p[: 2 * d_model]).split(d_model)
    out: Tensor = u * s + (1 - u) * torch.tanh(convolved(unit.candidate, r * s) + p[2 * d_model :])
    return out


@torch.no_grad()
def test_the_neural_gpu_is_that_of_its_definition() -> None:
    """A source of 3 tokens changes the image 3 times; then each token of the target is read and written to the tape."""
    model = neural_gpu(encoder_layers=1, decoder_layers=1)
    source, target = torch.tensor([[5, 9, 3]]), torch.tensor([[2, 11, 6]])
    length = 3 + 2 + 4
    s, tape = torch.zeros(12, 2, length, dtype=torch.float64), torch.zeros(12, 2, length, dtype=torch.float64)
    for position, id in enumerate([5, 9, 3]):
        s[:, 0, position] = model.source_embedding.weight[id] * math.sqrt(12)
    encoder, decoder = (cast(ConvolutionalGRU, stack[0]) for stack in (model.encoder, model.decoder))
    for _ in range(3):
        s = changed(encoder, s)
    for position, id in enumerate([2, 11, 6]):
        if position:  # the start symbol is not an output
            tape[:, 0, position - 1] = model.target_embedding.weight[id] * math.sqrt(12)
        s = changed(decoder, s, tape)
        assert_same(model(source, target)[0, position], model.output(s[:, 0, position]))


def test_the_image_has_room_for_a_longer_output() -> None:
    assert image_length(torch.tensor([1, 2, 10, 11])).tolist() == [6, 7, 19, 21]


@torch.no_grad()
def test_an_output_beyond_the_image_goes_on_at_its_last_position() -> None:
    model = neural_gpu()
    source, target = torch.tensor([[5]]), torch.randint(4, 31, (1, 12), generator=torch.Generator().manual_seed(1))
    full, state = model(source, target), model.start_decoding(source)
    steps = [model.decode_step(target[:, at], state) for at in range(12)]
    assert_same(torch.stack(steps, dim=1), full)


def test_a_unit_of_the_neural_gpu_has_three_convolutions_of_k_times_k_times_d_squared() -> None:
    model = neural_gpu(image_width=4)
    n_weights = [sum(weight.numel() for weight in stack[0].parameters()) for stack in (model.encoder, model.decoder)]
    assert n_weights == [3 * (3 * 3 * 12 * 12 + 12), 3 * (2 * 3 * 3 * 12 * 12 + 12)]  # with a tape, twice as many


# Memory networks


def words_by_place(table: Tensor, ids: list[int]) -> Tensor:
    total, width = torch.zeros(table.size(1), dtype=table.dtype), table.size(1)
    for j, id in enumerate(ids, start=1):
        for k in range(1, width + 1):
            share = (1 - j / len(ids)) - (k / width) * (1 - 2 * j / len(ids))
            total[k - 1] += share * table[id, k - 1]
    return total


@torch.no_grad()
def test_hops_are_those_of_sukhbaatar() -> None:
    model = memory_network(hops=3)
    facts, question = [[5, 9, STOP], [11, 12, 13, 14, STOP], [6, STOP]], [20, 21, 3]
    keys, values = [], []
    for age, fact in zip((2, 1, 0), facts, strict=True):
        keys.append(words_by_place(model.source_embedding.weight, fact) + model.key_ages[age])
        values.append(words_by_place(model.value_embedding.weight, fact) + model.value_ages[age])
    u = words_by_place(model.source_embedding.weight, question)
    for _ in range(3):
        scores = [math.exp(float(u @ key)) for key in keys]
        read = sum((score / sum(scores) * value for score, value in zip(scores, values, strict=True)), torch.zeros(12))
        u = model.w_h.weight @ u + read
    memory, mask = model.encode(torch.tensor([[id for text in (*facts, question) for id in text]]))
    assert_same(memory[0, 0], u)
    assert mask.shape == (1, 1, 1, 1)


@torch.no_grad()
def test_the_weight_of_a_fact_is_shared_by_its_tokens() -> None:
    model, source = memory_network(hops=2), torch.tensor([[5, 9, STOP, 6, STOP, 20, 3]])
    facts = model.facts(source)
    first, second = cast(Hop, model.encoder[0]).weights(facts.question, facts)[0, 0].tolist()
    expected = torch.tensor([first / 3] * 3 + [second / 2] * 2 + [0, 0], dtype=torch.float64)
    hops = model.hop_weights(source)
    assert len(hops) == 2
    torch.testing.assert_close(hops[0][0, 0].double(), expected, atol=1e-6, rtol=0)


@torch.no_grad()
def test_a_text_without_facts_is_a_question() -> None:
    model, source = memory_network(), torch.tensor([[5, 9, 3]])
    assert bool(model(source, source).isfinite().all())
    assert isinstance(model.facts(source), Facts)
    assert model.hop_weights(source)[0].abs().sum() == 0


def test_hops_share_their_weights() -> None:
    one, three = (sum(weight.numel() for weight in memory_network(hops=n).parameters()) for n in (1, 3))
    assert one == three


# Both


@pytest.mark.parametrize("system", ["neural-gpu", "memory-network"])
@pytest.mark.parametrize(
    "other", [{"cross": "mean"}, {"attention_score": "dot"}, {"encoder_mixer": "lstm"}, {"positions": "tree"}], ids=str
)
def test_a_system_refuses_variants_of_parts_that_it_does_not_have(system: str, other: dict[str, str]) -> None:
    ((name, value),) = other.items()
    with pytest.raises(UsageError, match=f"model.{name}={value} has no meaning with model.system={system}"):
        tiny_shape(system=system, **other)


def test_a_system_is_a_variant_that_exports_refuse_by_name() -> None:
    config: ModelConfig = tiny_shape(system="neural-gpu")
    assert config.variants == ["model.system=neural-gpu"]
    assert not config.attends_to_source
