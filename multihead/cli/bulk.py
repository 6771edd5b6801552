"""TODO."""

from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.options import Alpha, Beam, Engine, Model, NoGuard, Split
from multihead.config.resolve import search_config
from multihead.config.schema import BEAM, check_engine
from multihead.console import say


def bulk_command(
    model: Model,
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="A .parquet file, a folder of them, or text.")],
    output: Annotated[Path, typer.Option(help="Folder for Parquet files; given again, the work in it goes on.")],
    id_column: Annotated[str, typer.Option(help="Of Parquet; the id of a line of text is its number.")] = "id",
    text_column: Annotated[str, typer.Option(help="Of Parquet: what is translated.")] = "text",
    workers: Annotated[int, typer.Option(min=0, help="Cores that translate; 0 for all of the cluster.")] = 0,
    address: Annotated[str | None, typer.Option(help="A Ray cluster; without it, one on this machine.")] = None,
    beam: Beam = BEAM,
    alpha: Alpha = None,
    split: Split = None,
    engine: Engine = "auto",
    no_guard: NoGuard = False,
) -> None:
    """Translate any amount of text on a Ray cluster: each row once, in order, whoever is killed on the way."""
    search = search_config(beam=beam, alpha=alpha, split=split, guard=not no_guard)
    check_engine(engine)
    from multihead.bulk.job import BulkOptions
    from multihead.bulk.run import bulk

    options = BulkOptions(
        search=search,
        engine=engine,
        id_column=id_column,
        text_column=text_column,
        workers=workers,
        address=address,
    )
    n_rows = bulk(model, source, output, options)
    say(f"{n_rows:,} rows are translated in {output}")
