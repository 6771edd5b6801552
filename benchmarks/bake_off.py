"""Train every variant and preset on the same text for the same processor time with several seeds, and rank them.

python -m benchmarks.bake_off DATA OUTPUT --minutes 3 --seeds 3 [--trees DATA] [--picture docs/bake-off.png]

DATA is a corpus made by `multihead prepare`; --trees is the same text prepared with `--set data.tree=true`, for tree
positions. Time is processor time, so that two variants can be trained at once and other load on the machine does not
matter. Each finished run is a file in OUTPUT, and is not repeated. All variants run with the first seed before the
second one begins; --table prints what there is so far.
"""

import argparse
import json
import re
import statistics
import sys
import time
import traceback
from collections import defaultdict
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch

from multihead.config.presets import preset
from multihead.config.resolve import configure
from multihead.config.schema import SearchConfig, Settings
from multihead.data.shards import Shards, read_summary
from multihead.evaluation.by_length import bleu_by_length
from multihead.evaluation.metrics import bleu
from multihead.figures import MUTED_COLOR, PALETTE, new_figure, save_figure
from multihead.hardware.memory import keep_freed_memory
from multihead.model.weights import count_parameters
from multihead.storage.files import write_text_atomic
from multihead.text.dependency_trees import strip_tree
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.metrics import perplexity
from multihead.training.trainer import Trainer
from multihead.training.validation import Validator

# One recipe for all: the shape of `tiny`, Adam, a learning rate that suits all of them, and no dropout in a few epochs.
RECIPE: Settings = {
    **preset("tiny"),
    "model.dropout": 0.0,
    "train.optimizer": "adam",
    "train.lr_scale": 0.4,
    "model.window": 8,
    "model.projected_length": 16,
    "model.global_tokens": 1,
}
N_SENTENCES = 500  # of the validation text, translated with beam 4
N_GROUPS = 4  # of lengths
PAPER = "self-attention, as in the paper"


def both(mixer: str) -> Settings:
    return {"model.encoder_mixer": mixer, "model.decoder_mixer": mixer}


ENTRIES: dict[str, Settings] = {
    "self-attention, as in the paper": {},
    "score: dot product without the root": {"model.attention_score": "dot"},
    "score: additive": {"model.attention_score": "additive"},
    "score: general (Luong)": {"model.attention_score": "general"},
    "score: concat (Luong)": {"model.attention_score": "concat"},
    "score: location (cross)": {"model.attention_score": "location"},
    "score: local-p, D = 4 (cross)": {"model.attention_score": "local-p"},
    "no attention to the source: last vector": {"model.cross": "last"},
    "no attention to the source: mean": {"model.cross": "mean"},
    "positions: learned": {"model.positions": "learned"},
    "positions: relative": {"model.positions": "relative"},
    "positions: none": {"model.positions": "none"},
    "positions: dependency tree": {"model.positions": "tree", "data.tree": True},
    "local attention, r = 8": both("local"),
    "Linformer, p = 16 (encoder)": {"model.encoder_mixer": "linformer"},
    "BigBird, r = 8 (encoder)": {"model.encoder_mixer": "bigbird"},
    "LSTM": both("lstm"),
    "GRU": both("gru"),
    "convolution, k = 3": both("convolution"),
    "convolution, dilated": both("dilated"),
    "convolution, separable": both("separable"),
    "convolution, gated": both("gated"),
    "as rnn-attention": {
        **both("lstm"),
        "model.attention_score": "additive",
        "model.positions": "none",
        "model.n_heads": 1,
        "model.d_k": 128,
        "model.d_v": 128,
        "model.encoder_layers": 2,
        "model.decoder_layers": 2,
    },
    "as rnn (no attention)": {
        **both("lstm"),
        "model.cross": "last",
        "model.positions": "none",
        "model.encoder_layers": 2,
        "model.decoder_layers": 2,
    },
    "as convs2s": {
        **both("gated"),
        "model.cross": "convs2s",
        "model.attention_score": "dot",
        "model.positions": "learned",
        "model.n_heads": 1,
        "model.d_k": 128,
        "model.d_v": 128,
    },
    "as neural-gpu": {
        "model.system": "neural-gpu",
        "model.positions": "none",
        "model.d_model": 64,
        "model.image_width": 1,
        "model.encoder_layers": 2,
        "model.decoder_layers": 2,
    },
    "as memory-network (a bag of words here)": {"model.system": "memory-network", "model.encoder_layers": 3},
    "as bytenet": {
        **both("dilated"),
        "model.positions": "none",
        "model.n_heads": 1,
        "model.d_k": 128,
        "model.d_v": 128,
        "model.encoder_layers": 5,
        "model.decoder_layers": 5,
    },
}


@dataclass(frozen=True, slots=True)
class Run:
    """One training run of the comparison."""

    label: str
    seed: int
    data: Path
    output: Path
    minutes: float

    @property
    def path(self) -> Path:
        return self.output / f"{re.sub('[^a-z0-9]+', '-', self.label.lower()).strip('-')}.{self.seed}.json"

    @property
    def settings(self) -> Settings:
        own = {"train.minutes": self.minutes, "train.steps": 1_000_000, "train.seed": self.seed}
        return {**RECIPE, **ENTRIES[self.label], **own}

    def result(self) -> dict[str, Any] | None:
        """Return the stored result, if there is one; refuse one of other settings."""
        if not self.path.exists():
            return None
        stored: dict[str, Any] = json.loads(self.path.read_text(encoding="utf-8"))
        if stored["settings"] != dict(self.settings):
            sys.exit(f"{self.path} has other settings; delete it or write to another folder")
        return stored


