"""A full disk for every command that writes: a message, no half-written result, and the input as it was."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from multihead.storage.files import BUNDLED
from tests.gauntlet.damage import TEXT, train_command
from tests.gauntlet.outcome import Row, multihead

SIZES = (0, 1_000, 10_000, 100_000, 1_000_000)  # bytes after which a file cannot grow


def commands(folder: Path, output: Path) -> Mapping[str, list[object]]:
    """Return the commands by name."""
    training = train_command(folder, output)
    model, text = BUNDLED / "en-de", folder / "text.src"
    return {
        "prepare": ["prepare", *training[1:5], "--vocab-size", "270", "--output", output],
        "train": training,
        "translate -o": ["translate", model, "-i", text, "-o", output],
        "export ctranslate2": ["export", model, "--format", "ctranslate2", "--output", output],
        "export marian": ["export", model, "--format", "marian", "--output", output],
        "inspect": ["inspect", model, "A dog.", "--output", output.with_suffix(".html")],
        "average": ["average", folder / "made" / "run", "--output", output],
    }


def run(fast: bool, folder: Path) -> Row:
    row = Row("full disk")
    made = multihead(*train_command(folder, folder / "made" / "run"), memory=None, timeout=300)
    row.add_outcome("train", made, "it failed" if made.status else None)
    multihead("translate", BUNDLED / "en-de", stdin=TEXT, cache=folder / "cache")
    names = ["prepare", "translate -o"] if fast else list(commands(folder, folder / "out" / "run"))
    for name in names:
        for size in SIZES[1:3] if fast else SIZES:
            output = folder / "out" / "run"
            shutil.rmtree(output.parent, ignore_errors=True)
            output.parent.mkdir()
            command = commands(folder, output)[name]
            outcome = multihead(*command, memory=None, timeout=300, file_size=size, cache=folder / "cache")
            partial = [path.name for path in output.parent.rglob("*.partial")]
            problem = f"{partial[0]} was left" if partial else None
            if outcome.status and "Traceback" not in outcome.stderr and "multihead: " not in outcome.stderr:
                problem = "no message"
            row.add_outcome(f"{name}, {size:,} bytes", outcome, problem)
    return row
