"""`multihead paper ...`: the paper's tables and figures, each command a thin call into the file of its name."""

import json
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.options import Json, Picture, SetOptions
from multihead.config.resolve import parse_settings
from multihead.console import say
from multihead.errors import UsageError

Minutes = Annotated[
    float, typer.Option(min=0.0, help="Of --corpus: how long each row is trained; --set train.steps=N limits it too.")
]
Rows = Annotated[str | None, typer.Option(help="Some rows only, such as base,c-n2; a letter stands for its group.")]
Scale = Annotated[
    int,
    typer.Option(
        min=1,
        help="Of --corpus: d_model, d_ff, d_k and d_v of every row are divided by this, so that a small machine learns "
        "something in minutes; layers and heads stay. 1 for the paper's sizes.",
    ),
]


def table1_command(
    longest: Annotated[int, typer.Option(min=1024, help="The longest sentence that is measured.")] = 8192,
    output: Picture = None,
    as_json: Json = False,
) -> None:
    """Every kind of layer measured: how time and memory grow, what has to wait for what, how long paths are."""
    from multihead.paper import table1

    _check_picture(output)
    lengths = [length for length in table1.LENGTHS if length <= longest]
    found = []
    for layer in table1.LAYERS:
        say(f"measuring {layer.name}")
        found.append(table1.measure(layer, lengths))
    if as_json:
        print(json.dumps([table1.to_dict(one) for one in found], indent=2))
    else:
        table1.to_table(found).show()
    if output:
        table1.write_picture(found, output)
        say(f"written to {output}")


def table2_command(
    what: Annotated[
        list[str] | None, typer.Argument(help="Presets, or models by folder or name; without any, base and big.")
    ] = None,
    hours: Annotated[float | None, typer.Option(help="That training took; the paper's 12 and 84.")] = None,
    devices: Annotated[int | None, typer.Option(help="That worked at it; the paper's 8.")] = None,
    tflops: Annotated[float | None, typer.Option(help="That each sustains; the paper's 9.5 of a P100.")] = None,
    price: Annotated[
        list[str] | None,
        typer.Option("--price-per-hour", metavar="DEVICE=PRICE", help="Rent of a device: A100=1.8; may be repeated."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Training cost: the paper's estimate by the clock, counted operations, and hours on other hardware."""
    from multihead.hardware.flops import GPUS
    from multihead.paper import table2

    prices = table2.parse_prices(price or [])
    clock = table2.Clock(hours=hours, n_devices=devices, tflops=tflops)
    trainings = [table2.training_of(name, clock) for name in what or ["base", "big"]]
    records = table2.hardware(trainings, [table2.this_machine(), *GPUS], prices)
    if as_json:
        counted = [training.record() for training in trainings]
        print(json.dumps({"paper": table2.table_2(), "trainings": counted, "hardware": records}, indent=2))
        return
    table2.table_2_for_people().show()
    print()
    table2.trainings_for_people(trainings).show()
    print()
    table2.hardware_for_people(records, [training.name for training in trainings]).show()


def table3_command(
    vocab_size: Annotated[
        int | None, typer.Option(min=1, help="Entries that parameters are counted with; 41,100 if not given.")
    ] = None,
    rows: Rows = None,
    corpus: Annotated[
        Path | None, typer.Option(help="A corpus made by `multihead prepare`: every row is trained on it, and ranked.")
    ] = None,
    minutes: Minutes = 0.0,
    output: Annotated[
        Path, typer.Option(help="Of --corpus: each row has a folder in it; given again, training goes on.")
    ] = Path("table3"),
    scale: Scale = 4,
    settings: SetOptions = None,
    as_json: Json = False,
) -> None:
    """Every row's parameters beside the paper's; with --corpus and --minutes also PPL and BLEU, as a ranking."""
    from multihead.paper import table3

    names, entries = table3.pick_rows(rows), vocab_size or table3.VOCAB_SIZE
    overrides = parse_settings(settings or [])
    if not corpus and (minutes or overrides):
        raise UsageError("--minutes and --set are for training: they need --corpus")
    study = (
        table3.Study(corpus=corpus, output=output, minutes=minutes, scale=scale, settings=overrides) if corpus else None
    )
    records = table3.table_3(names, entries)
    outcomes = table3.train_rows(study, names, say) if study else {}
    trained = [{**record, **outcomes[record["row"]]} for record in records if record["row"] in outcomes]
    if as_json:
        document = {"vocab_size": entries, "rows": [{**one, **outcomes.get(one["row"], {})} for one in records]}
        print(
            json.dumps({**document, **({"rank_correlation": table3.correlations(trained)} if study else {})}, indent=2)
        )
        return
    table3.table_3_for_people(records, entries).show()
    if study and trained:
        print()
        table3.ranking_for_people(trained, study).show()


def schedule_command(
    pairs: Annotated[
        list[str] | None,
        typer.Option("--pair", metavar="D_MODEL:WARMUP", help="A curve, such as 512:4000; may be repeated."),
    ] = None,
    presets: Annotated[
        list[str] | None, typer.Option("--preset", help="The rate of a preset, such as tiny; may be repeated.")
    ] = None,
    steps: Annotated[int, typer.Option(min=10, max=10_000_000, help="That the picture shows.")] = 20_000,
    output: Picture = None,
    as_json: Json = False,
) -> None:
    """The learning rate of §5.3, as numbers and as a picture."""
    from multihead.paper import schedule

    _check_picture(output)
    chosen = pairs or ([] if presets else schedule.PAIRS)
    curves = [
        *(schedule.curve_of_pair(pair) for pair in chosen),
        *(schedule.curve_of_preset(name) for name in presets or []),
    ]
    if output:
        schedule.write_picture(curves, output, steps)
        say(f"written to {output}")
    if as_json:
        print(json.dumps({"curves": [curve.record(schedule.STEPS) for curve in curves]}, indent=2))
    else:
        schedule.to_table(curves).show()


def positions_command(
    d_model: Annotated[int, typer.Option(max=4096, help="Width of an encoding.")] = 512,
    length: Annotated[int, typer.Option(max=4096, help="Positions.")] = 128,
    output: Picture = None,
    as_json: Json = False,
) -> None:
    """The sinusoids of §3.5: how alike positions are by their distance, and the rotation between them."""
    from multihead.paper import positions

    _check_picture(output)
    records = positions.facts(length, d_model)
    if output:
        positions.write_picture(output, length, d_model)
        say(f"written to {output}")
    if as_json:
        print(json.dumps({"d_model": d_model, "length": length, "distances": records}, indent=2))
    else:
        positions.to_table(records, length, d_model).show()


def _check_picture(output: Path | None) -> None:
    if output and output.suffix != ".png":
        raise UsageError(f"--output must end in .png, got '{output}'")
