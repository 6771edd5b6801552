"""`multihead serve`."""

from pathlib import Path
from typing import Annotated, TypeVar

import typer

from multihead.cli import completion
from multihead.cli.command import import_numpy_with_one_thread
from multihead.cli.options import Engine
from multihead.config.schema import check_engine
from multihead.console import say
from multihead.errors import require

Value = TypeVar("Value", int, float, str)


def serve_command(
    models: Annotated[
        list[str],
        typer.Argument(
            help="Models: folders, bundled names or hf:owner/name; one for each direction.",
            autocompletion=completion.models,
        ),
    ],
    host: Annotated[str, typer.Option(help="Address to listen on; 0.0.0.0 for all interfaces.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 picks a free one.")] = 5000,
    api_keys: Annotated[
        Path | None, typer.Option(help="File with one API key per line; if set, requests need one of these keys.")
    ] = None,
    rate_limit: Annotated[
        str, typer.Option(help="Requests per client, such as 60/minute.  [default: no limit]", show_default=False)
    ] = "",
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy whose X-Forwarded-For header is trusted; may be repeated."),
    ] = None,
    max_characters: Annotated[
        int, typer.Option(min=1, help="Characters per text; a request may have 10 times as many.")
    ] = 5000,
    max_wait: Annotated[
        float,
        typer.Option(min=0, help="Seconds that a short request may have to wait; it is refused if it were longer."),
    ] = 2.0,
    max_batch: Annotated[int, typer.Option(min=1, help="Sentences translated together, over all requests.")] = 32,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds after which a request fails.")] = 30.0,
    log: Annotated[bool, typer.Option(help="Log each request to stderr as a line of JSON, without its text.")] = True,
    explain: Annotated[
        bool, typer.Option(help="Offer the lesson about each model, a page that contains the model's weights.")
    ] = True,
    pivot: Annotated[
        bool, typer.Option(help="Translate through a third language where no model has the direction.")
    ] = True,
    engine: Engine = "auto",
    characters: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
    max_queued_characters: Annotated[int | None, typer.Option(hidden=True)] = None,
    waiting: Annotated[int | None, typer.Option(hidden=True)] = None,
    batch: Annotated[int | None, typer.Option(min=1, hidden=True)] = None,
    seconds: Annotated[float | None, typer.Option(min=0.1, hidden=True)] = None,
    rate: Annotated[str | None, typer.Option(hidden=True)] = None,
) -> None:
    """Serve a web page and LibreTranslate's HTTP interface. The page shows alternatives, alignment and attention."""
    check_engine(engine)
    import_numpy_with_one_thread()
    require("multihead.serve.server", extra="serve", purpose="serving")
    from multihead.serve.options import Limits, ServerOptions
    from multihead.serve.server import serve

    if max_queued_characters is not None or waiting is not None:
        say("--max-queued-characters has no effect any more: --max-wait bounds the queue, in seconds")
    limits = Limits(
        characters=_renamed(characters, "--characters", max_characters, "--max-characters"),
        max_wait=max_wait,
        batch=_renamed(batch, "--batch", max_batch, "--max-batch"),
        seconds=_renamed(seconds, "--seconds", timeout, "--timeout"),
    )
    options = ServerOptions(
        host=host,
        port=port,
        engine=engine,
        api_keys=api_keys,
        rate_limit=_renamed(rate, "--rate", rate_limit, "--rate-limit"),
        proxies=proxy or (),
        log=log,
        explain=explain,
        pivot=pivot,
        limits=limits,
    )
    serve(models, options, say)


def _renamed(old: Value | None, old_name: str, new: Value, new_name: str) -> Value:
    """Return the value of an option, which may be given by its old name."""
    if old is None:
        return new
    say(f"{old_name} is now called {new_name}")
    return old
