"""Table 1 of the paper, measured: the cost of a layer as sentences grow, and the length of paths through it.

Time and memory are those of one layer. The paper counts the fastest-growing term, so exponents are fitted where
sentences are long, and for d where layers are wide. Two positions are connected if there is a gradient between them.
Shapes: n length, d width, k kernel, r neighborhood.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.console import Table
from multihead.figures import PALETTE, TEXT_COLOR, new_figure, save_figure, style_axes
from multihead.model.build import MIXERS
from multihead.model.incremental import LayerCache
from multihead.model.transformer import MultiHeadAttention
from multihead.model.variants.convolution import Convolution
from multihead.model.variants.memory_network import Facts, Hop
from multihead.model.variants.neural_gpu import ConvolutionalGRU

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
FITTED = 4  # exponents are fitted to the longest four
WIDTH = 64  # d while n grows
PATH_LENGTHS = (16, 32, 64, 128)
PATH_WINDOW, KERNEL = 8, 3
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Layer:
    """A row of Table 1, and the exponents that follow from it."""

    name: str
    mixer: str  # value of model.encoder_mixer or model.system
    complexity: str
    sequential: str
    path: str
    n_exponent: float  # of n in the complexity
    d_exponent: float  # of d; in between for a sum of two terms
    causal: bool = False
    in_paper: bool = True
    longest: int = LENGTHS[-1]  # to measure

    def growing_widths(self) -> tuple[int, tuple[int, ...]]:
        """Return a length, and the widths at which the exponent of d shows."""
        if self.n_exponent > 1 and self.d_exponent > 1:
            return 32, (128, 256, 512)
        return (2048, (32, 64, 128, 256)) if self.d_exponent == 1 else (128, (128, 256, 512, 1024))


LAYERS = (
    Layer("self-attention", "attention", "n²·d", "1", "1", 2, 1),
    Layer("recurrent", "lstm", "n·d²", "n", "n", 1, 2, causal=True),
    Layer("convolutional", "convolution", "k·n·d²", "1", "n/k", 1, 2),
    Layer("convolutional, dilated", "dilated", "k·n·d²", "1", "log_k(n)", 1, 2),
    Layer("convolutional, separable", "separable", "k·n·d + n·d²", "1", "n/k", 1, 1.5),
    Layer("self-attention, restricted", "local", "r·n·d", "1", "n/r", 1, 1),
    Layer("Linformer", "linformer", "p·n·d", "1", "1", 1, 1, in_paper=False),
    Layer("BigBird", "bigbird", "r·n·d", "1", "2", 1, 1, in_paper=False),
    Layer("Neural GPU, encoder", "neural-gpu", "k·n²·d²", "n", "n/k", 2, 2, in_paper=False, longest=512),
    Layer("memory network, one hop", "memory-network", "n·d", "1", "1", 1, 1, in_paper=False),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Results for a layer; `seconds` and `megabytes` have an entry for each length."""

    layer: Layer
    lengths: list[int]
    seconds: list[float]  # of a forward and backward pass
    megabytes: list[float]  # saved for the backward pass, without the weights
    n_exponent: float  # fitted to `seconds`
    d_exponent: float
    memory_exponent: float
    path_lengths: list[int]
    paths: list[int]  # steps or layers between the first and the last position
    chains: list[int]  # sequential operations in one layer


def measure(layer: Layer, lengths: Sequence[int] = LENGTHS) -> Measurement:
    """Measure one row; the time is the best of a few passes, so that other processes matter less."""
    seconds, megabytes = [], []
    lengths = [n for n in lengths if n <= layer.longest]
    for n in lengths:
        mixer = make_layer(layer, WIDTH, n)
        seconds.append(seconds_of(mixer, n, WIDTH))
        megabytes.append(saved_bytes(mixer, n, WIDTH) / 1e6)
    length, widths = layer.growing_widths()
    by_width = [seconds_of(make_layer(layer, width, length), length, width) for width in widths]
    return Measurement(
        layer=layer,
        lengths=list(lengths),
        seconds=seconds,
        megabytes=megabytes,
        n_exponent=exponent(lengths[-FITTED:], seconds[-FITTED:]),
        d_exponent=exponent(widths, by_width),
        memory_exponent=exponent(lengths[-FITTED:], megabytes[-FITTED:]),
        path_lengths=list(PATH_LENGTHS),
        paths=[path_length(layer, n) for n in PATH_LENGTHS],
        chains=[chain_length(layer, n) for n in PATH_LENGTHS],
    )


