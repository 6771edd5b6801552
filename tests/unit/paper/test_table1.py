"""Table 1, measured: what can be tested without a clock. The clock's part is in benchmarks/growth.py."""

import math
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
import torch

from multihead.config.schema import ModelConfig
from multihead.model.build import build_model
from multihead.model.variants.neural_gpu import NeuralGPU
from multihead.paper import table1
from multihead.paper.table1 import (
    KERNEL,
    LAYERS,
    PATH_WINDOW,
    Measurement,
    chain_length,
    exponent,
    make_layer,
    path_length,
    saved_bytes,
)

BY_NAME = {layer.name: layer for layer in LAYERS}


def test_an_exponent_is_that_of_a_power() -> None:
    assert exponent([2, 4, 8], [3 * n**1.5 for n in (2, 4, 8)]) == pytest.approx(1.5)


@pytest.mark.parametrize("n", [16, 32])
def test_paths_are_as_long_as_the_paper_says(n: int) -> None:
    """The distance is n - 1 places, of which a layer spans so many."""
    by_layers = {
        "self-attention": 1,
        "recurrent": n - 1,
        "convolutional": math.ceil((n - 1) / (KERNEL // 2)),
        "convolutional, separable": math.ceil((n - 1) / (KERNEL // 2)),
        "self-attention, restricted": math.ceil((n - 1) / (PATH_WINDOW // 2)),
        "Linformer": 1,
        "BigBird": 2,
        "Neural GPU, encoder": math.ceil((n - 1) / (2 * (KERNEL // 2))),  # a change has two convolutions in a row
        "memory network, one hop": 1,
    }
    for name, expected in by_layers.items():
        assert path_length(BY_NAME[name], n) == expected, name


def test_the_path_of_dilated_layers_grows_with_the_logarithm() -> None:
    """Spans double: 1 + 2 + 4 + 8 + 16 places after five layers, and one more layer for twice the length."""
    assert [path_length(BY_NAME["convolutional, dilated"], n) for n in (8, 16, 32, 64)] == [3, 4, 5, 6]


@pytest.mark.parametrize("layer", LAYERS, ids=lambda layer: layer.name)
def test_only_a_recurrent_layer_has_to_wait(layer: table1.Layer) -> None:
    short, long = chain_length(layer, 16), chain_length(layer, 64)
    assert (long >= 3 * short) if layer.sequential == "n" else long == short


@pytest.mark.parametrize("layer", [one for one in LAYERS if one.mixer != "neural-gpu"], ids=lambda layer: layer.name)
def test_what_is_kept_grows_with_the_length_alone(layer: table1.Layer) -> None:
    """Even for full attention, whose fused kernel keeps no square."""
    kept = [saved_bytes(make_layer(layer, 16, n), n, 16) for n in (512, 1024)]
    assert kept[1] <= 2.2 * kept[0]


def test_a_neural_gpu_keeps_every_image() -> None:
    layer = BY_NAME["Neural GPU, encoder"]
    kept = [saved_bytes(make_layer(layer, 16, n), n, 16) for n in (32, 64)]
    assert 3.6 * kept[0] <= kept[1] <= 4.2 * kept[0]


def test_the_encoder_of_a_neural_gpu_is_that_of_the_model() -> None:
    torch.manual_seed(1)
    config = ModelConfig(vocab_size=20, d_model=8, system="neural-gpu", positions="none", image_width=1, dropout=0.0)
    model = cast(NeuralGPU, build_model(replace(config, encoder_layers=1)).eval())
    layer = table1.NeuralGPUEncoder(config)
    layer.unit.load_state_dict(model.encoder[0].state_dict())
    source = torch.tensor([[5, 6, 7]])
    image, _ = model.encode(source)
    x = torch.nn.functional.pad(model.embed(model.source_embedding, source), (0, 0, 0, image.size(-1) - 3))
    torch.testing.assert_close(layer.states(x)[3], image)


def test_one_hop_is_that_of_the_model() -> None:
    x, layer = torch.randn(1, 5, 4, generator=torch.Generator().manual_seed(1)), table1.OneHop(ModelConfig())
    weights = [math.exp(float(x[0, -1] @ fact)) for fact in x[0]]
    expected = sum((weight / sum(weights) * fact for weight, fact in zip(weights, x[0], strict=True)), torch.zeros(4))
    torch.testing.assert_close(layer(x, table1.full_mask(5))[0, 2], expected)


def test_the_table_and_the_picture_are_written(tmp_path: Path) -> None:
    found = [
        Measurement(
            layer=layer,
            lengths=[32, 64],
            seconds=[0.1, 0.2],
            megabytes=[1.0, 2.0],
            n_exponent=1.0,
            d_exponent=2.0,
            memory_exponent=1.0,
            path_lengths=[16],
            paths=[1],
            chains=[5],
        )
        for layer in LAYERS
    ]
    table1.write_picture(found, tmp_path / "table1.png")
    assert (tmp_path / "table1.png").read_bytes().startswith(b"\x89PNG")
    text = table1.to_table(found).as_text()
    assert "self-attention, restricted" in text
    assert "O(log_k(n))" in text
