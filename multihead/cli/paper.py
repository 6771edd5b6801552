"""`multihead paper`: the paper's tables and figures; each command calls the module of its name."""

import json
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.options import Json, Picture, SetOptions
from multihead.config.resolve import parse_settings
from multihead.console import say
from multihead.errors import UsageError, require

Minutes = Annotated[
    float, typer.Option(min=0.0, help="With --corpus: training time of each row; or limit it by --set train.steps=N.")
]
Rows = Annotated[
    str | None, typer.Option(help="Rows to include, such as base,c-n2; a letter selects its group.  [default: all]")
]
Scale = Annotated[
    int,
    typer.Option(
        min=1,
        help="With --corpus: divide d_model, d_ff, d_k and d_v of every row by this, so that a small machine learns "
        "something in minutes. 1 for the paper's sizes.",
    ),
]


def table1_command(
    longest: Annotated[int, typer.Option(min=1024, help="Longest sentence to measure.")] = 8192,
    output: Picture = None,
    as_json: Json = False,
) -> None:
    """Table 1: every layer type. Measures growth of time and memory, sequential operations and path lengths."""
    require("torch", extra="train", purpose="paper table1")
    from multihead.paper import table1

    _check_picture(output)
    lengths = [length for length in table1.LENGTHS if length <= longest]
    measurements = []
    for layer in table1.LAYERS:
        say(f"measuring {layer.name}")
        measurements.append(table1.measure(layer, lengths))
    if as_json:
        print(json.dumps([table1.to_dict(one) for one in measurements], indent=2))
    else:
        table1.to_table(measurements).show()
    if output:
        table1.write_picture(measurements, output)
        say(f"wrote {output}")


