"""A picture of the heads of a model: what each one does, and how much is lost without it."""

from pathlib import Path
from typing import TYPE_CHECKING

from multihead.figures import TEXT_COLOR, new_figure, save_figure
from multihead.inspection.head_roles import SIDES

if TYPE_CHECKING:
    from multihead.paper.heads import HeadMeasure, HeadReport

TITLES = {"encoder": "Encoder", "decoder": "Decoder", "cross": "Encoder-decoder"}


def write_heads_picture(report: "HeadReport", path: Path) -> None:
    """Write a PNG with a cell for each head: its role, and as its color the log-probability that is lost without it."""
    by_side = {side: [one for one in report.heads if one.role.side == side] for side in SIDES}
    by_side = {side: heads for side, heads in by_side.items() if heads}
    n_columns = {side: 1 + max(one.role.head for one in heads) for side, heads in by_side.items()}
    n_rows = 1 + max(one.role.layer for one in report.heads)
    largest = max(1e-6, *(one.log_prob_drop for one in report.heads))
    figure = new_figure(1.6 + 0.95 * sum(n_columns.values()), 1.5 + 0.6 * n_rows)
    grid = figure.subplots(1, len(by_side), squeeze=False, width_ratios=list(n_columns.values()))[0]
    for axes, (side, heads) in zip(grid, by_side.items(), strict=True):
        layers = 1 + max(one.role.layer for one in heads)
        values = [[0.0] * n_columns[side] for _ in range(layers)]
        for one in heads:
            values[one.role.layer][one.role.head] = max(0.0, one.log_prob_drop)
            axes.text(one.role.head, one.role.layer, _label(one), ha="center", va="center", fontsize=7)
        image = axes.imshow(values, cmap="Blues", vmin=0, vmax=1.4 * largest, aspect="auto")
        axes.set_title(TITLES[side], loc="left", fontsize=10, color=TEXT_COLOR)
        axes.set_xticks(range(n_columns[side]), [f"head {n + 1}" for n in range(n_columns[side])])
        axes.set_yticks(range(layers), [f"layer {n + 1}" for n in range(layers)])
        axes.tick_params(length=0, labelsize=7)
        axes.spines[:].set(color="0.8", linewidth=0.5)
    bar = figure.colorbar(image, ax=list(grid), shrink=0.9)
    bar.set_label("nats a token lost without it", fontsize=8, color=TEXT_COLOR)
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=7)
    title = (
        f"{report.model}, {report.sentences:,} sentences: the largest share of each head, and what is lost without it"
    )
    figure.suptitle(title, x=0.01, ha="left", fontsize=9, color=TEXT_COLOR, parse_math=False)
    save_figure(figure, path)


def _label(one: "HeadMeasure") -> str:
    return f"{one.role.role}\n{one.role.shares[one.role.role]:.0%}"
