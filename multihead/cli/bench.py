"""`multihead bench`: throughput of training, translation and serving, beside an alternative in the same run."""

import json
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli import completion
from multihead.cli.options import Beam, Engine, Json, Model
from multihead.config.resolve import search_config
from multihead.config.schema import check_engine
from multihead.console import make_table, say
from multihead.errors import require


def bench_train_command(
    preset_name: Annotated[
        str, typer.Option("--preset", help="Model to train.", autocompletion=completion.presets)
    ] = "small",
    data: Annotated[Path | None, typer.Option(help="A prepared corpus.  [default: random sentences]")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps to time.")] = 20,
    batch_tokens: Annotated[int, typer.Option(help="Target tokens per batch.")] = 4096,
    vocab_size: Annotated[int | None, typer.Option(help="Vocabulary size.  [default: that of the preset]")] = None,
    growth: Annotated[bool, typer.Option("--growth", help="Also vary batch, vocabulary and length.")] = False,
    as_json: Json = False,
) -> None:
    """Tokens per second of training. Compared with a plain torch.nn.Transformer loop and the matrix-multiply peak."""
    require("torch", extra="train", purpose="bench train")
    _report_load()
    from multihead.bench.training import bench_growth, bench_training

    report = bench_training(preset_name, data, steps, batch_tokens, vocab_size)
    grown = bench_growth(preset_name, max(2, steps // 4)) if growth else []
    if as_json:
        print(json.dumps({**report.to_dict(), **({"growth": grown} if growth else {})}, indent=2))
    else:
        print("\n\n".join([report.as_text(), *([make_table(grown).as_text()] if growth else [])]))


def bench_translate_command(
    model: Model,
    source: Annotated[Path | None, typer.Option(help="Text to translate.  [default: the embedded corpus]")] = None,
    reference: Annotated[Path | None, typer.Option(help="Reference translation, for BLEU.")] = None,
    beam: Beam = None,
    sentences: Annotated[int, typer.Option(min=1, help="Maximum number of sentences.")] = 2000,
    growth: Annotated[bool, typer.Option("--growth", help="Also vary beam and length.")] = False,
    picture: Annotated[Path | None, typer.Option(help="Write a .png picture of speed against BLEU.")] = None,
    as_json: Json = False,
) -> None:
    """Sentences per second and BLEU of translation. Compared with plain CTranslate2."""
    require("torch", extra="train", purpose="bench translate")
    _report_load()
    from multihead.bench.translation import bench_growth, bench_translation, read_text, write_picture

    text = read_text(source, reference, sentences)
    report = bench_translation(model, text, search_config(beam=beam))
    grown = bench_growth(model, text) if growth or picture else []
    if picture:
        write_picture(grown, picture)
    if as_json:
        print(json.dumps({**report.to_dict(), **({"growth": grown} if grown else {})}, indent=2))
    else:
        print("\n\n".join([report.as_text(), *([make_table(grown).as_text()] if grown else [])]))


def bench_serve_command(
    model: Model,
    seconds: Annotated[float, typer.Option(min=0.1, help="Seconds of measurement for each number of clients.")] = 10.0,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Requests per second and latency of the server. With 1, 8 and 64 clients, in batches and one at a time."""
    check_engine(engine)
    require("multihead.serve.server", extra="serve", purpose="bench serve")
    _report_load()
    from multihead.bench.serving import bench_serving

    report = bench_serving(model, engine, seconds)
    print(json.dumps(report.to_dict(), indent=2) if as_json else report.as_text())


def _report_load() -> None:
    """Say so if other programs spoil the measurement."""
    from multihead.hardware.load import busy_warning

    if busy := busy_warning():
        say(busy)
