"""Table 3: the settings and figures of every row as printed in the paper, and our count of parameters.

Records are for `--json`, a `Table` is for people. The figures are those of arXiv 1706.03762v7.
"""

from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

from multihead.config.presets import preset
from multihead.config.resolve import configure
from multihead.config.schema import ModelConfig
from multihead.console import Table
from multihead.errors import UsageError
from multihead.model.weights import count_parameters_of

Record = dict[str, Any]


# What the paper prints


class Row(NamedTuple):
    """A row of Table 3: a preset, and its dev perplexity, BLEU (newstest2013) and parameters as printed."""

    preset: str
    perplexity: float
    bleu: float
    millions: int | None = None  # None where the paper leaves it blank: as in base


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

VOCAB_SIZE = 41_100  # with 41,005 to 41,205 entries, rows base to C have the paper's number of parameters
BIG_VOCAB_SIZE = 36_000  # and with about this many, big has


def pick_rows(names: str | None) -> list[str]:
    """Parse names such as `base,c-n2`; a letter such as `a` selects its group, None all rows."""
    if names is None:
        return list(TABLE_3)
    wanted = [name.strip().lower() for name in names.split(",")]
    for name in wanted:
        if not any(_matches(row, name) for row in TABLE_3):
            raise UsageError(f"Table 3 has no row '{name}'; valid names: a to e, {', '.join(TABLE_3)}")
    return [row for row in TABLE_3 if any(_matches(row, name) for name in wanted)]


def _matches(row: str, name: str) -> bool:
    return bool(name) and (row == name or row.startswith(f"{name}-"))


# What we count


@cache
def parameters_of(shape: ModelConfig) -> int:
    """Return the number of parameters, counted in the module itself."""
    return count_parameters_of(shape)


def row_records(rows: Sequence[str], vocab_size: int = VOCAB_SIZE) -> list[Record]:
    """Return every row with its settings, the paper's figures and our number of parameters."""
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


# Fields of a record and the paper's headings; a cell that is as in base is blank.
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


def to_table(records: list[Record], vocab_size: int) -> Table:
    base = _row_record("base", vocab_size)
    rows = [
        [
            record["row"],
            *(f"{record[key]}" if record["row"] == "base" or record[key] != base[key] else "" for key in VARIED),
            f"{record['paper_perplexity']:.2f}",
            f"{record['paper_bleu']:.1f}",
            in_millions(record["paper_parameters"], 0),
            in_millions(record["parameters"], 2),
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


def in_millions(parameters: int | None, digits: int) -> str:
    return "" if parameters is None else f"{parameters / 1e6:.{digits}f}"
