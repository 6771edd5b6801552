"""The command line: each command a thin call into the package. stdout is data, stderr is talk."""

from multihead.cli.app import app
from multihead.cli.bench import bench
from multihead.cli.paper import paper
from multihead.console import run_and_report_errors

app.add_typer(bench, name="bench")


app.add_typer(paper, name="paper")


def main() -> None:
    run_and_report_errors(app)
