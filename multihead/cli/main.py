"""The command `multihead` and its subcommands. stdout carries results, stderr messages."""

from collections.abc import Callable
from typing import Annotated, Any

import typer

from multihead import __version__
from multihead.cli import bench, bulk, explain, models, paper, serve, train, translate
from multihead.cli.command import FastCommand, FastGroup
from multihead.console import run_and_report_errors

Commands = dict[str, Callable[..., Any]]

COMMANDS: Commands = {
    "train": train.train_command,
    "prepare": train.prepare_command,
    "average": train.average_command,
    "translate": translate.translate_command,
    "evaluate": translate.evaluate_command,
    "inspect": translate.inspect_command,
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
    "schedule": paper.schedule_command,
    "positions": paper.positions_command,
}


def _group(commands: Commands, help_text: str) -> typer.Typer:
    group = typer.Typer(
        cls=FastGroup,
        add_completion=False,
        no_args_is_help=True,
        pretty_exceptions_enable=False,
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


app = _group(COMMANDS, 'The Transformer of "Attention Is All You Need": raw parallel text in, a translation model out.')


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


app.add_typer(_group(BENCH, "Measure speed beside an alternative in the same run."), name="bench")
app.add_typer(_group(PAPER, "Reproduce the paper's tables and figures: our results beside the paper's."), name="paper")


def main() -> None:
    run_and_report_errors(app)
