"""Options are read as Typer reads them, though values that have their type are not converted."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from multihead.cli.command import FastCommand, FastGroup

ARGUMENTS: list[list[str]] = [
    ["a"],
    ["a", "b", "c"],
    ["a", "--number", "3", "--share", "0.5", "--flag"],
    ["a", "--name", "x", "--path", "y", "--more", "1", "--more", "2"],
    ["a", "--no-choice", "--numbers", "1", "--numbers", "2"],
    [],
    ["--version"],
    ["a", "--unknown"],
]


def command(  # noqa: PLR0913 - one parameter of each kind
    model: str,
    text: Annotated[list[str] | None, typer.Argument()] = None,
    number: Annotated[int | None, typer.Option(min=0)] = None,
    numbers: Annotated[list[int] | None, typer.Option()] = None,
    share: float = 1.0,
    name: str = "none",
    path: Path = Path("-"),
    more: Annotated[list[str] | None, typer.Option()] = None,
    flag: Annotated[bool, typer.Option("--flag")] = False,
    choice: Annotated[bool | None, typer.Option("--choice/--no-choice")] = None,
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=lambda given: _stop(given))] = False,
) -> None:
    print([(type(value).__name__, value) for value in locals().values()])


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="threads are counted in /proc")
@pytest.mark.parametrize(
    ("given", "shown"), [({}, "True 1 None"), ({"OPENBLAS_NUM_THREADS": "1"}, "False 1 1")], ids=["unset", "set"]
)
def test_numpy_starts_no_threads_and_leaves_the_environment_as_it_was(given: dict[str, str], shown: str) -> None:
    code = (
        "import os, sys; from multihead.cli.command import import_numpy_with_one_thread as f; f(); "
        "print('numpy' in sys.modules, len(os.listdir('/proc/self/task')), os.environ.get('OPENBLAS_NUM_THREADS'))"
    )
    inherited = {name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"}
    result = subprocess.run(
        [sys.executable, "-c", code], env={**inherited, **given}, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == shown


def _stop(is_given: bool) -> None:
    if is_given:
        print("version 1")
        raise typer.Exit


def run(arguments: list[str], command_class: Any, group_class: Any) -> tuple[int, str]:
    app = typer.Typer(cls=group_class, rich_markup_mode=None, add_completion=False)
    app.command("one", cls=command_class)(command)
    app.command("other")(lambda: None)
    result = CliRunner().invoke(app, ["one", *arguments])
    return result.exit_code, result.output


@pytest.mark.parametrize("arguments", ARGUMENTS)
def test_values_are_those_of_typer(arguments: list[str]) -> None:
    expected = run(arguments, typer.core.TyperCommand, typer.core.TyperGroup)
    assert run(arguments, FastCommand, FastGroup) == expected


@pytest.mark.parametrize(
    ("value", "words"),
    [("x", "'x' must be a whole number"), ("-1", "'-1' must be at least 0"), ("1.5", "'1.5' must be")],
)
def test_a_wrong_value_is_refused_as_by_typer_in_our_words(value: str, words: str) -> None:
    status, _ = run(["a", "--number", value], typer.core.TyperCommand, typer.core.TyperGroup)
    ours = run(["a", "--number", value], FastCommand, FastGroup)
    assert ours[0] == status == 2
    assert f"Invalid value for '--number': {words}" in ours[1]
