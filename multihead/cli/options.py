"""Options that several commands share."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from multihead.config.resolve import parse_settings, read_toml, search_config
from multihead.config.schema import ALPHA, ENGINES, SearchConfig, Settings, check_engine
from multihead.errors import UsageError

Model = Annotated[str, typer.Argument(help="A model folder, the name of a bundled model, or hf:owner/name.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SetOptions = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Any other setting: --set train.warmup=8000.")
]
Picture = Annotated[Path | None, typer.Option("--output", help="A picture to write, .png.")]

Source = Annotated[
    list[Path] | None, typer.Option(help="Text to translate from; plain, .gz or - for standard input. May be repeated.")
]
Target = Annotated[list[Path] | None, typer.Option(help="Its translation, line by line; one for each --source.")]
Weight = Annotated[
    list[float] | None,
    typer.Option(help="How often the pairs of a --source come in an epoch; one for each, by default 1."),
]
Output = Annotated[Path, typer.Option(help="Folder to write; given again, the run in it goes on.")]
ValidSource = Annotated[Path | None, typer.Option(help="Validation text; without it a slice is held out.")]
ValidTarget = Annotated[Path | None, typer.Option(help="Its translation.")]
VocabSize = Annotated[
    int | None, typer.Option(help="Pieces in the joint vocabulary; chosen by corpus size if not given.")
]
BaseModelName = Annotated[
    str | None, typer.Option("--from", help="A trained model to start from: its shape, vocabulary and weights.")
]
SourceLang = Annotated[
    str | None, typer.Option(help="Language of the source, such as en; guessed from a.en if not given.")
]
TargetLang = Annotated[str | None, typer.Option(help="Language of the target.")]
PRESET_HELP = (
    "tiny, small, thorough, base, big, small-fast, base-fast, rnn-attention, convs2s, bytenet or table3-...; "
    "chosen by text and time if not given."
)
RunFile = Annotated[Path | None, typer.Option("--config", help="A TOML file with settings: [train] warmup = 8000.")]


Beam = Annotated[int, typer.Option(help="Hypotheses kept at every step; 1 is greedy.")]
Alpha = Annotated[
    float | None,
    typer.Option(help=f"Length penalty ((5 + length) / 6)^alpha.  [default: what the model stores, else {ALPHA}]"),
]
Split = Annotated[
    bool | None,
    typer.Option(
        "--split/--no-split",
        help="Translate each sentence separately, or each line as a whole.  [default: as the model was trained]",
    ),
]
Engine = Annotated[
    str,
    typer.Option(help=f"{', '.join(ENGINES)}. auto: CTranslate2 where it can, one sentence at a time; else torch."),
]
Exact = Annotated[bool, typer.Option("--exact", help="The reference search: torch in float32, no shortlist, no guard.")]
NoGuard = Annotated[
    bool, typer.Option("--no-guard", help="Do not search again for what is empty, repeats itself or loses a number.")
]


def search_options(exact: bool, no_guard: bool, **options: object) -> SearchConfig:
    """A search as the command line describes it."""
    if exact:
        options |= {"shortlist": False}
    return search_config(guard=not (exact or no_guard), **options)


def engine_name(engine: str, exact: bool) -> str:
    check_engine(engine)
    if exact and engine not in ("auto", "torch"):
        raise UsageError(f"--exact searches with torch in float32: leave out --engine {engine}")
    return "torch" if exact else engine


def user_settings(run_file: Path | None, settings: list[str] | None, options: Mapping[str, object]) -> Settings:
    """What the user set: the run file, then --set, then the options that have a name of their own."""
    given = {name: value for name, value in options.items() if value is not None}
    return {**(read_toml(run_file) if run_file else {}), **parse_settings(settings or []), **given}
