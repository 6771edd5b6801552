"""The command `multihead` and its subcommands. stdout carries results, stderr messages."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from multihead import __version__
from multihead.cli import bench, bulk, explain, inspect, models, paper, serve, train, translate
from multihead.cli.command import FastCommand, FastGroup
from multihead.console import run_and_report_errors

Commands = dict[str, Callable[..., Any]]

COMMANDS: Commands = {
    "train": train.train_command,
    "prepare": train.prepare_command,
    "backtranslate": train.backtranslate_command,
    "average": train.average_command,
    "translate": translate.translate_command,
    "evaluate": translate.evaluate_command,
    "inspect": inspect.inspect_command,
    "explain": explain.explain_command,
    "export": models.export_command,
    "import": models.import_command,
    "serve": serve.serve_command,
    "bulk": bulk.bulk_command,
    "plan": train.plan_command,
    "info": models.info_command,
}
BENCH: Commands = {
    "train": bench.bench_train_command,
    "translate": bench.bench_translate_command,
    "serve": bench.bench_serve_command,
}
PAPER: Commands = {
    "table1": paper.table1_command,
    "table2": paper.table2_command,
    "table3": paper.table3_command,
    "parsing": paper.parsing_command,
    "schedule": paper.schedule_command,
    "positions": paper.positions_command,
}


FIRST_STEPS = """\
The Transformer of "Attention Is All You Need", from raw text to translations.

Translate
  multihead translate en-de "Where is the station?"
  multihead serve en-de                # a web page at http://127.0.0.1:5000

Train your own model
  multihead train --source corpus.en --target corpus.de --output my-model
  multihead translate my-model "Where is the station?"

Learn how it works
  multihead explain --open             # a page with every number of a sentence
  multihead inspect en-de "A man rides a bike." --output attention.html

All commands: multihead --help          One command: multihead train --help"""


def _group(commands: Commands, help_text: str, is_main: bool = False) -> typer.Typer:
    group = typer.Typer(
        cls=FastGroup,
        add_completion=is_main,
        no_args_is_help=not is_main,
        invoke_without_command=is_main,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["--help", "-h"]} if is_main else None,  # commands inherit it
        rich_markup_mode=None,  # plain help is printed in half the time, and shows [train] as written
        help=help_text,
    )
    for name, command in commands.items():
        group.command(name, cls=FastCommand)(command)
    return group


def _print_version(is_given: bool) -> None:
    if is_given:
        print(f"multihead {__version__}")
        raise typer.Exit


app = _group(COMMANDS, 'The Transformer of "Attention Is All You Need", from raw text to translations.', True)


@app.callback()
def _options(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    if context.invoked_subcommand is None:
        print(FIRST_STEPS)


app.add_typer(_group(BENCH, "Measure speed beside an alternative in the same run."), name="bench")
app.add_typer(_group(PAPER, "Reproduce the paper's tables and figures."), name="paper")


def main() -> None:
    run_and_report_errors(app)
