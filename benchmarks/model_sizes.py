"""Train models of several sizes on several texts for several times, and compare the best with what the rule picks.

    nice -n 19 env OMP_NUM_THREADS=1 python -m benchmarks.model_sizes OUTPUT DATA... --minutes 0.3 1 3 9
    python -m benchmarks.model_sizes OUTPUT DATA... --table --picture docs/model-size.png

Each DATA is a corpus made by `multihead prepare`, named after its folder. Time is processor time of one core, so that
other load on the machine does not matter. Each finished run is a file in OUTPUT, and is not repeated; the runs of the
shortest time come first. --table prints what there is so far and trains nothing. The picture shows what the rule picks
on two cores, and the runs if there are any.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from multihead.config.fit import dropout_for
from multihead.config.presets import preset
from multihead.config.resolve import configure
from multihead.config.schema import RunConfig, Settings
from multihead.console import Table
from multihead.data.shards import Shards, open_training_shards, read_summary
from multihead.figures import PALETTE, add_legend, new_figure, save_figure, style_axes
from multihead.hardware.flops import counted_flops
from multihead.hardware.memory import keep_freed_memory
from multihead.model.weights import count_parameters
from multihead.runs.sizing import CANDIDATES, THOROUGH, Speed, TimeBudget, choose_preset
from multihead.storage.files import write_text_atomic
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.trainer import Trainer
from multihead.training.validation import Validator

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# A smaller model than any preset shows where `tiny` begins to pay off; it has the recipe of `tiny`.
MINI: Settings = {**preset("tiny"), "model.d_model": 64, "model.d_ff": 128, "model.d_k": 16, "model.d_v": 16}
SHAPES: dict[str, Settings] = {
    "mini": MINI,
    "tiny": preset("tiny"),
    "small": preset("small"),
    "small, batches of 1,024": {**preset("small"), "data.batch_tokens": 1024, "train.warmup": 100},
}
N_LOSS, N_BLEU = 500, 200  # validation pairs
TIMED_STEPS = 3
PRESETS = ["tiny", THOROUGH, "small", "base"]
# Share of the peak of two cores in bfloat16, and that peak (docs/benchmarks.md), for the picture of the rule.
SHARE_OF_PEAK, PEAK = {"tiny": 0.38, THOROUGH: 0.45, "small": 0.45, "base": 0.73}, 415e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A finished run."""

    text: str
    shape: str
    minutes: float
    vocab_size: int
    text_tokens: int  # target tokens of the training text
    parameters: int
    steps: int
    tokens_seen: int
    dropout: float
    nats: float  # of a validation target, so that vocabularies can be compared
    bleu: float  # greedy, of the first validation pairs


@dataclass(frozen=True, slots=True)
class Run:
    """A run of the grid."""

    data: Path
    shape: str
    minutes: float
    output: Path

    @property
    def path(self) -> Path:
        return self.output / f"{self.data.name}.{self.shape.replace(', ', '-').replace(' ', '-')}.{self.minutes:g}.json"

    def result(self) -> Cell | None:
        return Cell(**json.loads(self.path.read_text(encoding="utf-8"))) if self.path.exists() else None

    def config(self, dropout: float) -> RunConfig:
        """Return the configuration; time ends the run."""
        own: Settings = {
            "model.vocab_size": read_summary(self.data).vocab_size,
            "model.dropout": dropout,
            "train.minutes": self.minutes,
            "train.steps": 0,
        }
        return configure(SHAPES[self.shape], own)


def measure(run: Run) -> Cell:
    """Train a model for its time on one core, and validate it."""
    torch.set_num_threads(1)
    keep_freed_memory()
    tokenizer, text_tokens = SubwordTokenizer.load(run.data / "tokenizer.json"), _text_tokens(run.data)
    epochs = 60 * run.minutes * _tokens_per_second(run, tokenizer) / text_tokens
    config = run.config(dropout_for(epochs, is_small=False))
    trainer = Trainer(config, run.data, tokenizer)
    began = time.process_time()
    while trainer.state.seconds < 60 * run.minutes:
        trainer.step()
        trainer.state.seconds = time.process_time() - began
    valid = Shards(run.data, "valid")
    validator = Validator(trainer.full_model, tokenizer, valid, config.data)
    n_pairs = min(N_LOSS, len(valid))
    target_lengths = [len(valid[pair][1]) + 1 for pair in range(n_pairs)]
    return Cell(
        text=run.data.name,
        shape=run.shape,
        minutes=run.minutes,
        vocab_size=config.model.vocab_size,
        text_tokens=text_tokens,
        parameters=count_parameters(trainer.full_model),
        steps=trainer.state.step,
        tokens_seen=trainer.state.tokens_seen,
        dropout=config.model.dropout,
        nats=validator.loss(n_pairs) * sum(target_lengths) / n_pairs,
        bleu=validator.bleu(N_BLEU),
    )


def _text_tokens(data: Path) -> int:
    return open_training_shards(data).target_tokens()


def _tokens_per_second(run: Run, tokenizer: SubwordTokenizer) -> float:
    """Return the speed of training in processor time."""
    trainer = Trainer(run.config(dropout=0.0), run.data, tokenizer)
    trainer.step()
    began, seen = time.process_time(), trainer.state.tokens_seen
    for _ in range(TIMED_STEPS):
        trainer.step()
    return (trainer.state.tokens_seen - seen) / (time.process_time() - began)


# What the rule picks


@cache
def shape_of(name: str, vocab_size: int) -> RunConfig:
    return configure(preset(name), {"model.vocab_size": vocab_size})


