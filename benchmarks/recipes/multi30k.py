"""Multi30k en-de and en-fr on two cores: one model of three languages first, then one for each of the two.

    python -m benchmarks.recipes.multi30k FOLDER-OF-MULTI30K OUTPUT

29,000 captions are few, and a model learns them by heart. So the first one has six tasks of the same text: English,
German and French, each into each other. It then writes the English side anew from the German and the French one
(Sennrich et al., 2016: back-translation). The models for German and for French, a core each, start from it: they are
trained on with all three, and in the end with what people wrote. Interrupted, the same command goes on.
docs/reproduce.md has figures.
"""

import os
import subprocess
import sys
from itertools import permutations
from pathlib import Path

import multihead
from multihead.config import Overrides, read_toml
from multihead.files import replace_text
from multihead.run import Request, train
from multihead.text import read_lines

# Before a source, the language that it is wanted in; marks that hardly any caption has.
MARK = {"en": "^", "de": "@", "fr": "#"}
TARGETS = ("de", "fr")

THEN = read_toml(Path(__file__).with_name("multi30k.toml"))
FIRST: Overrides = {**THEN, "model.dropout": 0.1, "train.lr_scale": 1.0, "train.steps": 12_000}
LAST: Overrides = {**THEN, "model.dropout": 0.15, "train.lr_scale": 0.3, "train.steps": 1800, "train.save_every": 50}

WEIGHTS = [3.0, 1.0, 1.0]  # of English as people wrote it, and as the first model did from German and French


def main(folder: Path, output: Path) -> None:
    """Train them all; en-de/ and en-fr/ in `output` are what is wanted."""
    output.mkdir(parents=True, exist_ok=True)
    train_joint(folder, output)
    for language in TARGETS:
        write_english(folder, output, language)
    command = [sys.executable, "-m", "benchmarks.recipes.multi30k", str(folder), str(output)]
    of_one_core = {**os.environ, "OMP_NUM_THREADS": "1"}
    runs = [subprocess.Popen([*command, language], env=of_one_core) for language in TARGETS]
    if any([run.wait() for run in runs]):
        sys.exit(1)


def train_joint(folder: Path, output: Path) -> None:
    """One model for every direction between the three languages; German and French from English validate it."""
    directions = {"train": list(permutations(MARK, 2)), "val": [("en", target) for target in TARGETS]}
    for split, wanted in directions.items():
        lines = {language: read(folder / f"{split}.{language}.gz") for language in MARK}
        write(output / f"{split}.source", [MARK[target] + line for source, target in wanted for line in lines[source]])
        write(output / f"{split}.target", [line for _, target in wanted for line in lines[target]])
    train(
        Request(
            output=output / "joint",
            source=output / "train.source",
            target=output / "train.target",
            valid_source=output / "val.source",
            valid_target=output / "val.target",
            preset="tiny",
            settings={**FIRST, "data.source_lang": "en", "data.target_lang": "de"},
        )
    )


def write_english(folder: Path, output: Path, language: str) -> None:
    """The English side as the first model says it, given the other one."""
    english = output / f"from-{language}.en"
    if not english.exists():
        translator = multihead.load(output / "joint", engine="ctranslate2")
        lines = [MARK["en"] + line for line in read(folder / f"train.{language}.gz")]
        write(english, [translation.text for translation in translator.translate(lines, shortlist=False)])


def train_one(folder: Path, output: Path, language: str) -> None:
    """The first model, trained on for one language."""
    written = folder / "train.en.gz"
    anew = [output / f"from-{other}.en" for other in TARGETS]
    joint, mixed = output / "joint", output / f"mixed-{language}"
    train(request(folder, language, mixed, [written, *anew], {**THEN, "train.start_from": str(joint)}))
    train(request(folder, language, output / f"en-{language}", [written], {**LAST, "train.start_from": str(mixed)}))


def request(folder: Path, language: str, output: Path, english: list[Path], settings: Overrides) -> Request:
    """A run from one or several English sides into a language."""
    return Request(
        output=output,
        source=english,
        target=[folder / f"train.{language}.gz"] * len(english),
        weights=WEIGHTS if len(english) > 1 else [1.0],
        valid_source=folder / "val.en.gz",
        valid_target=folder / f"val.{language}.gz",
        preset="tiny",
        settings={**settings, "data.source_lang": "en", "data.target_lang": language},
    )


def read(path: Path) -> list[str]:
    return [line.decode() for line in read_lines(path)]


def write(path: Path, lines: list[str]) -> None:
    replace_text(path, "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    folder, output, *languages = sys.argv[1:]
    for language in languages:
        train_one(Path(folder), Path(output), language)
    if not languages:
        main(Path(folder), Path(output))
