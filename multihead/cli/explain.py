"""`multihead explain`."""

from pathlib import Path
from typing import Annotated

import typer

from multihead.cli import completion
from multihead.cli.options import Quiet
from multihead.console import say, set_verbosity
from multihead.errors import UsageError, is_installed


def explain_command(
    model: Annotated[
        str | None,
        typer.Argument(
            help="A model folder, the name of a bundled model, or hf:owner/name.  [default: lesson]",
            autocompletion=completion.models,
        ),
    ] = None,
    text: Annotated[str | None, typer.Argument(help="The sentence that the page begins with.")] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write, .html.")] = Path("lesson.html"),
    open_page: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
    toy: Annotated[bool, typer.Option("--toy", help="Without a model: worked examples by hand, and labs.")] = False,
    quiet: Quiet = False,
) -> None:
    """Write the lesson, a page with every number of a sentence. It contains the model and works offline."""
    set_verbosity(quiet)
    from multihead.interop.hub import find_model
    from multihead.lesson.explain import measure_roles, write_lesson, write_toy_lesson
    from multihead.storage.model_folder import ModelFolder

    if output.suffix != ".html":
        raise UsageError(f"--output {output}: the page is HTML, so its name must end in .html")
    if toy and model is not None:
        raise UsageError(f"--toy writes a page without a model: leave out {model}")
    if toy:
        write_toy_lesson(output)
    else:
        folder = ModelFolder.open(find_model(model or "lesson"))
        roles = measure_roles(folder) if is_installed("torch") else None
        if not write_lesson(folder, text, output, roles):
            reason = "which is too large or of another kind"
            say(f"The page carries the numbers of one sentence instead of the model, {reason}.")
    say(f"written to {output}")
    if open_page:
        typer.launch(output.resolve().as_uri())