def make_layer(layer: Layer, width: int, length: int, number: int = 0, window: int = 64) -> nn.Module:
    """Return one layer of an encoder, or of a decoder if it is causal.

    Attention has no projections here: they cost n·d² in every variant, and the paper does not count them.
    """
    config = ModelConfig(
        vocab_size=1, max_len=length, window=window, kernel=KERNEL, d_model=width, n_heads=1, d_k=width, d_v=width
    )
    if layer.mixer in SYSTEMS:
        return SYSTEMS[layer.mixer](config)
    if layer.mixer == "dilated":  # ByteNet restarts after a dilation of 16; a path of log n needs it to keep doubling
        return Convolution(config, layer.causal, dilation=2**number)
    mixer = MIXERS[layer.mixer](config, number, layer.causal)
    assert isinstance(mixer, nn.Module)
    for module in mixer.modules():
        if isinstance(module, MultiHeadAttention):
            for name in ("w_q", "w_k", "w_v", "w_o"):
                setattr(module, name, nn.Identity())
    return mixer


class NeuralGPUEncoder(nn.Module):
    """The encoder of a Neural GPU with an image of one row: its unit, applied as often as there are positions."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.unit = ConvolutionalGRU(replace(config, image_width=1), has_tape=False)

    def forward(self, x: Tensor, _mask: Tensor) -> Tensor:
        return self.states(x)[-1].squeeze(2).mT  # B N D

    def states(self, x: Tensor) -> list[Tensor]:
        """Return the image before the first step and after each of them (B D 1 N)."""
        states = [x.mT.unsqueeze(2)]
        for _ in range(x.size(1)):
            states.append(self.unit(states[-1]))
        return states


class OneHop(nn.Module):
    """A hop of a memory network over facts that are the positions; the last one also asks. All see what was read."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.hop = Hop()

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        read: Tensor = self.hop(x[:, -1:], Facts(keys=x, values=x, real=mask[:, 0], question=x[:, -1:], tokens=mask))
        return read.expand_as(x)


SYSTEMS: dict[str, Callable[[ModelConfig], nn.Module]] = {"neural-gpu": NeuralGPUEncoder, "memory-network": OneHop}


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """Return e of value ~ size^e, by least squares on the logarithms."""
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(value) for value in values]).slope


# Time and memory


def seconds_of(mixer: nn.Module, length: int, width: int) -> float:
    """Return the processor time of a pass, which counts operations even where other processes share the cores."""
    x, mask = torch.randn(1, length, width, requires_grad=True), full_mask(length)

    def run_once() -> float:
        start = time.process_time()
        mixer(x, mask).sum().backward()
        return time.process_time() - start

    run_once()  # warm up
    return min(run_once() for _ in range(REPEATS))


def full_mask(length: int) -> Tensor:
    return torch.ones(1, 1, 1, length, dtype=torch.bool)


def saved_bytes(mixer: nn.Module, length: int, width: int) -> int:
    """Return the bytes that a forward pass saves for the backward pass, counting each storage once."""
    saved: dict[int, int] = {}
    weights = {weight.untyped_storage().data_ptr() for weight in mixer.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = mixer(torch.randn(1, length, width, requires_grad=True), full_mask(length))
    del y
    return sum(saved.values())


# Paths


def path_length(layer: Layer, length: int) -> int:
    """Return after how many layers, or steps of a recurrent one, the last position depends on every other."""
    if layer.mixer == "neural-gpu":
        return _changes_between(layer, length)
    return _steps_between(layer, length) if layer.sequential == "n" else _layers_between(layer, length)


def _layers_between(layer: Layer, length: int, width: int = 4) -> int:
    """Stack layers until the last position depends on every other."""
    x = torch.randn(1, length, width, dtype=torch.float64, requires_grad=True)
    y, mask = x, full_mask(length)
    for number in range(length):
        y = make_layer(layer, width, length, number, window=PATH_WINDOW).double()(y, mask)
        (gradient,) = torch.autograd.grad(y[0, -1].sum(), x, retain_graph=True)
        if bool(gradient[0].any(dim=-1).all()):
            return number + 1
    raise ValueError(f"{length} layers of {layer.name} do not connect {length} positions")


def _steps_between(layer: Layer, length: int, width: int = 4) -> int:
    """Count the steps that the gradient passes from the last position to the first."""
    mixer = make_layer(layer, width, length).double()
    x = torch.randn(1, length, width, dtype=torch.float64, requires_grad=True)
    cache = LayerCache()
    states = []
    for position in range(length):
        y = mixer(x[:, position : position + 1], full_mask(1), cache)
        cache.length += 1
        states.append(cache.tensors["h"])
    gradients = torch.autograd.grad(y.sum(), states, allow_unused=True)
    return sum(1 for gradient in gradients if gradient is not None and bool(gradient.any()))


def _changes_between(layer: Layer, length: int, width: int = 4) -> int:
    """Count the changes of the image until its last position depends on every other."""
    encoder = make_layer(layer, width, length).double()
    assert isinstance(encoder, NeuralGPUEncoder)
    x = torch.randn(1, length, width, dtype=torch.float64, requires_grad=True)
    for step, state in enumerate(encoder.states(x)):
        (gradient,) = torch.autograd.grad(state[..., -1].sum(), x, retain_graph=True)
        if bool(gradient[0].any(dim=-1).all()):
            return step
    raise ValueError(f"{length} changes do not connect {length} positions")


def chain_length(layer: Layer, length: int, width: int = 4) -> int:
    """Return the length of the longest chain of sequential operations in one layer."""
    # Double precision: in single precision a fused kernel runs recurrent layers and hides their steps.
    x = torch.randn(1, length, width, dtype=torch.float64, requires_grad=True)
    y = make_layer(layer, width, length).double()(x, full_mask(length))
    return _depth(y.grad_fn)


def _depth(root: object) -> int:
    """Return the depth of an autograd graph, without recursion: it may be thousands of operations deep."""
    depths: dict[object, int] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        children = [child for child, _ in getattr(node, "next_functions", ()) if child is not None]
        unknown = [child for child in children if child not in depths]
        if unknown:
            stack += unknown
        else:
            depths[stack.pop()] = 1 + max((depths[child] for child in children), default=0)
    return depths[root]


# Output


def to_dict(one: Measurement) -> dict[str, Any]:
    return asdict(one)


def to_table(measurements: Sequence[Measurement]) -> Table:
    """List the paper's three columns, each beside our measurement."""
    lengths = ", ".join(map(str, PATH_LENGTHS))
    return Table(
        title="Table 1: cost per layer, sequential operations, and the longest path between two positions",
        header=["layer", "paper", "time", "memory", "paper", "sequential", "paper", "path"],
        rows=[
            [
                one.layer.name + ("" if one.layer.in_paper else " *"),
                f"O({one.layer.complexity})",
                f"n^{one.n_exponent:.2f} d^{one.d_exponent:.2f}",
                f"n^{one.memory_exponent:.2f}",
                f"O({one.layer.sequential})",
                _joined(one.chains),
                f"O({one.layer.path})",
                _joined(one.paths),
            ]
            for one in measurements
        ],
        notes=[
            "time: exponents fitted to the processor time of a forward and backward pass, of n over the longest "
            f"{FITTED} lengths at d = {WIDTH}; memory: saved for the backward pass.",
            f"sequential: longest chain of dependent operations in one layer, at n = {lengths}.",
            f"path: layers, or steps of a recurrent one, until the last position depends on all, at n = {lengths}; "
            f"k = {KERNEL}, r = {PATH_WINDOW}.",
            "Attention is measured without its projections (n·d² in every variant), which the paper does not count.",
            "The paper prints O(log_k(n)) for convolutions: true of dilated ones, O(n/k) of the others.",
            "Neural GPU: n changes of n positions; each has two convolutions in a row and reaches twice as far.",
            "* not in the paper.",
        ],
    )


def _joined(values: Sequence[int]) -> str:
    return " ".join(map(str, values))


def write_picture(measurements: Sequence[Measurement], path: Path) -> None:
    """Write a PNG of time and memory over length on logarithmic axes, where the slope of a line is its exponent."""
    figure = new_figure(13, 4.6)
    left, right = figure.subplots(1, 2)
    for one, color in zip(measurements, cycle(PALETTE)):
        line = "-" if one.layer.in_paper else ":" if one.layer.mixer in SYSTEMS else "--"
        style = {"color": color, "linestyle": line, "marker": "o", "markersize": 3}
        left.plot(one.lengths, [1000 * seconds for seconds in one.seconds], **style, label=one.layer.name)
        right.plot(one.lengths, one.megabytes, **style)
    titles = (
        f"Milliseconds of processor time, forward and backward (d = {WIDTH})",
        "Megabytes saved for the backward pass",
    )
    for axes, title in zip((left, right), titles, strict=True):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(measurements[0].lengths, [str(length) for length in measurements[0].lengths])
        style_axes(axes, title=title, xlabel="length n")
    figure.legend(loc="outside right center", frameon=False, fontsize=9, labelcolor=TEXT_COLOR)
    save_figure(figure, path)
