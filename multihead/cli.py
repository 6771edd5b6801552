"""The command line: each command a thin call into the package. stdout is data, stderr is talk."""

import errno
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from multihead.config import ConfigError, Overrides, UserError, parse_settings, read_toml

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help answers in half the time, and shows [train] as it is
    help='The Transformer of "Attention Is All You Need": raw parallel text in, a translation model out.',
)

Source = Annotated[Path | None, typer.Option(help="Text to translate from; plain, .gz or - for standard input.")]
Target = Annotated[Path | None, typer.Option(help="Its translation, line by line.")]
Output = Annotated[Path, typer.Option(help="Folder to write; given again, the run in it goes on.")]
ValidSource = Annotated[Path | None, typer.Option(help="Validation text; without it a slice is held out.")]
ValidTarget = Annotated[Path | None, typer.Option(help="Its translation.")]
VocabSize = Annotated[
    int | None, typer.Option(help="Pieces in the joint vocabulary; chosen by corpus size if not given.")
]
SourceLang = Annotated[
    str | None, typer.Option(help="Language of the source, such as en; guessed from a.en if not given.")
]
TargetLang = Annotated[str | None, typer.Option(help="Language of the target.")]
Settings = Annotated[
    list[str] | None, typer.Option("--set", metavar="FIELD=VALUE", help="Any other setting: --set train.warmup=8000.")
]
RunFile = Annotated[Path | None, typer.Option("--config", help="A TOML file with settings: [train] warmup = 8000.")]


@app.command("train")
def train_command(
    output: Output,
    source: Source = None,
    target: Target = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    data: Annotated[Path | None, typer.Option(help="A corpus made by `multihead prepare`, instead of text.")] = None,
    preset_name: Annotated[str | None, typer.Option("--preset", help="tiny, small, base, big or table3-...")] = None,
    vocab_size: VocabSize = None,
    steps: Annotated[int | None, typer.Option(help="Stop after this many steps.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after this much time, preparation included.")] = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    settings: Settings = None,
    config: RunFile = None,
) -> None:
    """Train a model from raw text in one command; without text, on the embedded English-German corpus."""
    from multihead.run import Request, train

    options = {
        "model.vocab_size": vocab_size,
        "train.steps": steps,
        "train.minutes": minutes,
        "data.source_lang": source_lang,
        "data.target_lang": target_lang,
    }
    request = Request(
        output=output,
        source=source,
        target=target,
        valid_source=valid_source,
        valid_target=valid_target,
        data=data,
        preset=preset_name,
        settings=_settings(config, settings, options),
    )
    train(request)


@app.command("prepare")
def prepare_command(
    source: Annotated[Path, typer.Option(help="Text to translate from; plain, .gz or - for standard input.")],
    target: Annotated[Path, typer.Option(help="Its translation, line by line.")],
    output: Annotated[Path, typer.Option(help="Folder to write; `multihead train --data` takes it.")],
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    vocab_size: VocabSize = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    settings: Settings = None,
    config: RunFile = None,
) -> None:
    """Clean a corpus, learn its tokenizer and write token shards; says what was dropped and why."""
    from rich.console import Console

    from multihead import corpus
    from multihead.config import configure
    from multihead.journal import plain_talk

    options = {"model.vocab_size": vocab_size, "data.source_lang": source_lang, "data.target_lang": target_lang}
    run_config = configure(corpus.languages_of(source, target), _settings(config, settings, options))
    valid = (valid_source, valid_target) if valid_source and valid_target else None
    if bool(valid_source) != bool(valid_target):
        raise ConfigError("--valid-source and --valid-target go together")
    text = corpus.from_files(source, target, valid)
    corpus.prepare(text, output, run_config.data, vocab_size, plain_talk(Console(stderr=True)))


def _settings(run_file: Path | None, settings: list[str] | None, options: Mapping[str, object]) -> Overrides:
    """What the user set: the run file, then --set, then the options that have a name of their own."""
    given = {name: value for name, value in options.items() if value is not None}
    return {**(read_toml(run_file) if run_file else {}), **parse_settings(settings or []), **given}


def main() -> None:
    said_in_words(app)


def said_in_words(command: Callable[[], object]) -> None:
    """Run a command; what the user can mend is said in a sentence, never shown as a traceback."""
    try:
        command()
    except ConfigError as error:
        _fail(str(error), status=2)
    except UserError as error:
        _fail(str(error), status=1)
    except OSError as error:
        full = error.errno == errno.ENOSPC or "No space left" in str(error)
        advice = "; the disk is full: free some space and run the same command again" if full else ""
        _fail(f"cannot read or write a file: {error}{advice}", status=1)
    except KeyboardInterrupt:
        _fail("interrupted", status=1)


def _fail(message: str, status: int) -> NoReturn:
    print(f"multihead: {message}", file=sys.stderr)
    sys.exit(status)
