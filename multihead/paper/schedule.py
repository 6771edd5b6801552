"""The learning rate of §5.3, eq. (3), as numbers and as a picture, for pairs of d_model and warm-up and for presets."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from multihead.config.presets import preset
from multihead.config.resolve import configure
from multihead.config.schema import TrainConfig
from multihead.console import Table
from multihead.errors import UsageError
from multihead.figures import PALETTE, add_legend, new_figure, save_figure, style_axes
from multihead.training.schedule import learning_rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes


PAIRS = ["512:4000", "512:8000", "256:4000", "1024:4000"]  # base; a longer warm-up; narrower; as wide as big
STEPS = [1, 100, 1000, 4000, 10_000, 30_000, 100_000]  # at which the rate is printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The learning rate of a training run by step."""

    name: str
    d_model: int
    train: TrainConfig

    def rate(self, step: int) -> float | None:
        """Return the rate of a step; None after the last step of a linear schedule."""
        if self.train.lr_decay == "linear" and step > self.train.steps:
            return None
        return learning_rate(step, self.d_model, self.train, progress=step / self.train.steps)

    @property
    def peak_step(self) -> int:
        """The step with the highest rate: the end of the warm-up, or just before it with a linear decay."""
        warmup, steps = self.train.warmup, self.train.steps
        return warmup if self.train.lr_decay == "sqrt" else max(1, round(warmup / (1 + warmup / steps)))

    def to_dict(self, steps: Sequence[int]) -> dict[str, Any]:
        return {
            "name": self.name,
            "d_model": self.d_model,
            "warmup": self.train.warmup,
            "lr_scale": self.train.lr_scale,
            "decay": self.train.lr_decay,
            "peak": self.rate(self.peak_step),
            "rates": {str(step): self.rate(step) for step in steps},
        }


def curve_of_pair(pair: str) -> Curve:
    """Parse `512:4000`: d_model 512 and a warm-up of 4,000 steps."""
    d_model, _, warmup = pair.partition(":")
    if not (d_model.isdecimal() and warmup.isdecimal() and int(d_model) and int(warmup)):
        raise UsageError(f"--pair takes d_model:warmup, for example 512:4000; got '{pair}'")
    name = f"d_model {int(d_model)}, warm-up {int(warmup):,}"
    return Curve(name=name, d_model=int(d_model), train=TrainConfig(warmup=int(warmup)))


def curve_of_preset(name: str) -> Curve:
    """Return the curve of a preset, with its scale, decay and number of steps."""
    run = configure(preset(name))
    return Curve(name=f"preset {name}", d_model=run.model.d_model, train=run.train)


def to_table(curves: Sequence[Curve]) -> Table:
    return Table(
        title="Learning rate of eq. (3): d_model^-0.5 · min(step^-0.5, step · warmup^-1.5)",
        header=["", "peak", "at step", *(f"{step:,}" for step in STEPS)],
        rows=[
            [
                curve.name,
                _rate(curve.rate(curve.peak_step)),
                f"{curve.peak_step:,}",
                *(_rate(curve.rate(step)) for step in STEPS),
            ]
            for curve in curves
        ],
        notes=["Columns are steps. A rate that goes straight down to zero has none after its last step."],
    )


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:.2e}"


def write_picture(curves: Sequence[Curve], path: Path, n_steps: int) -> None:
    """Write a PNG of the curves on linear and on logarithmic axes; on the latter eq. (3) is two straight lines."""
    figure = new_figure(12, 4.6)
    linear, powers = figure.subplots(1, 2)
    for curve, color in zip(curves, cycle(PALETTE), strict=False):
        _draw_curve(linear, curve, color, np.linspace(1, n_steps, 1000))
        _draw_curve(powers, curve, color, np.geomspace(10, 5 * n_steps, 500))
    style_axes(linear, title="Learning rate by step", xlabel="step", ylabel="learning rate, thousandths")
    log_title = "The same on logarithmic axes, where eq. (3) is two straight lines"
    style_axes(powers, title=log_title, xlabel="step", ylabel="learning rate")
    linear.set(xlim=(0, n_steps), ylim=(0, None))
    linear.yaxis.set_major_formatter(lambda rate, _: f"{1000 * rate:g}")
    add_legend(linear)
    powers.set(xscale="log", yscale="log", xlim=(10, 5 * n_steps))
    for axis in (linear.xaxis, powers.xaxis):
        axis.set_major_formatter(lambda step, _: f"{step:,.0f}")
    powers.minorticks_off()
    save_figure(figure, path)


def _draw_curve(axes: "Axes", curve: Curve, color: str, steps: NDArray[np.float64]) -> None:
    """Draw a curve with a point at its peak; zeros are left out, since logarithmic axes have none."""
    sampled = sorted({*steps.astype(int).tolist(), curve.peak_step})
    points = [(step, rate) for step in sampled if step <= steps[-1] and (rate := curve.rate(step))]
    style = "-" if curve.train.lr_decay == "sqrt" else "--"
    axes.plot(*zip(*points, strict=True), style, color=color, linewidth=2, label=curve.name)
    axes.plot(*max(points, key=lambda point: point[1]), "o", color=color, markersize=5)
