"""Table 3: every row's parameters counted, and every row trained for the same time and ranked beside the paper's.

Records are for programs (`--json`), a `Table` is for people. The figures are those of arXiv 1706.03762v7.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from multihead.config.presets import PRESETS, preset
from multihead.config.resolve import configure
from multihead.config.schema import ModelConfig, Settings
from multihead.console import Log, Table
from multihead.data.shards import read_summary
from multihead.errors import UsageError, UserError
from multihead.model.transformer import Transformer
from multihead.model.weights import count_parameters
from multihead.runs.request import TrainingRequest
from multihead.runs.setup import would_resume
from multihead.runs.train import train
from multihead.storage.checkpoints import saved_steps
from multihead.storage.model_folder import published_step, read_config, read_provenance
from multihead.training.schedule import training_seconds

Record = dict[str, Any]


# What the paper prints


class Row(NamedTuple):
    """A row of Table 3: a preset, and its dev perplexity, BLEU (newstest2013) and parameters as they are printed."""

    preset: str
    perplexity: float
    bleu: float
    millions: int | None = None  # where the paper leaves it out, it is as in base


TABLE_3 = {
    "base": Row("base", 4.92, 25.8, 65),
    "a-h1": Row("table3-a-h1", 5.29, 24.9),
    "a-h4": Row("table3-a-h4", 5.00, 25.5),
    "a-h16": Row("table3-a-h16", 4.91, 25.8),
    "a-h32": Row("table3-a-h32", 5.01, 25.4),
    "b-dk16": Row("table3-b-dk16", 5.16, 25.1, 58),
    "b-dk32": Row("table3-b-dk32", 5.01, 25.4, 60),
    "c-n2": Row("table3-c-n2", 6.11, 23.7, 36),
    "c-n4": Row("table3-c-n4", 5.19, 25.3, 50),
    "c-n8": Row("table3-c-n8", 4.88, 25.5, 80),
    "c-d256": Row("table3-c-d256", 5.75, 24.5, 28),
    "c-d1024": Row("table3-c-d1024", 4.66, 26.0, 168),
    "c-ff1024": Row("table3-c-ff1024", 5.12, 25.4, 53),
    "c-ff4096": Row("table3-c-ff4096", 4.75, 26.2, 90),
    "d-drop0": Row("table3-d-drop0", 5.77, 24.6),
    "d-drop2": Row("table3-d-drop2", 4.95, 25.5),
    "d-ls0": Row("table3-d-ls0", 4.67, 25.3),
    "d-ls2": Row("table3-d-ls2", 5.47, 25.7),
    "e-learned": Row("table3-e-learned", 4.92, 25.7),
    "big": Row("table3-big", 4.33, 26.4, 213),
}

VOCAB_SIZE = 41_100  # with 41,005 to 41,205 entries every row from base to C has the paper's number of parameters
BIG_VOCAB_SIZE = 36_000  # with about so many, big has


def pick_rows(names: str | None) -> list[str]:
    """`base,c-n2` as names of rows; a letter such as `a` stands for all rows of its group, nothing for all rows."""
    if names is None:
        return list(TABLE_3)
    wanted = [name.strip().lower() for name in names.split(",")]
    for name in wanted:
        if not any(_matches(row, name) for row in TABLE_3):
            raise UsageError(f"there is no row '{name}' in Table 3; there are a to e, and {', '.join(TABLE_3)}")
    return [row for row in TABLE_3 if any(_matches(row, name) for name in wanted)]


def _matches(row: str, name: str) -> bool:
    return bool(name) and (row == name or row.startswith(f"{name}-"))


# What we count


@cache
def parameters_of(shape: ModelConfig) -> int:
    """Counted in the module itself, which has no memory for weights here."""
    with torch.device("meta"):
        return count_parameters(Transformer(shape))


def table_3(rows: Sequence[str], vocab_size: int = VOCAB_SIZE) -> list[Record]:
    """Every row with its settings, the paper's figures and our number of parameters."""
    return [_row_record(name, vocab_size) for name in rows]


