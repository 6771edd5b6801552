"""The sinusoids of §3.5 as numbers and as a picture, and why a model can learn to attend by relative position.

Since PE(pos) consists of pairs of a sine and a cosine, the dot product of two positions depends only on their distance,
and PE(pos + k) is a linear function of PE(pos): each pair is rotated by an angle that depends on k.

Shapes: N positions, D d_model, P pairs, half of D.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from multihead.console import Table
from multihead.errors import UsageError
from multihead.figures import TEXT_COLOR, add_legend, new_figure, save_figure, style_axes
from multihead.model.positions import sinusoids

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure


DISTANCES = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]


def check_sizes(length: int, d_model: int) -> None:
    if d_model < 2 or d_model % 2:
        raise UsageError(f"--d-model must be even, since every sine has a cosine; got {d_model}")
    if length < 8:
        raise UsageError(f"--length must be at least 8 positions, got {length}")


def similarity(table: Tensor, start: int) -> Tensor:
    """Return the dot product of one position with every position, relative to that with itself, which is D / 2."""
    return table.double() @ table[start].double() / (table.size(1) / 2)  # N


def similarity_at(table: Tensor, distance: int) -> tuple[float, float]:
    """Return the mean similarity of positions at this distance, and the largest deviation from it."""
    before, after = table[: len(table) - distance].double(), table[distance:].double()
    products = (before * after).sum(dim=1) / (table.size(1) / 2)  # N
    return products.mean().item(), (products - products.mean()).abs().max().item()


def fit_rotations(table: Tensor, distance: int) -> Tensor:
    """Fit the complex factors (P) that take PE(pos) to PE(pos + distance), by least squares.

    A pair is one complex number; multiplying by a factor rotates and scales it.
    """
    before, after = (_pairs(part) for part in (table[: len(table) - distance], table[distance:]))  # N P
    return (before.conj() * after).sum(dim=0) / before.abs().square().sum(dim=0)  # P


def _pairs(table: Tensor) -> Tensor:
    """Return complex numbers with cosines as real and sines as imaginary parts: N P."""
    sine, cosine = table.double().unflatten(1, (-1, 2)).unbind(dim=-1)
    return torch.complex(cosine, sine)


def fit_error(table: Tensor, distance: int) -> tuple[float, float]:
    """Return two errors of the factors fitted to the first half of the positions.

    The first is the largest error of a coordinate of PE(pos + distance) in the second half, the second the largest
    difference from the theoretical rotation by distance / 10000^(2i/D).
    """
    half = len(table) // 2
    factors = fit_rotations(table[:half], distance)  # P
    before, after = _pairs(table[half : len(table) - distance]), _pairs(table[half + distance :])
    error = torch.view_as_real(before * factors - after).abs().max().item()
    pair = torch.arange(0, table.size(1), 2, dtype=torch.float64)
    expected = torch.polar(torch.ones(len(pair), dtype=torch.float64), distance * 10_000.0 ** (-pair / table.size(1)))
    return error, (factors - expected).abs().max().item()


def measure(length: int, d_model: int) -> list[dict[str, Any]]:
    """Return for each distance the similarity, its spread over positions, and the errors of the fitted rotations."""
    check_sizes(length, d_model)
    table = torch.from_numpy(sinusoids(length, d_model))
    records = []
    for distance in (distance for distance in DISTANCES if distance <= length // 4):
        mean, spread = similarity_at(table, distance)
        error, from_theory = fit_error(table, distance)
        records.append(
            {
                "distance": distance,
                "similarity": mean,
                "spread": spread,
                "linear_error": error,
                "difference_from_rotation": from_theory,
            }
        )
    return records


def to_table(records: Sequence[dict[str, Any]], length: int, d_model: int) -> Table:
    return Table(
        title=f"Sinusoidal positions (§3.5): {length:,} positions, d_model {d_model}",
        header=["distance k", "PE(p)·PE(p+k)", "spread over p", "error of the fit", "from the rotation"],
        rows=[
            [
                f"{record['distance']}",
                f"{record['similarity']:.4f}",
                *(f"{record[name]:.1e}" for name in ("spread", "linear_error", "difference_from_rotation")),
            ]
            for record in records
        ],
        notes=[
            "The product, relative to PE(p)·PE(p), is the same for every p: it depends only on the distance.",
            "PE(p+k) is a linear function of PE(p): a map fitted to the first half of the positions predicts the "
            "second half, and equals the rotation of each pair by k / 10000^(2i/d_model).",
        ],
    )


def write_picture(path: Path, length: int, d_model: int) -> None:
    """Write a PNG with the sinusoids as heat maps, the similarity of positions by distance, and the rotations."""
    check_sizes(length, d_model)
    table = torch.from_numpy(sinusoids(length, d_model))
    figure = new_figure(13, 6)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.25, 1], wspace=0.03)[0]
    top, bottom = right.subfigures(2, 1, squeeze=False, height_ratios=[2, 1], hspace=0.03)[:, 0]
    _draw_heat_maps(left, table)
    _draw_similarity(top, table)
    _draw_rotations(bottom, table)
    save_figure(figure, path)


def _draw_heat_maps(figure: "SubFigure", table: Tensor) -> None:
    """Draw even and odd dimensions separately; interleaved, as in the model, they would flicker."""
    sines, cosines = figure.subplots(1, 2, sharey=True)
    for axes, first, title in ((sines, 0, "Even dimensions: sines"), (cosines, 1, "Odd dimensions: cosines")):
        part = table[:, first::2].numpy()
        extent = (0, table.size(1), len(table) - 0.5, -0.5)
        image = axes.imshow(part, cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest", extent=extent)
        style_axes(axes, title=title, xlabel="dimension", grid=False)
    sines.set_ylabel("position", color=TEXT_COLOR)
    bar = figure.colorbar(image, ax=[sines, cosines], location="bottom", shrink=0.3, aspect=30, ticks=[-1, 0, 1])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8, labelcolor=TEXT_COLOR)


def _draw_similarity(figure: "SubFigure", table: Tensor) -> None:
    """Draw the curves of several positions, which coincide."""
    axes: Axes = figure.subplots()
    length = len(table)
    starts = [0, length // 4, length // 2, 3 * length // 4]
    for start, color, width in zip(starts, ("#bfdbfe", "#60a5fa", "#2563eb", "#172554"), (8, 5.5, 3, 1), strict=True):
        distances = (torch.arange(length) - start).tolist()
        values = similarity(table, start).tolist()
        axes.plot(distances, values, color=color, linewidth=width, solid_capstyle="butt", label=f"p = {start}")
    style_axes(axes, title="PE(p) · PE(p+k) relative to PE(p) · PE(p): the same for every p", xlabel="distance k")
    add_legend(axes)


def _draw_rotations(figure: "SubFigure", table: Tensor) -> None:
    """Draw pairs of four frequencies at the first positions as points on a circle, the first one darkest."""
    pairs = [0, *(table.size(1) * share // 32 for share in (2, 3, 4))]
    n_points = min(8, len(table))
    for axes, pair in zip(figure.subplots(1, len(pairs)), pairs, strict=True):
        points = _pairs(table[:n_points])[:, pair]
        circle = torch.linspace(0, 2 * torch.pi, 200)
        axes.plot(circle.cos().tolist(), circle.sin().tolist(), color="0.88", linewidth=1, zorder=0)
        axes.plot(points.real.tolist(), points.imag.tolist(), color="#93c5fd", linewidth=1, zorder=1)
        axes.scatter(
            points.real.tolist(), points.imag.tolist(), c=range(n_points), cmap="Blues_r", vmax=n_points + 2, s=22
        )
        axes.set_title(f"dimensions {2 * pair}, {2 * pair + 1}", fontsize=8.5, color=TEXT_COLOR)
        axes.set_aspect("equal")
        axes.axis("off")
    title = f"From p to p+1 each pair rotates by its own angle; p = 0 (dark) to {n_points - 1}"
    figure.suptitle(title, x=0.02, ha="left", fontsize=10, color=TEXT_COLOR)