def picked(cells: Sequence[Cell]) -> str:
    """Return what the rule picks for a text and a time, given the speeds of the runs with this text and this time."""
    first, vocab_size = cells[0], cells[0].vocab_size
    speeds = {
        one.shape: Speed(
            tokens_per_second=one.tokens_seen / (60 * one.minutes), tokens_per_step=one.tokens_seen / one.steps
        )
        for one in cells
    }

    def speed_of(name: str) -> Speed:
        return speeds.get(name) or _speed_on_two_cores(name, vocab_size)

    budget = TimeBudget(target_tokens=first.text_tokens, seconds=60 * first.minutes)
    return choose_preset(budget, lambda name: shape_of(name, vocab_size), speed_of).preset


def _speed_on_two_cores(name: str, vocab_size: int) -> Speed:
    shape = shape_of(name, vocab_size)
    return Speed(
        tokens_per_second=PEAK * SHARE_OF_PEAK[name] / counted_flops(shape.model, 1),
        tokens_per_step=shape.data.batch_tokens,
    )


def table(runs: Sequence[Run]) -> Table:
    """Return a row for each text and time: nats of each shape, the best one, and what the rule picks."""
    rows = []
    shapes = list(dict.fromkeys(run.shape for run in runs))
    for text, minutes in dict.fromkeys((run.data.name, run.minutes) for run in runs):
        own = [run.result() for run in runs if (run.data.name, run.minutes) == (text, minutes)]
        cells = [cell for cell in own if cell]
        if not any(cell.shape == CANDIDATES[0] for cell in cells):
            continue
        nats = {cell.shape: f"{cell.nats:.1f} ({cell.bleu:.1f})" for cell in cells}
        best = min(cells, key=lambda cell: cell.nats).shape
        rows.append([text, f"{minutes:g}", *(nats.get(shape, "") for shape in shapes), best, picked(cells)])
    return Table(header=["text", "minutes", *(f"{shape}: nats (BLEU)" for shape in shapes), "best", "rule"], rows=rows)


def draw(cells: Sequence[Cell], path: Path) -> None:
    """Write a PNG: what the rule picks by text and time, and the loss of each shape over time."""
    texts = list(dict.fromkeys(cell.text for cell in cells))
    figure = new_figure(7 + 3.2 * len(texts), 3.6)
    rule, *others = np.atleast_1d(figure.subplots(1, 1 + len(texts), width_ratios=[2, *[1] * len(texts)]))
    _draw_rule(rule)
    for axes, text in zip(others, texts, strict=True):
        for number, shape in enumerate(SHAPES):
            own = sorted((cell.minutes, cell.nats) for cell in cells if (cell.text, cell.shape) == (text, shape))
            axes.plot(*zip(*own, strict=True), marker="o", color=PALETTE[number], label=shape) if own else None
        axes.set_xscale("log")
        minutes = sorted({cell.minutes for cell in cells if cell.text == text})
        axes.set_xticks(minutes, [f"{one:g}" for one in minutes])
        axes.minorticks_off()
        style_axes(axes, title=text, xlabel="minutes of one core", ylabel="nats per validation sentence")
        add_legend(axes)
    save_figure(figure, path, dpi=110)


def _draw_rule(axes: "Axes") -> None:
    minutes, tokens = np.geomspace(1, 20_000, 120), np.geomspace(1e5, 1e9, 100)
    speeds = {name: _speed_on_two_cores(name, 8000) for name in PRESETS}

    def choice(n_tokens: float, n_minutes: float) -> int:
        budget = TimeBudget(target_tokens=int(n_tokens), seconds=60 * n_minutes)
        return PRESETS.index(choose_preset(budget, lambda name: shape_of(name, 8000), speeds.__getitem__).preset)

    choices = np.array([[choice(n_tokens, n_minutes) for n_minutes in minutes] for n_tokens in tokens])
    for number, name in enumerate(PRESETS):
        axes.contourf(minutes, tokens, choices == number, levels=[0.5, 1.5], colors=[PALETTE[number]], alpha=0.5)
        axes.fill_between([], [], color=PALETTE[number], alpha=0.5, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    style_axes(axes, title="What the rule picks on two cores", xlabel="minutes", ylabel="target tokens of the text")
    for name, n_tokens in {"Multi30k": 4.6e5, "Tatoeba": 1.6e6, "Europarl, 500,000 pairs": 1.5e7}.items():
        axes.axhline(n_tokens, color="0.3", linewidth=0.6, linestyle=":")
        axes.annotate(name, (1.1, n_tokens), (0, 2), textcoords="offset points", fontsize=7.5, color="0.3")
    axes.legend(loc="upper left", fontsize=8, framealpha=0.9)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path)
    parser.add_argument("data", type=Path, nargs="+")
    parser.add_argument("--minutes", type=float, nargs="+", default=[0.3, 1.0, 3.0, 9.0])
    parser.add_argument("--shapes", nargs="+", default=["mini", "tiny", "small"], choices=list(SHAPES))
    parser.add_argument("--table", action="store_true", help="print the results so far and train nothing")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    cells = itertools.product(options.minutes, options.data, options.shapes)
    runs = [Run(data, shape, minutes, options.output) for minutes, data, shape in cells]
    for run in runs if not options.table else []:
        if run.result() is None:
            write_text_atomic(run.path, json.dumps(asdict(measure(run)), indent=2) + "\n")
            print(run.result(), file=sys.stderr, flush=True)
    print(table(runs).as_text())
    if options.picture:
        draw([cell for run in runs if (cell := run.result())], options.picture)


if __name__ == "__main__":
    main()
