"""Generate the pages of docs/ that repeat what the code says (`make docs`). A test checks that they are current."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from pydantic import TypeAdapter

from multihead.cli.main import app
from multihead.config.presets import PRESETS
from multihead.config.resolve import flatten
from multihead.config.schema import DataConfig, ModelConfig, RunConfig, TrainConfig

NOTE = "<!-- Written by docs/generate.py; `make docs` writes it anew. -->\n"


def config_page() -> str:
    """Return the page of every setting with its default and description, and of every preset."""
    lines = [
        "# Settings\n",
        NOTE,
        "Set any of these with `--set train.warmup=8000`, or in a TOML file given by `--config run.toml`:\n",
        "```toml\n[train]\nwarmup = 8000\n```\n",
        "The defaults are the paper's base model and its training.\n",
        "| setting | default | meaning |",
        "|---|---|---|",
    ]
    descriptions = _descriptions()
    lines += [f"| `{name}` | `{default!r}` | {descriptions[name]} |" for name, default in flatten(RunConfig()).items()]
    lines += ["\n## Presets\n", "| preset | what it sets |", "|---|---|"]
    for name, settings in PRESETS.items():
        what = ", ".join(f"`{field}={value}`" for field, value in settings.items())
        lines.append(f"| `{name}` | {what or 'nothing: the defaults'} |")
    return "\n".join(lines) + "\n"


def _descriptions() -> dict[str, str]:
    """Return the description of each setting."""
    return {
        f"{section}.{name}": field["description"].replace("|", "\\|")
        for section, config in (("model", ModelConfig), ("data", DataConfig), ("train", TrainConfig))
        for name, field in TypeAdapter(config).json_schema()["properties"].items()
    }


def cli_page() -> str:
    """Return the page with the help of every command."""
    lines = ["# Commands\n", NOTE]
    for name in sorted(_command_names()):
        lines += [f"## multihead {name}\n", "```", _help(name), "```\n"]
    return "\n".join(lines)


def _command_names() -> list[str]:
    """Return the commands as they are typed, such as `paper table1`."""
    names = [str(command.name) for command in app.registered_commands]
    for group in app.registered_groups:
        commands = group.typer_instance.registered_commands if group.typer_instance else []
        names += [f"{group.name} {command.name}" for command in commands]
    return names


def _help(command: str) -> str:
    environment = {**os.environ, "COLUMNS": "100"}
    arguments = [sys.executable, "-m", "multihead", *command.split(), "--help"]
    shown = subprocess.run(arguments, env=environment, capture_output=True, text=True, check=True).stdout
    return shown.replace("python -m multihead", "multihead").strip()


PAGES: dict[str, Callable[[], str]] = {"config.md": config_page, "cli.md": cli_page}

if __name__ == "__main__":
    for page, write in PAGES.items():
        (Path(__file__).parent / page).write_text(write(), encoding="utf-8")
