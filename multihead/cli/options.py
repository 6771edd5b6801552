"""Options that several commands share."""

from pathlib import Path
from typing import Annotated

import typer

from multihead.cli import completion
from multihead.config.resolve import search_config
from multihead.config.schema import ALPHA, BEAM, ENGINES, SearchConfig, check_engine
from multihead.errors import UsageError

Model = Annotated[
    str,
    typer.Argument(
        help="A model folder, the name of a bundled model, or hf:owner/name.", autocompletion=completion.models
    ),
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show errors only.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Show more detail.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
SetOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="FIELD=VALUE",
        help="Any other setting: --set train.warmup=8000.",
        autocompletion=completion.settings,
    ),
]
Picture = Annotated[Path | None, typer.Option("--output", help="A .png picture to write.")]

Source = Annotated[
    list[Path] | None, typer.Option(help="Text to translate from: plain, .gz, or - for standard input. Repeatable.")
]
Target = Annotated[list[Path] | None, typer.Option(help="Its translation, line by line; one for each --source.")]
CorpusFiles = Annotated[
    list[Path] | None,
    typer.Option(
        "--corpus",
        help="A file with both sides: TMX, XLIFF, PO, TSV, CSV, JSONL, Parquet or an OPUS zip, also as .gz or .xz. "
        "Repeatable.",
    ),
]
Weight = Annotated[
    list[float] | None,
    typer.Option(
        help="How often its pairs occur in an epoch; one for each --source, then for each --corpus.  [default: 1]"
    ),
]
TaskName = Annotated[
    str | None,
    typer.Option(
        "--task",
        metavar="NAME",
        help="In place of text, a generated task: copy, reverse, sort, add, parse or questions.",
        autocompletion=completion.tasks,
    ),
]
Output = Annotated[Path, typer.Option("--output", "-o", help="Folder to write; a run that is in it is resumed.")]
ValidSource = Annotated[
    list[Path] | None,
    typer.Option(
        help="Validation text; repeatable for several directions.  [default: a slice of the text is held out]"
    ),
]
ValidTarget = Annotated[list[Path] | None, typer.Option(help="Its translation.")]
BothWays = Annotated[
    bool,
    typer.Option("--both-ways", help="One model for both directions of every corpus: `translate --to` chooses one."),
]
Preset = Annotated[
    str | None,
    typer.Option(
        help="tiny, small, thorough, base, big, small-fast, base-fast, rnn, rnn-attention, convs2s, bytenet, "
        "neural-gpu, memory-network or table3-....  [default: fits text and time]",
        autocompletion=completion.presets,
    ),
]
VocabSize = Annotated[
    int | None, typer.Option(help="Size of the joint vocabulary.  [default: by the size of the corpus]")
]
BaseModelName = Annotated[
    str | None,
    typer.Option(
        "--from",
        help="A base model to fine-tune: its shape, vocabulary and weights.",
        autocompletion=completion.models,
    ),
]
NewVocabulary = Annotated[
    bool,
    typer.Option(
        "--new-vocabulary",
        help="With --from: keep its layers, and learn a vocabulary that fits the text, as for another language.",
    ),
]
Rehearse = Annotated[
    float | None,
    typer.Option(
        metavar="SHARE",
        help="With --from: pairs of the base model's own text for each new one, so that it is not forgotten; 0 for "
        "none.  [default: 1 if its folder has the text]",
    ),
]
Monolingual = Annotated[
    list[Path] | None,
    typer.Option(
        help="More text in the target language only: a model of the opposite direction, trained first in a quarter of "
        "the steps or minutes, translates it (back-translation). With --teacher, text in the source language. "
        "Repeatable."
    ),
]
Reverse = Annotated[
    str | None,
    typer.Option(
        "--reverse", metavar="MODEL", help="For --monolingual: a model that translates back, if there is one."
    ),
]
Teacher = Annotated[
    str | None,
    typer.Option(
        "--teacher",
        metavar="MODEL",
        help="Learn also from its translations of the sources and of --monolingual (distillation).",
    ),
]
Steps = Annotated[int | None, typer.Option(help="Stop after this many steps.")]
Minutes = Annotated[float | None, typer.Option(help="End within this much time, preparation and publishing included.")]
SourceLang = Annotated[
    list[str] | None,
    typer.Option(
        help="Source language, such as en: one, or one for each --source and --corpus.  [default: from the name of a "
        "file a.en]"
    ),
]
TargetLang = Annotated[list[str] | None, typer.Option(help="Target language.")]
RunFile = Annotated[Path | None, typer.Option("--config", help="A TOML file with settings: [train] warmup = 8000.")]


To = Annotated[
    str | None, typer.Option("--to", metavar="LANG", help="Language to translate into, for a model of several.")
]
Beam = Annotated[int | None, typer.Option(help=f"Beam size; 1 is greedy.  [default: {BEAM}]")]
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
    typer.Option(help=f"{', '.join(ENGINES)}; auto chooses the fastest.", autocompletion=completion.engines),
]
Exact = Annotated[bool, typer.Option("--exact", help="The reference search: torch in float32, no shortlist, no guard.")]
NoGuard = Annotated[
    bool,
    typer.Option("--no-guard", help="Do not search again if an output is empty, repeats itself or loses a number."),
]


def search_options(exact: bool, no_guard: bool, **options: object) -> SearchConfig:
    """Return the search settings that the options describe."""
    if exact:
        options |= {"shortlist": False}
    return search_config(guard=not (exact or no_guard), **options)


def engine_name(engine: str, exact: bool) -> str:
    """Return the name of the engine to use."""
    check_engine(engine)
    if exact and engine not in ("auto", "torch"):
        raise UsageError(f"--exact searches with torch in float32: leave out --engine {engine}")
    return "torch" if exact else engine
