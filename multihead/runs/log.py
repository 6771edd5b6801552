"""The log of a run: log.jsonl, TensorBoard events, progress on the terminal, and a figure of the curves."""

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from multihead.console import duration, log_to
from multihead.figures import MUTED_COLOR, PALETTE, add_legend, new_figure, save_figure, style_axes
from multihead.storage.files import write_text_atomic
from multihead.training.metrics import Metrics

if TYPE_CHECKING:
    from torch.utils.tensorboard.writer import SummaryWriter

LOG_FILE = "log.jsonl"
CURVES_FILE = "training.png"

# How metrics are shown, on lines of at most 80 columns; all others are written to files only.
_SHOWN = {
    "loss": "loss {:.3f}",
    "learning_rate": "rate {:.1e}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "valid_loss": "valid loss {:.3f}",
    "valid_perplexity": "perplexity {:.3g}",
    "valid_bleu": "greedy BLEU ({n_bleu_pairs}) {:.1f}",
    "published_bleu": "published BLEU {:.1f}",
}

OF_DIRECTION = "valid_bleu."  # begins the name of BLEU in one direction


class TrainingLog:
    """Writes metrics to log.jsonl and TensorBoard, and shows progress on the terminal while it is open as a context.

    A disabled log, which all ranks but rank 0 have, does nothing.
    """

    def __init__(self, folder: Path, console: Console, after_step: int = 0, enabled: bool = True) -> None:
        self._folder, self._console, self._enabled = folder, console, enabled
        self._progress = Progress(
            TextColumn("{task.fields[step]}"),
            BarColumn(bar_width=10),
            TextColumn("{task.fields[metrics]}"),
            _TimeLeft(),
            console=console,
            disable=not (enabled and console.is_terminal),
        )
        self._task = self._progress.add_task("", total=1.0, step="", metrics="", left=None)
        self._events = self._open_events(after_step) if enabled else None

    def _open_events(self, after_step: int) -> "SummaryWriter":
        from torch.utils.tensorboard.writer import SummaryWriter

        self._truncate_after(after_step)
        return SummaryWriter(str(self._folder / "tensorboard"), purge_step=after_step + 1)

    def _truncate_after(self, step: int) -> None:
        """Drop records after the checkpoint that the run resumes from; they are about to be logged again."""
        records = [record for record in read_log(self._folder) if record["step"] <= step]
        write_text_atomic(self._folder / LOG_FILE, "".join(json.dumps(record) + "\n" for record in records))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        if self._events:
            self._events.close()

    def say(self, line: str) -> None:
        """Print a line."""
        if self._enabled:
            log_to(self._console)(line)

    def record(self, step: int, metrics: Metrics, seconds_left: float | None = None) -> None:
        """Write metrics to the files, and show them."""
        if not self._events:
            return
        with (self._folder / LOG_FILE).open("a", encoding="utf-8") as file:
            # JSON has no infinite or undefined numbers.
            finite = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
            file.write(json.dumps({"step": step, **finite}) + "\n")
        for name, value in metrics.items():
            self._events.add_scalar(name, value, step)
        n_pairs = round(metrics.get("valid_bleu_pairs", 0))
        shown = " · ".join(
            template.format(metrics[name], n_bleu_pairs=n_pairs) for name, template in _SHOWN.items() if name in metrics
        )
        of_directions = [
            f"{name.removeprefix(OF_DIRECTION)} {value:.1f}"
            for name, value in metrics.items()
            if name.startswith(OF_DIRECTION)
        ]
        shown += f" ({', '.join(of_directions)})" if of_directions else ""
        if self._console.is_terminal and "loss" in metrics:
            self._progress.update(self._task, metrics=shown, left=seconds_left)
        else:
            left = "" if seconds_left is None else f" · {duration(seconds_left)} left"
            self.say(f"step {step:,} · {shown}{left}")

    def progress(self, step: int, share: float) -> None:
        """Show that this share of the run is done."""
        self._progress.update(self._task, completed=min(share, 1.0), step=f"step {step:,}")

    def draw(self) -> None:
        """Write the figure of the curves so far."""
        if self._enabled:
            draw_curves(read_log(self._folder), self._folder / CURVES_FILE)


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        left = task.fields["left"]
        return Text("" if left is None else f"{duration(left)} left")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """Return the records of log.jsonl without a last line that a crash cut off."""
    path = folder / LOG_FILE
    if not path.exists():
        return []
    records = []
    for line in path.read_text(encoding="utf-8").split("\n"):
        try:
            record = json.loads(line)
        except json.JSONDecodeError:
            continue
        if isinstance(record, dict) and "step" in record:
            records.append(record)
    return records


def draw_curves(records: list[dict[str, Any]], path: Path) -> None:
    """Draw training loss, validation loss and BLEU over steps."""
    figure = new_figure(10, 4)
    losses, scores = figure.subplots(1, 2)
    for axes, name, label, color in (
        (losses, "loss", "training (label-smoothed)", MUTED_COLOR),
        (losses, "valid_loss", "validation", PALETTE[0]),
        (scores, "valid_bleu", "validation, greedy search", PALETTE[2]),
    ):
        shown = [record for record in records if record.get(name) is not None and "published" not in record]
        points = [(record["step"], record[name]) for record in shown]
        if points:
            axes.plot(*zip(*points, strict=True), label=label, color=color, linewidth=1.8, marker=".")
    for axes, title in ((losses, "Loss, nats per token"), (scores, "BLEU")):
        style_axes(axes, title=title, xlabel="step")
        add_legend(axes)
    save_figure(figure, path)
