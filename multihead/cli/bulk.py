"""`multihead bulk`."""

from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.options import Alpha, Beam, Engine, Model, NoGuard, Quiet, Split, To
from multihead.config.resolve import search_config
from multihead.config.schema import check_engine
from multihead.console import say, set_verbosity


def bulk_command(
    model: Model,
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="A .parquet file, a folder of them, or a text file.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Folder for Parquet files; an unfinished job in it is resumed.")
    ],
    id_column: Annotated[
        str, typer.Option(help="Column of the row id in Parquet; the id of a line of text is its number.")
    ] = "id",
    text_column: Annotated[str, typer.Option(help="Column of the text to translate in Parquet.")] = "text",
    workers: Annotated[int, typer.Option(min=0, help="Cores to use; 0 for all cores of the cluster.")] = 0,
    address: Annotated[
        str | None, typer.Option(help="Address of a Ray cluster.  [default: start one on this machine]")
    ] = None,
    to: To = None,
    beam: Beam = None,
    alpha: Alpha = None,
    split: Split = None,
    engine: Engine = "auto",
    no_guard: NoGuard = False,
    quiet: Quiet = False,
) -> None:
    """Translate Parquet or text of any size with Ray. Each row exactly once and in order, even if workers die."""
    set_verbosity(quiet)
    search = search_config(beam=beam, alpha=alpha, split=split, guard=not no_guard)
    check_engine(engine)
    from multihead.bulk.job import BulkOptions
    from multihead.bulk.run import bulk

    options = BulkOptions(
        search=search,
        engine=engine,
        to=to,
        id_column=id_column,
        text_column=text_column,
        workers=workers,
        address=address,
    )
    n_rows = bulk(model, source, output, options)
    say(f"translated {n_rows:,} rows into {output}")
