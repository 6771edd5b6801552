"""TODO."""

import json
import math
from pathlib import Path
from typing import Any, Self

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn
from rich.text import Text

from multihead.console import duration, log_to
from multihead.figures import MUTED_COLOR, PALETTE, add_legend, new_figure, save_figure, style_axes
from multihead.storage.files import write_text_atomic
from multihead.training.metrics import Metrics

LOG_FILE = "log.jsonl"
CURVES_FILE = "training.png"

# How a figure is written for people; what is not named here is for files only.
_SHOWN = {
    "loss": "loss {:.3f}",
    "perplexity": "perplexity {:.2f}",
    "learning_rate": "rate {:.2e}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "valid_loss": "validation loss {:.3f}",
    "valid_perplexity": "perplexity {:.2f}",
    "valid_bleu": "BLEU {:.1f}",
}


class TrainingLog:
    """Records figures by step; a context that shows progress while it is open."""

    def __init__(self, folder: Path, console: Console, after_step: int = 0) -> None:
        from torch.utils.tensorboard.writer import SummaryWriter

        self._folder = folder
        self._console = console
        self._talk = log_to(console)
        self._forget_after(after_step)
        self._events = SummaryWriter(str(folder / "tensorboard"), purge_step=after_step + 1)
        self._progress = Progress(
            TextColumn("{task.fields[step]}"),
            BarColumn(),
            TextColumn("{task.fields[figures]}"),
            _TimeLeft(),
            console=console,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task("", total=1.0, step="", figures="", left=None)

    def _forget_after(self, step: int) -> None:
        """Drop what was logged after the checkpoint that the run goes on from; it is about to be logged again."""
        records = [record for record in read_log(self._folder) if record["step"] <= step]
        write_text_atomic(self._folder / LOG_FILE, "".join(json.dumps(record) + "\n" for record in records))

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._progress.stop()
        self._events.close()

    def say(self, line: str) -> None:
        """One line for people."""
        self._talk(line)

    def record(self, step: int, figures: Metrics, seconds_left: float | None = None) -> None:
        """Write figures to the files, and in words to the terminal."""
        with (self._folder / LOG_FILE).open("a", encoding="utf-8") as file:
            # JSON has no word for what is infinite or undefined.
            finite = {name: value if math.isfinite(value) else None for name, value in figures.items()}
            file.write(json.dumps({"step": step, **finite}) + "\n")
        for name, value in figures.items():
            self._events.add_scalar(name, value, step)
        words = " · ".join(form.format(figures[name]) for name, form in _SHOWN.items() if name in figures)
        if self._console.is_terminal and "loss" in figures:
            self._progress.update(self._task, figures=words, left=seconds_left)
        else:
            left = "" if seconds_left is None else f" · {duration(seconds_left)} left"
            self.say(f"step {step:,} · {words}{left}")

    def progress(self, step: int, share: float) -> None:
        """Move the bar: `share` of the run is done."""
        self._progress.update(self._task, completed=min(share, 1.0), step=f"step {step:,}")

    def draw(self) -> None:
        """Write the picture of the curves so far."""
        draw_curves(read_log(self._folder), self._folder / CURVES_FILE)


class NullLog:
    """The journal of every process but the first: nothing is said twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def say(self, line: str) -> None:
        pass

    def record(self, step: int, figures: Metrics, seconds_left: float | None = None) -> None:
        pass

    def progress(self, step: int, share: float) -> None:
        pass

    def draw(self) -> None:
        pass


class _TimeLeft(ProgressColumn):
    def render(self, task: Task) -> Text:
        left = task.fields["left"]
        return Text("" if left is None else f"{duration(left)} left")


def read_log(folder: Path) -> list[dict[str, Any]]:
    """The records of log.jsonl; a last line that a crash cut off is left out."""
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
    """Loss of training and validation, and BLEU, over steps."""
    figure = new_figure(10, 4)
    losses, scores = figure.subplots(1, 2)
    for axes, name, label, color in (
        (losses, "loss", "training (label-smoothed)", MUTED_COLOR),
        (losses, "valid_loss", "validation", PALETTE[0]),
        (scores, "valid_bleu", "validation, greedy", PALETTE[2]),
    ):
        shown = [record for record in records if record.get(name) is not None and "published" not in record]
        points = [(record["step"], record[name]) for record in shown]
        if points:
            axes.plot(*zip(*points, strict=True), label=label, color=color, linewidth=1.8, marker=".")
    for axes, title in ((losses, "Loss, nats per token"), (scores, "BLEU")):
        style_axes(axes, title=title, xlabel="step")
        add_legend(axes)
    save_figure(figure, path)