def _row_record(name: str, vocab_size: int) -> Record:
    row = TABLE_3[name]
    run = configure(preset(row.preset), {"model.vocab_size": vocab_size})
    model = run.model
    return {
        "row": name,
        "preset": row.preset,
        "layers": model.encoder_layers,
        "d_model": model.d_model,
        "d_ff": model.d_ff,
        "n_heads": model.n_heads,
        "d_k": model.d_k,
        "d_v": model.d_v,
        "dropout": model.dropout,
        "label_smoothing": run.train.label_smoothing,
        "positions": model.positions,
        "paper_perplexity": row.perplexity,
        "paper_bleu": row.bleu,
        "paper_parameters": None if row.millions is None else row.millions * 1_000_000,
        "parameters": parameters_of(model),
    }


# Fields of a record as the paper heads its columns; what is as in base is left blank there.
VARIED = {
    "layers": "N",
    "d_model": "d_model",
    "d_ff": "d_ff",
    "n_heads": "h",
    "d_k": "d_k",
    "d_v": "d_v",
    "dropout": "P_drop",
    "label_smoothing": "ε_ls",
}


def table_3_for_people(records: list[Record], vocab_size: int) -> Table:
    base = _row_record("base", vocab_size)
    rows = [
        [
            record["row"],
            *(f"{record[key]}" if record["row"] == "base" or record[key] != base[key] else "" for key in VARIED),
            f"{record['paper_perplexity']:.2f}",
            f"{record['paper_bleu']:.1f}",
            _millions(record["paper_parameters"], 0),
            _millions(record["parameters"], 2),
        ]
        for record in records
    ]
    big = parameters_of(configure(preset("big"), {"model.vocab_size": BIG_VOCAB_SIZE}).model)
    stated = parameters_of(ModelConfig())
    return Table(
        title="Table 3: variations on the Transformer. Blank is as in base; PPL and BLEU are the paper's",
        header=["row", *VARIED.values(), "PPL", "BLEU", "params", "ours"],
        rows=rows,
        notes=[
            f"params: millions, the paper's; ours: counted, with a vocabulary of {vocab_size:,}.",
            "base to C round to the paper's with 41,005 to 41,205 entries and no biases in attention; with the "
            f"{ModelConfig().vocab_size:,} of §5.1 base has {stated / 1e6:.1f}.",
            f"big is the paper's 213 with about {BIG_VOCAB_SIZE:,} entries ({big / 1e6:.1f}). e-learned has "
            "positions that are learned.",
        ],
    )


def _millions(parameters: int | None, digits: int) -> str:
    return "" if parameters is None else f"{parameters / 1e6:.{digits}f}"


# Every row trained for the same time


_WIDTHS = ("d_model", "d_ff", "d_k", "d_v")