def table2_command(
    names: Annotated[
        list[str] | None, typer.Argument(help="Presets, or models by folder or name.  [default: base big]")
    ] = None,
    hours: Annotated[
        float | None, typer.Option(help="Training time.  [default: as recorded, or the paper's 12 and 84]")
    ] = None,
    devices: Annotated[
        int | None, typer.Option(help="Number of devices.  [default: as recorded, or the paper's 8]")
    ] = None,
    tflops: Annotated[
        float | None, typer.Option(help="Sustained TFLOPS of each device.  [default: as recorded, or the paper's 9.5]")
    ] = None,
    price: Annotated[
        list[str] | None,
        typer.Option(
            "--price-per-hour", metavar="DEVICE=PRICE", help="Price of a device, such as A100=1.8; may be repeated."
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Table 2: training cost. The paper's estimate by time, counted operations, and hours on other hardware."""
    require("torch", extra="train", purpose="paper table2")
    from multihead.hardware.flops import GPUS
    from multihead.paper import table2

    prices = table2.parse_prices(price or [])
    budget = table2.Budget(hours=hours, n_devices=devices, tflops=tflops)
    trainings = [table2.describe_training(name, budget) for name in names or ["base", "big"]]
    records = table2.hardware_records(trainings, [table2.this_machine(), *GPUS], prices)
    if as_json:
        counted = [training.to_dict() for training in trainings]
        print(json.dumps({"paper": table2.published_records(), "trainings": counted, "hardware": records}, indent=2))
        return
    table2.published_table().show()
    print()
    table2.trainings_table(trainings).show()
    print()
    table2.hardware_table(records, [training.name for training in trainings]).show()


def table3_command(
    vocab_size: Annotated[
        int | None, typer.Option(min=1, help="Vocabulary size for counting parameters.  [default: 41,100]")
    ] = None,
    rows: Rows = None,
    corpus: Annotated[
        Path | None, typer.Option(help="Train every row on this corpus, made by `multihead prepare`, and rank them.")
    ] = None,
    minutes: Minutes = 0.0,
    output: Annotated[
        Path, typer.Option(help="With --corpus: folder for the runs of all rows; unfinished ones are resumed.")
    ] = Path("table3"),
    scale: Scale = 4,
    settings: SetOptions = None,
    as_json: Json = False,
) -> None:
    """Table 3: parameters of every row. With --corpus and --minutes, also a ranking by perplexity and BLEU."""
    require("torch", extra="train", purpose="paper table3")
    from multihead.paper import table3, table3_study

    names, entries = table3.pick_rows(rows), vocab_size or table3.VOCAB_SIZE
    overrides = parse_settings(settings or [])
    if not corpus and (minutes or overrides):
        raise UsageError("--minutes and --set apply to training and need --corpus")
    study = (
        table3_study.Study(corpus=corpus, output=output, minutes=minutes, scale=scale, settings=overrides)
        if corpus
        else None
    )
    records = table3.row_records(names, entries)
    results = table3_study.train_rows(study, names, say) if study else {}
    trained = [{**record, **results[record["row"]]} for record in records if record["row"] in results]
    if as_json:
        document = {"vocab_size": entries, "rows": [{**one, **results.get(one["row"], {})} for one in records]}
        print(
            json.dumps(
                {**document, **({"rank_correlation": table3_study.correlations(trained)} if study else {})}, indent=2
            )
        )
        return
    table3.to_table(records, entries).show()
    if study and trained:
        print()
        table3_study.to_table(trained, study).show()


def parsing_command(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the parser; a run in it is resumed.")],
    trees: Annotated[
        Path | None, typer.Option(help="Training trees in Penn Treebank brackets, one a line.  [default: generated]")
    ] = None,
    valid: Annotated[Path | None, typer.Option(help="Validation trees.")] = None,
    test: Annotated[Path | None, typer.Option(help="Test trees.")] = None,
    minutes: Annotated[float | None, typer.Option(min=0.0, help="Training time; or --set train.steps=N.")] = None,
    first: Annotated[
        int | None, typer.Option("--sample", min=1, help="Train on this many trees from all parts of the treebank.")
    ] = None,
    plain_tags: Annotated[
        bool, typer.Option("--plain-tags", help="Write XX for every part of speech, as Vinyals et al. (2015).")
    ] = False,
    settings: SetOptions = None,
    as_json: Json = False,
) -> None:
    """Table 4: train and score a constituency parser (§6.3). Prints its labeled F1 beside the paper's rows."""
    require("torch", extra="train", purpose="paper parsing")
    from multihead.paper import parsing

    treebank = parsing.read_treebank([trees, valid, test], keep_tags=not plain_tags)
    treebank = parsing.Treebank(parsing.spread(treebank.train, first), treebank.valid, treebank.test)
    overrides = parse_settings(settings or [])
    if not minutes and "train.steps" not in overrides:
        raise UsageError("give --minutes, or --set train.steps=N, to limit the training")
    run = parsing.ParsingRun(treebank=treebank, output=output, minutes=minutes or 0.0, settings=overrides)
    result = parsing.train_parser(run, say)
    if as_json:
        print(json.dumps(result.as_json(), indent=2))
        return
    parsing.scores_table(result).show()
    print()
    parsing.paper_table(result).show()


def schedule_command(
    pairs: Annotated[
        list[str] | None,
        typer.Option("--pair", metavar="D_MODEL:WARMUP", help="A curve to draw, such as 512:4000; may be repeated."),
    ] = None,
    presets: Annotated[
        list[str] | None, typer.Option("--preset", help="A preset whose curve to draw; may be repeated.")
    ] = None,
    steps: Annotated[int, typer.Option(min=10, max=10_000_000, help="Steps shown in the picture.")] = 20_000,
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
        say(f"wrote {output}")
    if as_json:
        print(json.dumps({"curves": [curve.to_dict(schedule.STEPS) for curve in curves]}, indent=2))
    else:
        schedule.to_table(curves).show()


def positions_command(
    d_model: Annotated[int, typer.Option(max=4096, help="Width of the encoding.")] = 512,
    length: Annotated[int, typer.Option(max=4096, help="Number of positions.")] = 128,
    output: Picture = None,
    as_json: Json = False,
) -> None:
    """The sinusoids of §3.5. Similarity of positions by distance, and the rotation between them."""
    require("torch", extra="train", purpose="paper positions")
    from multihead.paper import positions

    _check_picture(output)
    records = positions.measure(length, d_model)
    if output:
        positions.write_picture(output, length, d_model)
        say(f"wrote {output}")
    if as_json:
        print(json.dumps({"d_model": d_model, "length": length, "distances": records}, indent=2))
    else:
        positions.to_table(records, length, d_model).show()


def _check_picture(output: Path | None) -> None:
    if output and output.suffix != ".png":
        raise UsageError(f"--output must end in .png, got '{output}'")
