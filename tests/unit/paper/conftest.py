"""Run a command of `multihead paper`."""

from pathlib import Path

from typer.testing import CliRunner

from multihead.cli.main import app


def run(*arguments: str | Path) -> str:
    result = CliRunner().invoke(app, ["paper", *map(str, arguments)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout
