"""Table 1 of the paper, measured: what a layer costs as a sentence grows, and how far a signal has to travel in it.

Time and memory are those of one layer alone. The paper counts what grows fastest, so exponents are fitted where
sentences are long, and for d where layers are wide. Paths are found by gradients: what has none between two places has
no path. Shapes: n length, d width, k kernel, r neighbourhood.
"""

import math
import statistics
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.console import Table
from multihead.figures import PALETTE, add_legend, new_figure, save_figure, style_axes
from multihead.model.build import MIXERS
from multihead.model.incremental import LayerCache
from multihead.model.transformer import MultiHeadAttention
from multihead.model.variants.convolution import Convolution

LENGTHS = (32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
FITTED = 4  # of them, the longest
WIDTH = 64  # of the layers whose length grows
PATH_LENGTHS = (16, 32, 64, 128)
PATH_WINDOW, KERNEL = 8, 3
REPEATS = 3


@dataclass(frozen=True, slots=True)
class Layer:
    """A row of Table 1: what the paper says, and the exponents that follow from it."""

    name: str
    mixer: str  # as in model.encoder_mixer
    complexity: str
    sequential: str
    path: str
    n_exponent: float  # of the complexity, by length
    d_exponent: float  # and by width; between two for a sum of two
    causal: bool = False
    in_paper: bool = True

    def growing_widths(self) -> tuple[int, tuple[int, ...]]:
        """A length, and widths at which the exponent of d shows: what mixes places, or what mixes dimensions."""
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
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """What was found for a layer; lists go with the lengths."""

    layer: Layer
    lengths: list[int]
    seconds: list[float]  # of a forward and a backward pass
    megabytes: list[float]  # kept for the backward pass, the layer's weights not counted
    n_exponent: float  # of the seconds, fitted
    d_exponent: float
    memory_exponent: float
    path_lengths: list[int]
    paths: list[int]  # steps or layers between the first and the last place
    chains: list[int]  # operations that have to wait for each other, in one layer


def measure(layer: Layer, lengths: Sequence[int] = LENGTHS) -> Measured:
    """One row; time is the best of a few passes, so that other work on the machine matters less."""
    seconds, megabytes = [], []
    for n in lengths:
        mixer = make(layer, WIDTH, n)
        seconds.append(seconds_of(mixer, n, WIDTH))
        megabytes.append(kept_bytes(mixer, n, WIDTH) / 1e6)
    length, widths = layer.growing_widths()
    by_width = [seconds_of(make(layer, width, length), length, width) for width in widths]
    return Measured(
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


def make(layer: Layer, width: int, length: int, number: int = 0, window: int = 64) -> nn.Module:
    """One layer, as it stands in an encoder, or in a decoder if it is causal.

    Attention comes without its projections, which the paper does not count: they cost n·d² whatever is attended to.
    """
    config = ModelConfig(
        vocab_size=1, max_len=length, window=window, kernel=KERNEL, d_model=width, n_heads=1, d_k=width, d_v=width
    )
    if layer.mixer == "dilated":  # ByteNet begins anew after a dilation of 16; a path of log n needs it to go on
        return Convolution(config, layer.causal, dilation=2**number)
    mixer = MIXERS[layer.mixer](config, number, layer.causal)
    assert isinstance(mixer, nn.Module)
    for module in mixer.modules():
        if isinstance(module, MultiHeadAttention):
            for name in ("w_q", "w_k", "w_v", "w_o"):
                setattr(module, name, nn.Identity())
    return mixer


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """e of value ~ size^e, by least squares of the logarithms."""
    return statistics.linear_regression([math.log(size) for size in sizes], [math.log(value) for value in values]).slope


# Time and memory


def seconds_of(mixer: nn.Module, length: int, width: int) -> float:
    x, mask = torch.randn(1, length, width, requires_grad=True), full_mask(length)

    def once() -> float:
        began = time.perf_counter()
        mixer(x, mask).sum().backward()
        return time.perf_counter() - began

    once()  # what is done but the first time
    return min(once() for _ in range(REPEATS))


def full_mask(length: int) -> Tensor:
    return torch.ones(1, 1, 1, length, dtype=torch.bool)


def kept_bytes(mixer: nn.Module, length: int, width: int) -> int:
    """What a forward pass keeps for the backward pass, each piece of memory counted once."""
    kept: dict[int, int] = {}
    weights = {weight.untyped_storage().data_ptr() for weight in mixer.parameters()}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = mixer(torch.randn(1, length, width, requires_grad=True), full_mask(length))
    del y
    return sum(kept.values())


# Paths


def path_length(layer: Layer, length: int) -> int:
    """Over how many layers, or steps within one, every place is heard at the last one."""
    return _steps_between(layer, length) if layer.sequential == "n" else _layers_between(layer, length)


def _layers_between(layer: Layer, length: int, width: int = 4) -> int:
    """Layers that have to be stacked until the last place depends on every other."""
    x = torch.randn(1, length, width, dtype=torch.float64, requires_grad=True)
    y, mask = x, full_mask(length)
    for number in range(length):
        y = make(layer, width, length, number, window=PATH_WINDOW).double()(y, mask)
        (gradient,) = torch.autograd.grad(y[0, -1].sum(), x, retain_graph=True)
        if bool(gradient[0].any(dim=-1).all()):
            return number + 1
    raise ValueError(f"{length} layers of {layer.name} do not connect {length} places")


def _steps_between(layer: Layer, length: int, width: int = 4) -> int:
    """Steps that the gradient goes back through, from the last place to the first."""
    mixer = make(layer, width, length).double()
    x = torch.randn(1, length, width, dtype=torch.float64, requires_grad=True)
    cache = LayerCache()
    states = []
    for place in range(length):
        y = mixer(x[:, place : place + 1], full_mask(1), cache)
        cache.length += 1
        states.append(cache.tensors["h"])
    gradients = torch.autograd.grad(y.sum(), states, allow_unused=True)
    return sum(1 for gradient in gradients if gradient is not None and bool(gradient.any()))


def chain_length(layer: Layer, length: int, width: int = 4) -> int:
    """The longest chain of operations in one layer of which each needs the one before."""
    # Double precision, since in single precision a kernel that shows nothing of its inside runs a recurrent layer.
    x = torch.randn(1, length, width, dtype=torch.float64, requires_grad=True)
    y = make(layer, width, length).double()(x, full_mask(length))
    return _depth(y.grad_fn)


def _depth(root: object) -> int:
    """The longest way down a graph of gradients, without recursion: it may be thousands of operations deep."""
    depths: dict[object, int] = {}
    waiting = [root]
    while waiting:
        node = waiting[-1]
        following = [child for child, _ in getattr(node, "next_functions", ()) if child is not None]
        open_ones = [child for child in following if child not in depths]
        if open_ones:
            waiting += open_ones
        else:
            depths[waiting.pop()] = 1 + max((depths[child] for child in following), default=0)
    return depths[root]


# Shown


def to_dict(one: Measured) -> dict[str, Any]:
    return asdict(one)


def to_table(found: Sequence[Measured]) -> Table:
    """The paper's three columns, and beside each what was measured."""
    lengths = ", ".join(map(str, PATH_LENGTHS))
    return Table(
        title="Table 1: a layer's cost, what has to wait for what, and the longest path between two places",
        header=["layer", "paper", "time", "kept", "paper", "in a row", "paper", "path"],
        rows=[
            [
                one.layer.name + ("" if one.layer.in_paper else " *"),
                f"O({one.layer.complexity})",
                f"n^{one.n_exponent:.2f} d^{one.d_exponent:.2f}",
                f"n^{one.memory_exponent:.2f}",
                f"O({one.layer.sequential})",
                _along(one.chains),
                f"O({one.layer.path})",
                _along(one.paths),
            ]
            for one in found
        ],
        notes=[
            f"time: exponents fitted to a forward and a backward pass, of n over the longest {FITTED} lengths at "
            f"d = {WIDTH}; kept: for the backward pass.",
            f"in a row: operations of one layer of which each needs the one before, at n = {lengths}.",
            f"path: layers, or steps of a recurrent one, until every place is heard at the last, at n = {lengths}; "
            f"k = {KERNEL}, r = {PATH_WINDOW}.",
            "Attention is measured without its projections, which the paper does not count: n·d² in each kind.",
            "* not in the paper.",
        ],
    )


def _along(values: Sequence[int]) -> str:
    return " ".join(map(str, values))


def write_picture(found: Sequence[Measured], path: Path) -> None:
    """Time and memory over length, both axes in powers: a straight line's slope is its exponent."""
    figure = new_figure(11, 4.6)
    left, right = figure.subplots(1, 2)
    for one, color in zip(found, PALETTE, strict=False):
        style = {"color": color, "linestyle": "-" if one.layer.in_paper else "--", "marker": "o", "markersize": 3}
        left.plot(one.lengths, [1000 * seconds for seconds in one.seconds], **style, label=one.layer.name)
        right.plot(one.lengths, one.megabytes, **style)
    titles = f"Milliseconds, forward and backward (d = {WIDTH})", "Megabytes kept for the backward pass"
    for axes, title in zip((left, right), titles, strict=True):
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_xticks(found[0].lengths, [str(length) for length in found[0].lengths])
        style_axes(axes, title=title, xlabel="length n")
    add_legend(left)
    save_figure(figure, path)
