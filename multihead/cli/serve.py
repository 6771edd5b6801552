"""TODO."""

from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.options import Engine
from multihead.config.schema import check_engine
from multihead.console import say
from multihead.errors import UserError


def serve_command(
    models: Annotated[list[str], typer.Argument(help="Models: folders, names of bundled ones, or hf:owner/name.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for every one of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any that is free.")] = 5000,
    api_keys: Annotated[
        Path | None, typer.Option(help="File with a key a line; without a key nobody is served.")
    ] = None,
    rate: Annotated[
        str, typer.Option(help="How often one client may ask, such as 60/minute; empty for no limit.")
    ] = "",
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy whose X-Forwarded-For is trusted; may be repeated."),
    ] = None,
    characters: Annotated[
        int, typer.Option(min=1, help="Characters of a text; a request has up to 10 times as many.")
    ] = 5000,
    waiting: Annotated[int, typer.Option(min=1, help="Characters that may wait, of all requests together.")] = 100_000,
    batch: Annotated[int, typer.Option(min=1, help="Sentences translated at a time, of all requests together.")] = 32,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time for an answer; what takes longer is given up.")] = 30.0,
    log: Annotated[bool, typer.Option(help="A line of JSON on stderr for each request, without its text.")] = True,
    engine: Engine = "auto",
) -> None:
    """Translate for others: LibreTranslate's HTTP interface, and a page that shows what the model attends to."""
    check_engine(engine)
    try:
        from multihead.serve.server import Options, serve
        from multihead.serve.service import Limits
    except ModuleNotFoundError as error:
        raise UserError(f"serving needs {error.name}: pip install 'multihead[serve]'") from None
    limits = Limits(characters=characters, waiting=waiting, batch=batch, seconds=seconds)
    options = Options(
        host=host,
        port=port,
        engine=engine,
        api_keys=api_keys,
        rate=rate,
        proxies=proxy or (),
        log=log,
        limits=limits,
    )
    serve(models, options, say)
