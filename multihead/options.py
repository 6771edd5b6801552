"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

Model = Annotated[str, typer.Argument(help="A model folder, the name of a bundled model, or hf:owner/name.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Any other setting: --set train.warmup=8000.")
]
Picture = Annotated[Path | None, typer.Option("--output", help="A picture to write, .png.")]