def train_one(run: Run) -> None:
    """Train a variant and store its result, unless that has been done; a failure is printed, and the others go on."""
    if run.result() is not None:
        return
    try:
        write_text_atomic(run.path, json.dumps(measure(run), indent=2) + "\n")
        print(f"{run.path.name}: done", file=sys.stderr, flush=True)
    except Exception:
        print(f"{run.path.name}: failed\n{traceback.format_exc()}", file=sys.stderr, flush=True)


def measure(run: Run) -> dict[str, Any]:
    """Train a variant with one seed, and return what is known of it afterwards."""
    torch.set_num_threads(1)
    keep_freed_memory()
    summary, tokenizer = read_summary(run.data), SubwordTokenizer.load(run.data / "tokenizer.json")
    trainer = Trainer(configure({"model.vocab_size": summary.vocab_size}, run.settings), run.data, tokenizer)
    began = time.process_time()
    while trainer.state.seconds < 60 * trainer.config.train.minutes:
        trainer.step()
        trainer.state.seconds = time.process_time() - began
    validator = Validator(trainer.full_model, tokenizer, Shards(run.data, "valid"), trainer.config.data)
    pairs = validator.translate(N_SENTENCES, SearchConfig())
    sources = [strip_tree(pair.source) for pair in pairs]
    translations, references = [pair.translation for pair in pairs], [pair.reference for pair in pairs]
    groups = bleu_by_length(sources, translations, references, summary.target_lang, n_groups=N_GROUPS)
    return {
        "label": run.label,
        "seed": run.seed,
        "settings": dict(run.settings),
        "parameters": count_parameters(trainer.full_model),
        "steps": trainer.state.step,
        "tokens_per_second": trainer.state.tokens_seen / trainer.state.seconds,
        "perplexity": perplexity(validator.loss()),
        "bleu": bleu(translations, references, summary.target_lang),
        "bleu_by_length": [asdict(group) for group in groups],
    }


@dataclass(frozen=True, slots=True)
class Row:
    """A variant in the table: means over its seeds."""

    label: str
    results: list[dict[str, Any]]

    def mean(self, name: str) -> float:
        return statistics.fmean(one[name] for one in self.results)

    @property
    def spread(self) -> float:
        """The standard deviation of BLEU between seeds."""
        return statistics.stdev(one["bleu"] for one in self.results) if len(self.results) > 1 else 0.0

    @property
    def by_length(self) -> list[float]:
        groups = zip(*(one["bleu_by_length"] for one in self.results), strict=True)
        return [statistics.fmean(one["bleu"] for one in group) for group in groups]


def rank(runs: list[Run]) -> list[Row]:
    """Return the variants that have results, the best first."""
    results = defaultdict(list)
    for run in runs:
        if (result := run.result()) is not None:
            results[run.label].append(result)
    return sorted((Row(label, found) for label, found in results.items()), key=lambda row: -row.mean("bleu"))


def print_table(rows: list[Row]) -> None:
    """Print a table in Markdown; the last columns are BLEU by the length of the source in words."""
    groups = rows[0].results[0]["bleu_by_length"]
    lengths = [f"{group['shortest']}-{group['longest']} words" for group in groups]
    header = ["variant", "parameters", "steps", "tokens/s", "perplexity", "BLEU", "seeds", *lengths]
    print(f"| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        cells = [
            row.label,
            f"{row.mean('parameters') / 1e6:.2f} M",
            f"{row.mean('steps'):,.0f}",
            f"{row.mean('tokens_per_second'):,.0f}",
            f"{row.mean('perplexity'):.2f}",
            f"{row.mean('bleu'):.1f} ± {row.spread:.1f}",
            f"{len(row.results)}",
            *(f"{score:.1f}" for score in row.by_length),
        ]
        print(f"| {' | '.join(cells)} |")


def draw(rows: list[Row], path: Path, minutes: float) -> None:
    """Write a PNG: mean BLEU as a bar, and each seed as a dot."""
    figure = new_figure(9, 0.32 * len(rows) + 1)
    axes = figure.subplots()
    rising = rows[::-1]
    colors = [PALETTE[0] if row.label == PAPER else MUTED_COLOR for row in rising]
    axes.barh([row.label for row in rising], [row.mean("bleu") for row in rising], color=colors, height=0.7)
    for place, row in enumerate(rising):
        scores = [one["bleu"] for one in row.results]
        axes.plot(scores, [place] * len(scores), linestyle="", marker="o", markersize=3, color="0.2")
        note = f"{row.mean('bleu'):.1f} ± {row.spread:.1f}   (perplexity {row.mean('perplexity'):.1f})"
        axes.annotate(note, (max(scores), place), (6, 0), textcoords="offset points", va="center", fontsize=8)
    axes.set_xlim(0, 1.45 * max(row.mean("bleu") for row in rows))
    axes.set_title(f"BLEU on validation text after {minutes:g} minutes of one core", loc="left")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_xticks([])
    save_figure(figure, path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--trees", type=Path, help="the same text with dependency trees, for tree positions")
    parser.add_argument("--only", help="train only variants whose name contains this")
    parser.add_argument("--table", action="store_true", help="print the results so far and train nothing")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    one_run = partial(Run, output=options.output, minutes=options.minutes)
    runs = [
        one_run(label, seed, data)
        for seed in range(1, options.seeds + 1)
        for label, settings in ENTRIES.items()
        if (data := options.trees if settings.get("data.tree") else options.data)
        if not options.only or options.only in label
    ]
    if not options.table:
        with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
            list(pool.map(train_one, runs))
    if rows := rank(runs):
        print_table(rows)
        if options.picture:
            draw(rows, options.picture, options.minutes)


if __name__ == "__main__":
    main()
