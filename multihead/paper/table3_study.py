"""Train every row of Table 3 on the same text for the same time, and rank the rows beside the paper's."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from multihead.config.presets import PRESETS, preset
from multihead.config.resolve import configure
from multihead.config.schema import ModelConfig, Settings
from multihead.console import Log, Table
from multihead.data.shards import read_summary
from multihead.errors import UsageError, UserError
from multihead.paper.table3 import TABLE_3, Record, in_millions
from multihead.runs.request import TrainingRequest
from multihead.runs.setup import would_resume
from multihead.runs.train import train
from multihead.storage.checkpoints import saved_steps
from multihead.storage.model_folder import published_step, read_config, read_provenance

_WIDTHS = ("d_model", "d_ff", "d_k", "d_v")

# All rows are trained like the preset tiny, which suits minutes on a small machine. The rate decays to zero, so the
# last checkpoint is the one to publish.
SHARED_SETTINGS: Settings = {
    **{name: value for name, value in PRESETS["tiny"].items() if not name.startswith("model.")},
    "model.norm": "pre",
    "train.steps": 1_000_000,
    "train.keep_checkpoints": 1,
    "train.average_checkpoints": 1,
    "train.bleu_sentences": 0,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """How the rows of Table 3 are trained for comparison."""

    corpus: Path  # made by `multihead prepare`
    output: Path  # contains a folder for each row
    minutes: float  # per row; 0: until train.steps
    scale: int = 4  # divisor of every width
    settings: Settings = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.minutes and "train.steps" not in self.settings:
            raise UsageError("--corpus needs --minutes or --set train.steps=N, to limit the training of each row")
        read_summary(self.corpus)  # fails early if this is not a corpus

    def request(self, row: str) -> TrainingRequest:
        """Return the training request of a row."""
        name = TABLE_3[row].preset
        widths = scaled_widths(configure(preset(name)).model, self.scale)
        settings = {**SHARED_SETTINGS, **widths, "train.minutes": self.minutes, **self.settings}
        return TrainingRequest(output=self.output / row, data=self.corpus, preset=name, settings=settings)


def scaled_widths(model: ModelConfig, scale: int) -> Settings:
    """Divide every width by `scale`; the numbers of layers and heads stay."""
    for name in _WIDTHS:
        if getattr(model, name) % scale:
            raise UsageError(f"--scale {scale} does not divide {name}={getattr(model, name)}; use 1, 2, 4, 8 or 16")
    return {f"model.{name}": getattr(model, name) // scale for name in _WIDTHS}


def train_rows(study: Study, rows: Sequence[str], log: Log) -> dict[str, Record]:
    """Train each row that is not complete, and return the results of all."""
    requests = {row: study.request(row) for row in rows}
    incomplete = [row for row in rows if not is_complete(requests[row])]
    for number, row in enumerate(incomplete, start=1):
        log(f"row {number} of {len(incomplete)}: {row}")
        train(requests[row])
    return {row: _result(request.output) for row, request in requests.items()}


def is_complete(request: TrainingRequest) -> bool:
    """Return whether a row has been trained to its end with these settings on this text."""
    folder = request.output
    steps = saved_steps(folder / "checkpoints")
    if not steps or not would_resume(request) or published_step(folder) != steps[-1]:
        return False
    train, spent = read_config(folder).train, read_provenance(folder)
    used_its_time = bool(train.minutes) and spent.minutes == train.minutes
    used_its_steps = train.steps > 0 and (spent.steps or 0) >= train.steps
    return used_its_time or used_its_steps or train.patience > 0


def _result(folder: Path) -> Record:
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
    """Return the rank of each value, 1 for the smallest; equal values share the mean of their ranks."""
    array = np.asarray(values, dtype=np.float64)
    return [float((array < value).sum() + ((array == value).sum() + 1) / 2) for value in array]


def rank_correlation(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Return Spearman's rank correlation; None for fewer than three values, or if all are equal."""
    first_ranks, second_ranks = np.asarray(ranks(first)), np.asarray(ranks(second))
    if len(first_ranks) < 3 or not first_ranks.std() or not second_ranks.std():
        return None
    return float(np.corrcoef(first_ranks, second_ranks)[0, 1])


def correlations(records: list[Record]) -> dict[str, float | None]:
    """Return the rank correlation between our scores of the trained rows and the paper's."""
    return {
        score: rank_correlation([record[score] for record in records], [record[f"paper_{score}"] for record in records])
        for score in ("perplexity", "bleu")
    }


_SCORES = {"perplexity": (1, ".2f"), "bleu": (-1, ".1f")}  # 1: lower is better, -1: higher is better; number format


def to_table(records: list[Record], study: Study) -> Table:
    """List the trained rows, the best first, with their ranks in our results and in the paper."""
    columns = [
        column
        for score, (sign, digits) in _SCORES.items()
        for name in (score, f"paper_{score}")
        for column in _with_ranks([record[name] for record in records], sign, digits)
    ]
    lines = [
        [record["row"], in_millions(record["trained_parameters"], 1), f"{record['steps']:,}", *scores]
        for record, *scores in zip(records, *columns, strict=True)
    ]
    best_first = np.argsort([record["perplexity"] for record in records], kind="stable")
    correlation = ", ".join(
        f"{score} {'none' if rho is None else format(rho, '.2f')}" for score, rho in correlations(records).items()
    )
    budget = f"{study.minutes:g} minutes" if study.minutes else "the same steps"
    unequal = "Larger rows make fewer steps in the same time" if study.minutes else "Larger rows take more time"
    return Table(
        title=f"Every row for {budget} on {study.corpus}, widths divided by {study.scale}; # is the rank, 1 the best",
        header=["row", "params", "steps", "PPL", "#", "paper", "#", "BLEU", "#", "paper", "#"],
        rows=[lines[index] for index in best_first],
        notes=[
            f"Rank correlation (Spearman) with the paper over {len(records)} rows: {correlation}.",
            f"{unequal}; the paper trained every row for 100,000 steps, and big for 300,000.",
            "One seed each: with another seed, neighboring rows may swap ranks.",
        ],
    )


def _with_ranks(values: list[float], sign: int, digits: str) -> tuple[list[str], list[str]]:
    """Return a column of scores and the column of their ranks."""
    return [format(value, digits) for value in values], [f"{rank:g}" for rank in ranks([sign * v for v in values])]
