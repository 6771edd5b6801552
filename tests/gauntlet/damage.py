"""Files that change on disk: models, cached exports, checkpoints and prepared data. Noticed, or without effect."""

import random
import shutil
from pathlib import Path

from multihead.storage.files import BUNDLED
from tests.conftest import QUICK, copy_or_reverse, write_pairs
from tests.gauntlet.outcome import Outcome, Row, multihead

TEXT = "A man rides a bike.\nTwo dogs are playing in the snow.\n"
SETTINGS = {**QUICK, "train.steps": 4, "train.save_every": 2, "train.validate_every": 4}


def mutate(path: Path, rng: random.Random) -> str:
    """Damage a file in one of seven ways, and return which."""
    content = bytearray(path.read_bytes())
    place = rng.randrange(max(1, len(content)))
    kind = rng.choice(["flip", "zero", "truncate", "empty", "append", "noise", "delete"])
    match kind:
        case "flip":
            content[place : place + 1] = bytes(byte ^ 1 << rng.randrange(8) for byte in content[place : place + 1])
        case "zero":
            content[place : place + 512] = bytes(len(content[place : place + 512]))
        case "truncate":
            del content[place:]
        case "empty":
            content.clear()
        case "append":
            content += rng.randbytes(16)
        case "noise":
            content[place : place + 64] = rng.randbytes(len(content[place : place + 64]))
        case _:
            path.unlink()
            return "delete"
    path.write_bytes(content)
    return f"{kind} at {place}"


def train_command(folder: Path, output: Path, steps: int = 4) -> list[object]:
    text = write_pairs(folder, copy_or_reverse(120, seed=1))
    settings = [f"--set={name}={value}" for name, value in {**SETTINGS, "train.steps": steps}.items()]
    return ["train", "--source", text[0], "--target", text[1], "--preset", "base", "--output", output, *settings]


def _models(row: Row, n: int, folder: Path, rng: random.Random) -> None:
    """A model that is damaged translates as before, or not at all. Its card is text for people."""
    model = folder / "model"
    expected = multihead("translate", BUNDLED / "en-de", stdin=TEXT, cache=folder / "cache").stdout
    for _ in range(n):
        shutil.rmtree(model, ignore_errors=True)
        shutil.copytree(BUNDLED / "en-de", model)
        path = rng.choice(sorted(path for path in model.iterdir() if path.name != "README.md"))
        how = mutate(path, rng)
        outcome = multihead("translate", model, stdin=TEXT, cache=folder / "cache")
        row.add_outcome(f"model {path.name} {how}", outcome, _other_text(outcome, expected))


def _exports(row: Row, n: int, folder: Path, rng: random.Random) -> None:
    """A damaged export is made again."""
    cache = folder / "exports"
    expected = multihead("translate", BUNDLED / "en-de", stdin=TEXT, cache=cache).stdout
    for _ in range(n):
        path = rng.choice(sorted(path for path in cache.glob("multihead/ctranslate2/*/int8/*") if path.is_file()))
        how = mutate(path, rng)
        outcome = multihead("translate", BUNDLED / "en-de", stdin=TEXT, cache=cache)
        problem = "refused" if outcome.status else _other_text(outcome, expected)
        row.add_outcome(f"export {path.name} {how}", outcome, problem)


def _other_text(outcome: Outcome, expected: str) -> str | None:
    return f"status 0 with {outcome.stdout[:80]!r}" if outcome.status == 0 and outcome.stdout != expected else None


def _checkpoints(row: Row, n: int, folder: Path, rng: random.Random) -> None:
    """A damaged checkpoint costs time, never the result."""
    whole, half, run = (folder / name / "run" for name in ("whole", "half", "damaged"))
    for output, steps in ((whole, 4), (half, 2)):
        made = multihead(*train_command(folder, output, steps), memory=None, timeout=300)
        row.add_outcome(f"{steps} steps", made, "it failed" if made.status else None)
    for _ in range(n):
        shutil.rmtree(run, ignore_errors=True)
        shutil.copytree(half, run)
        path = rng.choice(sorted((run / "checkpoints" / "step-2").iterdir()))
        how = mutate(path, rng)
        outcome = multihead(*train_command(folder, run), memory=None, timeout=300)
        row.add_outcome(f"checkpoint {path.name} {how}", outcome, _other_weights(outcome, run, whole, must_work=True))


def _prepared(row: Row, n: int, folder: Path, rng: random.Random) -> None:
    """Damaged data is refused. The undamaged run is that of the checkpoints, or trained here."""
    whole, data, run = folder / "whole" / "run", folder / "data", folder / "from-data"
    for _ in range(n):
        for old in (data, run):
            shutil.rmtree(old, ignore_errors=True)
        shutil.copytree(whole / "data", data)
        path = rng.choice(sorted(data.iterdir()))
        how = mutate(path, rng)
        settings = [f"--set={name}={value}" for name, value in SETTINGS.items() if not name.startswith("data.max")]
        command = ("train", "--data", data, "--preset", "base", "--output", run, *settings)
        outcome = multihead(*command, memory=None, timeout=300)
        row.add_outcome(f"data {path.name} {how}", outcome, _other_weights(outcome, run, whole))


def _other_weights(outcome: Outcome, run: Path, whole: Path, must_work: bool = False) -> str | None:
    if outcome.status:
        return "refused" if must_work else None
    same = (run / "model.safetensors").read_bytes() == (whole / "model.safetensors").read_bytes()
    return None if same else "other weights"


def run(fast: bool, folder: Path) -> Row:
    row, rng = Row("damaged files"), random.Random(2)
    for n, area in ((70, _models), (50, _exports), (40, _checkpoints), (40, _prepared)):
        area(row, 1 if fast else n, folder, rng)
    return row
