"""A picture of cross-attention, for a paper or a slide."""

import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from multihead.figures import TEXT_COLOR, new_figure, save_figure
from multihead.inspection.attention_maps import Array, AttentionMaps

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import SubFigure
    from matplotlib.image import AxesImage


def write_picture(maps: AttentionMaps, path: Path, *, source: str, translation: str, model_name: str) -> None:
    """Write a PNG of the layer that aligns best, with labels, beside small maps of every head."""
    n_layers, n_heads, n_target, n_source = maps.cross.shape
    cell = 0.27  # inches of one token
    large = max(3.2, cell * n_source), max(3.2, cell * n_target)
    small = min(1.2, max(0.6, large[1] / n_layers))
    figure = new_figure(large[0] + 1.3 + small * n_heads, large[1] + 2.2)
    figure.suptitle(f"{source}\n{translation}", x=0.01, ha="left", fontsize=11, parse_math=False)
    left, right = figure.subfigures(1, 2, squeeze=False, width_ratios=[large[0] + 1.3, small * n_heads])[0]
    _draw_labeled(left, maps)
    _draw_every_head(right, maps.cross)
    figure.supxlabel(model_name, x=0.99, ha="right", fontsize=7, color="0.5", parse_math=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # characters missing from the fonts are drawn as boxes
        save_figure(figure, path)


def _draw_labeled(figure: "SubFigure", maps: AttentionMaps) -> None:
    layer = maps.alignment_layer
    written = [*maps.target_tokens[1:], maps.source_tokens[-1]]  # a row is the query that predicts this token
    axes: Axes = figure.subplots()
    image = _draw_map(axes, maps.cross[layer].mean(axis=0))
    axes.set_title(f"Cross-attention, layer {layer + 1}, mean of its heads", loc="left", fontsize=9, color=TEXT_COLOR)
    axes.xaxis.tick_top()
    axes.set_xticks(range(len(maps.source_tokens)), _labels(maps.source_tokens), parse_math=False)
    axes.set_yticks(range(len(written)), _labels(written), parse_math=False)
    axes.tick_params(length=0, labelsize=9)
    for label in axes.get_xticklabels():
        label.set(rotation=55, rotation_mode="anchor", horizontalalignment="left")
    bar = figure.colorbar(image, ax=axes, location="bottom", shrink=0.5, aspect=40, ticks=[0, 0.25, 0.5, 0.75, 1])
    bar.outline.set_visible(False)
    bar.ax.tick_params(length=0, labelsize=7)
    bar.set_label("Weight. Rows: tokens written. Columns: tokens of the source.", fontsize=7, color=TEXT_COLOR)


def _labels(tokens: list[str]) -> list[str]:
    return [token.strip() or "␣" for token in tokens]


def _draw_every_head(figure: "SubFigure", cross: Array) -> None:
    n_layers, n_heads = cross.shape[:2]
    grid = figure.subplots(n_layers, n_heads, squeeze=False)
    for layer, row in enumerate(grid):
        for head, axes in enumerate(row):
            _draw_map(axes, cross[layer, head])
            axes.set_xticks([])
            axes.set_yticks([])
            if layer == 0:
                axes.set_title(f"head {head + 1}", fontsize=7, color=TEXT_COLOR)
            if head == 0:
                axes.set_ylabel(f"layer {layer + 1}", fontsize=7, color=TEXT_COLOR)


def _draw_map(axes: "Axes", weights: Array) -> "AxesImage":
    axes.spines[:].set(color="0.8", linewidth=0.5)
    return axes.imshow(weights, cmap="Blues", vmin=0, vmax=1, aspect="auto", interpolation="nearest")