# What all rows share when they are trained: what the preset tiny trains with, which suits minutes on a small machine.
# The rate falls to zero, so the last checkpoint is the one to publish; the paper's 100,000 steps are out of reach.
SHARED: Settings = {
    **{name: value for name, value in PRESETS["tiny"].items() if not name.startswith("model.")},
    "model.norm": "pre",
    "train.steps": 1_000_000,
    "train.keep_checkpoints": 1,
    "train.average_checkpoints": 1,
    "train.bleu_sentences": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Rows of Table 3 on the same text, for the same time."""

    corpus: Path  # made by `multihead prepare`
    output: Path  # each row has a folder in it
    minutes: float  # of each row; 0 leaves it to train.steps
    scale: int = 4  # every width is divided by it
    settings: Settings = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.minutes and "train.steps" not in self.settings:
            raise UsageError("--corpus needs --minutes, or --set train.steps=N: how long each row is trained")
        read_summary(self.corpus)  # refuses what is no corpus before anything is trained

    def request(self, row: str) -> TrainingRequest:
        """What `multihead train` would be asked for."""
        name = TABLE_3[row].preset
        widths = scaled(configure(preset(name)).model, self.scale)
        settings = {**SHARED, **widths, "train.minutes": self.minutes, **self.settings}
        return TrainingRequest(output=self.output / row, data=self.corpus, preset=name, settings=settings)


def scaled(model: ModelConfig, scale: int) -> Settings:
    """Every width divided by `scale`; layers and heads stay as they are."""
    for name in _WIDTHS:
        if getattr(model, name) % scale:
            raise UsageError(f"--scale {scale} does not divide {name}={getattr(model, name)}: take 1, 2, 4, 8 or 16")
    return {f"model.{name}": getattr(model, name) // scale for name in _WIDTHS}


def train_rows(study: Study, rows: Sequence[str], log: Log) -> dict[str, Record]:
    """Train each row that is not complete, and return the outcome of all."""
    requests = {row: study.request(row) for row in rows}
    waiting = [row for row in rows if not is_complete(requests[row])]
    for number, row in enumerate(waiting, start=1):
        log(f"row {number} of {len(waiting)}: {row}")
        train(requests[row])
    return {row: _outcome(request.output) for row, request in requests.items()}


def is_complete(request: TrainingRequest) -> bool:
    """Return whether a row has been trained to its end with these settings on this text."""
    folder = request.output
    steps = saved_steps(folder / "checkpoints")
    if not steps or not would_resume(request) or published_step(folder) != steps[-1]:
        return False
    train, spent = read_config(folder).train, read_provenance(folder)
    used_its_time = bool(train.minutes) and (spent.seconds or 0) >= training_seconds(train) - 0.1
    return used_its_time or (spent.steps or 0) >= train.steps or train.patience > 0


def _outcome(folder: Path) -> Record:
    found = read_provenance(folder)
    if not (found.seconds and found.scores and "perplexity" in found.validation):
        raise UserError(f"{folder}/config.json does not record how the model was trained; train this row again")
    return {
        "trained_parameters": found.parameters,
        "steps": found.steps,
        "minutes": round(found.seconds / 60, 2),
        "perplexity": found.validation["perplexity"],
        "bleu": found.scores[0].value,
        "bleu_signature": found.scores[0].signature,
    }


def ranks(values: Sequence[float]) -> list[float]:
    """1 for the smallest; equal values share the mean of their ranks."""
    found = np.asarray(values, dtype=np.float64)
    return [float((found < value).sum() + ((found == value).sum() + 1) / 2) for value in found]


def rank_correlation(one: Sequence[float], other: Sequence[float]) -> float | None:
    """Spearman's: 1 if both order things alike, -1 if one is the other backwards; none for less than three things."""
    of_one, of_other = np.asarray(ranks(one)), np.asarray(ranks(other))
    if len(of_one) < 3 or not of_one.std() or not of_other.std():
        return None
    return float(np.corrcoef(of_one, of_other)[0, 1])


def correlations(records: list[Record]) -> dict[str, float | None]:
    """How alike our order of the trained rows and the paper's are."""
    return {
        score: rank_correlation([record[score] for record in records], [record[f"paper_{score}"] for record in records])
        for score in ("perplexity", "bleu")
    }


_SCORES = {"perplexity": (1, ".2f"), "bleu": (-1, ".1f")}  # the best is the lowest, or the highest; and its digits


def ranking_for_people(records: list[Record], study: Study) -> Table:
    """Trained rows, the best first, each with its place in our order and in the paper's."""
    columns = [
        column
        for score, (sign, digits) in _SCORES.items()
        for name in (score, f"paper_{score}")
        for column in _with_places([record[name] for record in records], sign, digits)
    ]
    lines = [
        [record["row"], _millions(record["trained_parameters"], 1), f"{record['steps']:,}", *figures]
        for record, *figures in zip(records, *columns, strict=True)
    ]
    best_first = np.argsort([record["perplexity"] for record in records], kind="stable")
    alike = correlations(records)
    said = ", ".join(f"{score} {'none' if rho is None else format(rho, '.2f')}" for score, rho in alike.items())
    budget = f"{study.minutes:g} minutes" if study.minutes else "the same steps"
    unequal = "The same time is fewer steps" if study.minutes else "The same steps take more time"
    return Table(
        title=f"Every row for {budget} on {study.corpus}, widths divided by {study.scale}; # is the place, 1 the best",
        header=["row", "params", "steps", "PPL", "#", "paper", "#", "BLEU", "#", "paper", "#"],
        rows=[lines[at] for at in best_first],
        notes=[
            f"Rank correlation (Spearman) with the paper over {len(records)} rows: {said}.",
            f"{unequal} for a larger row; the paper gave every row 100,000 steps, and big 300,000.",
            "One seed each: neighbours in this order may change places with another.",
        ],
    )


def _with_places(values: list[float], sign: int, digits: str) -> tuple[list[str], list[str]]:
    """A column of figures, and the column of their places."""
    return [format(value, digits) for value in values], [f"{place:g}" for place in ranks([sign * v for v in values])]
