"""Table 2: training cost by time as in the paper, by counted operations, and on other hardware.

Records are for `--json`, a `Table` is for people. The figures are those of arXiv 1706.03762v7.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from multihead.config.presets import PRESETS, preset
from multihead.config.resolve import configure
from multihead.console import Table, duration
from multihead.errors import UsageError, UserError
from multihead.hardware.device import matmul_flops, pick_device, pick_precision, precision_name
from multihead.hardware.flops import (
    ASSUMED_SENTENCE_TOKENS,
    CPU_SHARE,
    FLOAT32_SHARE,
    GPUS,
    TENSOR_SHARE,
    Device,
    counted_flops,
    flops_by_time,
)
from multihead.interop.hub import find_model
from multihead.storage.model_folder import read_config, read_provenance

Record = dict[str, Any]


# Published


class Published(NamedTuple):
    """A row of Table 2: BLEU on newstest2014 and training FLOPs, English to German and English to French."""

    model: str
    bleu_en_de: float | None = None
    bleu_en_fr: float | None = None
    flops_en_de: float | None = None
    flops_en_fr: float | None = None


TABLE_2 = [
    Published("ByteNet", 23.75),
    Published("Deep-Att + PosUnk", bleu_en_fr=39.2, flops_en_fr=1.0e20),
    Published("GNMT + RL", 24.6, 39.92, 2.3e19, 1.4e20),
    Published("ConvS2S", 25.16, 40.46, 9.6e18, 1.5e20),
    Published("MoE", 26.03, 40.56, 2.0e19, 1.2e20),
    Published("Deep-Att + PosUnk ensemble", bleu_en_fr=40.4, flops_en_fr=8.0e20),
    Published("GNMT + RL ensemble", 26.30, 41.16, 1.8e20, 1.1e21),
    Published("ConvS2S ensemble", 26.36, 41.29, 7.7e19, 1.2e21),
    Published("Transformer (base)", 27.3, 38.1, 3.3e18, 3.3e18),
    Published("Transformer (big)", 28.4, 41.8, 2.3e19, 2.3e19),
]

# §5.2: 100,000 steps in 12 hours, 300,000 in 3.5 days, on 8 P100; the footnote of §6.1 gives each 9.5 TFLOPS.
PAPER_HOURS = {"base": 12.0, "big": 84.0, "table3-big": 84.0}
PAPER_DEVICES, PAPER_TFLOPS = 8, 9.5


# Counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Time and hardware given by the user; unset fields are the paper's, or those recorded by a run."""

    hours: float | None = None
    n_devices: int | None = None
    tflops: float | None = None  # that each device sustains

    def __post_init__(self) -> None:
        for name, value in (("--hours", self.hours), ("--devices", self.n_devices), ("--tflops", self.tflops)):
            if value is not None and not 0 < value < math.inf:
                raise UsageError(f"{name} must be more than 0, got {value}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Training:
    """The cost of one training run, by time and by counted operations."""

    name: str
    target_tokens: float
    flops_counted: float
    hours: float | None  # None for a preset without a published time
    n_devices: int
    tflops: float

    @property
    def flops_by_time(self) -> float | None:
        return None if self.hours is None else flops_by_time(self.hours * 3600, self.n_devices, self.tflops * 1e12)

    def to_dict(self) -> Record:
        by_time = self.flops_by_time
        used = None if by_time is None else self.flops_counted / by_time
        return {**asdict(self), "flops_by_time": by_time, "used": used}


def describe_training(name: str, budget: Budget) -> Training:
    """Describe the training of a preset, from its settings, or of a model, from its records."""
    return _describe_preset(name, budget) if name in PRESETS else _describe_model(name, budget)


def _describe_preset(name: str, budget: Budget) -> Training:
    run = configure(preset(name))
    tokens = run.train.steps * run.train.accumulate * run.data.batch_tokens
    return Training(
        name=name,
        target_tokens=tokens,
        flops_counted=counted_flops(run.model, tokens),
        hours=budget.hours or PAPER_HOURS.get(name),
        n_devices=budget.n_devices or PAPER_DEVICES,
        tflops=budget.tflops or PAPER_TFLOPS,
    )


def _describe_model(name: str, budget: Budget) -> Training:
    try:
        folder = find_model(name)
    except UserError as error:
        raise UserError(f"'{name}' is not a preset, and {error}") from None
    model, recorded = read_config(folder).model, read_provenance(folder)
    tokens, seconds, capacity = recorded.target_tokens, recorded.seconds, recorded.matmul_flops
    if not (tokens and seconds and capacity and min(tokens, seconds, capacity) > 0):
        raise UserError(f"{folder} has no training time or token count recorded; its cost cannot be computed")
    return Training(
        name=folder.name,
        target_tokens=tokens,
        flops_counted=counted_flops(model, tokens),
        hours=budget.hours or seconds / 3600,
        n_devices=budget.n_devices or 1,
        tflops=budget.tflops or capacity / 1e12,
    )


def this_machine() -> Device:
    """Measure this machine."""
    device = pick_device()
    precision = pick_precision("auto", device)
    name, flops = precision_name(precision), matmul_flops(device, precision)
    share = CPU_SHARE if device.type == "cpu" else TENSOR_SHARE if name == "bfloat16" else FLOAT32_SHARE
    return Device(name="here", precision=name, flops=flops, share=share)


def parse_prices(prices: Sequence[str]) -> dict[str, float]:
    """Parse `["A100=1.8"]` into prices per hour by device."""
    names, found = ["here", *(gpu.name for gpu in GPUS)], dict[str, float]()
    for price in prices:
        name, _, amount = price.partition("=")
        if name not in names:
            raise UsageError(f"unknown device '{name}'; valid names: {', '.join(names)}")
        try:
            found[name] = float(amount)
        except ValueError:
            found[name] = math.nan
        if not 0 <= found[name] < math.inf:
            raise UsageError(f"--price-per-hour takes device=price, for example A100=1.8; got '{price}'")
    return found


def hardware_records(
    trainings: Sequence[Training], devices: Sequence[Device], prices: dict[str, float]
) -> list[Record]:
    """Return hours, energy and rent of each training run on each device alone."""
    records = []
    for device in devices:
        price, flops = prices.get(device.name), {training.name: training.flops_counted for training in trainings}
        hours = {name: device.hours(n_flops) for name, n_flops in flops.items()}
        energy = {name: device.kilowatt_hours(n_flops) for name, n_flops in flops.items()}
        cost = None if price is None else {name: price * time for name, time in hours.items()}
        records.append({**asdict(device), "hours": hours, "kilowatt_hours": energy, "cost": cost})
    return records


def published_records() -> list[Record]:
    return [published._asdict() for published in TABLE_2]


def published_table() -> Table:
    return Table(
        title="Table 2: BLEU on newstest2014 and training FLOPs, as the paper prints them",
        header=["model", "BLEU en-de", "BLEU en-fr", "FLOPs en-de", "FLOPs en-fr"],
        rows=[
            [row.model, *("" if bleu is None else f"{bleu:g}" for bleu in row[1:3]), *map(_scientific, row[3:5])]
            for row in TABLE_2
        ],
        notes=["Transformer (big), en-fr: 41.8 here and in the abstract; §6.1 has 41.0."],
    )


def trainings_table(trainings: Sequence[Training]) -> Table:
    return Table(
        title="Training cost by time, as the paper counts it, and by the operations of the model",
        header=["", "target tokens", "hours", "devices", "TFLOPS", "FLOPs by time", "counted", "used"],
        rows=[
            [
                training.name,
                _scientific(training.target_tokens),
                "" if training.hours is None else f"{training.hours:.3g}",
                "" if training.hours is None else f"{training.n_devices}",
                "" if training.hours is None else f"{training.tflops:.3g}",
                _scientific(training.flops_by_time),
                _scientific(training.flops_counted),
                "" if (used := training.to_dict()["used"]) is None else f"{100 * used:.0f}%",
            ]
            for training in trainings
        ],
        notes=[
            "By time: hours x devices x sustained TFLOPS of each (--hours, --devices, --tflops).",
            "Counted: 6 per token and weight in a matrix product, plus attention over "
            f"{ASSUMED_SENTENCE_TOKENS} tokens; sources are as long as targets.",
        ],
    )


def hardware_table(records: list[Record], names: Sequence[str]) -> Table:
    priced = any(record["cost"] for record in records)
    columns = [("hours", "time", _duration), ("kilowatt_hours", "kWh", _three_digits), ("cost", "cost", _three_digits)]
    shown = columns if priced else columns[:2]
    return Table(
        title="The same operations on other hardware, one device alone",
        header=["", "precision", "TFLOPS", "share", *(f"{name} {title}" for name in names for _, title, _ in shown)],
        rows=[
            [
                record["name"],
                record["precision"],
                f"{record['flops'] / 1e12:.3g}",
                f"{record['share']:g}",
                *(form((record[key] or {}).get(name)) for name in names for key, _, form in shown),
            ]
            for record in records
        ],
        notes=[
            "TFLOPS: as stated by the manufacturer, dense, in the fastest precision that we train in; here: a measured "
            "matrix product; P100: the paper's 9.5.",
            "share: assumed utilization in training (see docs/paper.md). kWh: at the power limit of the board.",
        ],
    )


def _scientific(number: float | None) -> str:
    """Format with two digits and a power of ten, as in the paper."""
    return "" if number is None else f"{number:.1e}".replace("e+", "e")


def _three_digits(value: float | None) -> str:
    """Format with three significant digits."""
    return "" if value is None else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _duration(hours: float | None) -> str:
    return "" if hours is None else duration(3600 * hours)
