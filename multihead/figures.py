"""One look for every picture that the package draws, written atomically and without global state of matplotlib."""

from pathlib import Path
from typing import TYPE_CHECKING

from multihead.errors import require
from multihead.storage.files import atomic_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PALETTE = ("#2563eb", "#d97706", "#059669", "#7c3aed", "#dc2626", "#0891b2", "#64748b", "#be185d")
MUTED_COLOR = "#9aa5b1"  # of a curve in the background
TEXT_COLOR = "0.25"


def new_figure(width: float, height: float) -> "Figure":
    """Return an empty figure of this size in inches."""
    figure: Figure = require("matplotlib.figure", extra="train", purpose="a picture").Figure(
        figsize=(width, height), layout="constrained", facecolor="white"
    )
    return figure


def style_axes(axes: "Axes", *, title: str = "", xlabel: str = "", ylabel: str = "", grid: bool = True) -> None:
    """Set title and labels, and draw a light grid and no frame above and to the right."""
    axes.set_title(title, loc="left", fontsize=10, color=TEXT_COLOR)
    axes.set_xlabel(xlabel, color=TEXT_COLOR)
    axes.set_ylabel(ylabel, color=TEXT_COLOR)
    axes.tick_params(length=0, labelsize=8.5, labelcolor=TEXT_COLOR)
    axes.spines[:].set(color="0.7", linewidth=0.6)
    if grid:
        axes.grid(alpha=0.2)
        axes.spines[["top", "right"]].set_visible(False)


def add_legend(axes: "Axes") -> None:
    """Name the curves that have a label, without a frame."""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=9, labelcolor=TEXT_COLOR)


def save_figure(figure: "Figure", path: Path, dpi: int = 200) -> None:
    """Write a PNG, whatever the path ends in; a reader sees the old picture or the new one, never half of it."""
    with atomic_file(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format="png")
