"""§3.5 as numbers and as a picture: the sinusoids, and why a model may learn to attend by relative position.

Two things follow from PE(pos) being pairs of a sine and a cosine. The dot product of two positions depends on their
distance alone. And PE(pos + k) is a linear function of PE(pos): each pair is turned by an angle that depends on k.

Shapes: N positions, D d_model, P pairs, half of D.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from multihead.config import ConfigError
from multihead.files import replacing
from multihead.model import sinusoids
from multihead.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure

DISTANCES = [0, 1, 2, 4, 8, 16, 32, 64, 128, 256]


def check_sizes(length: int, d_model: int) -> None:
    if d_model < 2 or d_model % 2:
        raise ConfigError(f"--d-model must be even, so that every sine has its cosine; got {d_model}")
    if length < 8:
        raise ConfigError(f"--length must be at least 8 positions, got {length}")


def similarity(table: Tensor, start: int) -> Tensor:
    """The dot product of one position with every position, as a share of that with itself, which is D / 2."""
    return table.double() @ table[start].double() / (table.size(1) / 2)  # N


def by_distance(table: Tensor, distance: int) -> tuple[float, float]:
    """The similarity of positions so far apart: its mean, and how far any pair of positions is from that mean."""
    before, after = table[: len(table) - distance].double(), table[distance:].double()
    found = (before * after).sum(dim=1) / (table.size(1) / 2)  # N
    return found.mean().item(), (found - found.mean()).abs().max().item()


def fit_turns(table: Tensor, distance: int) -> Tensor:
    """The complex numbers (P) that PE(pos), taken as complex numbers, is best multiplied by to give PE(pos + distance).

    Least squares over these positions. To multiply by such a number is to turn a pair, and to stretch it.
    """
    before, after = (_pairs(part) for part in (table[: len(table) - distance], table[distance:]))  # N P
    return (before.conj() * after).sum(dim=0) / before.abs().square().sum(dim=0)  # P


def _pairs(table: Tensor) -> Tensor:
    """Cosines as real and sines as imaginary parts: N P."""
    sine, cosine = table.double().unflatten(1, (-1, 2)).unbind(dim=-1)
    return torch.complex(cosine, sine)


def fit_error(table: Tensor, distance: int) -> tuple[float, float]:
    """How wrong turns are that were fitted on the first half of the positions.

    The largest error in any coordinate of PE(pos + distance) in the second half, and the largest difference from the
    rotation by distance / 10000^(2i/D) that theory has.
    """
    half = len(table) // 2
    turns = fit_turns(table[:half], distance)  # P
    before, after = _pairs(table[half : len(table) - distance]), _pairs(table[half + distance :])
    error = torch.view_as_real(before * turns - after).abs().max().item()
    pair = torch.arange(0, table.size(1), 2, dtype=torch.float64)
    expected = torch.polar(torch.ones(len(pair), dtype=torch.float64), distance * 10_000.0 ** (-pair / table.size(1)))
    return error, (turns - expected).abs().max().item()


def facts(length: int, d_model: int) -> list[dict[str, Any]]:
    """By distance: similarity, its spread over positions, and the errors of the fitted turns."""
    check_sizes(length, d_model)
    table = sinusoids(length, d_model)
    records = []
    for distance in (distance for distance in DISTANCES if distance <= length // 4):
        mean, spread = by_distance(table, distance)
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


def table_for_people(records: Sequence[dict[str, Any]], length: int, d_model: int) -> Table:
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
            "The product, as a share of PE(p)·PE(p), is the same for every p: it depends on the distance alone.",
            "PE(p+k) is a linear function of PE(p): a map fitted on the first half of the positions gives the second "
            "half, and it is the rotation of each pair by k / 10000^(2i/d_model).",
        ],
    )


def write_picture(path: Path, length: int, d_model: int) -> None:
    """Write a PNG: the table of sinusoids as a heat map, and the similarity of positions by their distance."""
    from matplotlib.figure import Figure

    check_sizes(length, d_model)
    table = sinusoids(length, d_model)
    figure = Figure(figsize=(12, 5), layout="constrained", facecolor="white")
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[1.25, 1])[0]
    _draw_heat_map(left, table)
    _draw_similarity(right, table)
    with replacing(path) as aside:
        figure.savefig(aside, dpi=200, format="png")


def _draw_heat_map(figure: "SubFigure", table: Tensor) -> None:
    axes: Axes = figure.subplots()
    image = axes.imshow(table.numpy(), cmap="RdBu_r", vmin=-1, vmax=1, aspect="auto", interpolation="nearest")
    _title(axes, "Each position is a row: sines in the even dimensions, cosines in the odd")
    axes.set_xlabel("dimension")
    axes.set_ylabel("position")
    bar = figure.colorbar(image, ax=axes, location="right", shrink=0.6, aspect=30, ticks=[-1, 0, 1])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=8)


def _draw_similarity(figure: "SubFigure", table: Tensor) -> None:
    """Curves of several positions lie upon each other, whichever position one looks from."""
    axes: Axes = figure.subplots()
    length = len(table)
    starts = [0, length // 4, length // 2, 3 * length // 4]
    for start, colour, width in zip(
        starts, ("#bfdbfe", "#60a5fa", "#2563eb", "#1e3a8a"), (9, 6, 3.5, 1.2), strict=True
    ):
        distances = torch.arange(length) - start
        axes.plot(
            distances.tolist(),
            similarity(table, start).tolist(),
            color=colour,
            linewidth=width,
            label=f"from position {start}",
        )
    _title(axes, "PE(p)·PE(p+k) depends on the distance k alone")
    axes.set_xlabel("distance k")
    axes.set_ylabel("share of PE(p)·PE(p)")
    axes.grid(alpha=0.2)
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, fontsize=8.5)


def _title(axes: "Axes", text: str) -> None:
    axes.set_title(text, loc="left", fontsize=10, color="0.25")
    axes.tick_params(length=0, labelsize=8.5, labelcolor="0.25")
