"""Multi30k en-de and en-fr on two cores: one model of three languages first, then one for each of the two.

    python -m benchmarks.recipes.multi30k FOLDER-OF-MULTI30K OUTPUT

29,000 captions are few, and a model learns them by heart. So the first one has six tasks of the same text: English,
German and French, each into each other. It then writes the English side anew from the German and the French one
(Sennrich et al., 2016: back-translation). The models for German and for French, a core each, start from it: they are
trained on with all three, and in the end with what people wrote. Interrupted, the same command goes on.
docs/reproduce.md has figures.
"""

import multiprocessing
import sys
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import permutations
from pathlib import Path

import torch

import multihead
from multihead.checkpoint import published_step
from multihead.config import Overrides, read_toml
from multihead.files import replace_text
from multihead.run import Request, train
from multihead.translate import Input

# Before a source, the language that it is wanted in; marks that hardly any caption has.
MARK = {"en": "^", "de": "@", "fr": "#"}
TARGETS = ("de", "fr")

THEN = read_toml(Path(__file__).with_name("multi30k.toml"))
FIRST: Overrides = {**THEN, "model.dropout": 0.1, "train.lr_scale": 1.0, "train.steps": 12_000}
LAST: Overrides = {**THEN, "model.dropout": 0.15, "train.lr_scale": 0.3, "train.steps": 1800, "train.save_every": 50}


def main(folder: Path, output: Path) -> None:
    """Train them all; en-de/ and en-fr/ in `output` are what is wanted."""
    output.mkdir(parents=True, exist_ok=True)
    train_joint(folder, output)
    for language in TARGETS:
        write_english(folder, output, language)
    apart = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(len(TARGETS), apart, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        list(pool.map(partial(train_one, folder, output), TARGETS))


def train_joint(folder: Path, output: Path) -> None:
    """One model for every direction between the three languages; German and French from English validate it."""
    directions = {"train": list(permutations(MARK, 2)), "val": [("en", target) for target in TARGETS]}
    for split, wanted in directions.items():
        lines = {language: list(Input(folder / f"{split}.{language}.gz")) for language in MARK}
        write(output / f"{split}.source", (MARK[target] + line for source, target in wanted for line in lines[source]))
        write(output / f"{split}.target", (line for _, target in wanted for line in lines[target]))
    train_to_the_end(
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
        lines = [MARK["en"] + line for line in Input(folder / f"train.{language}.gz")]
        write(english, (translation.text for translation in translator.translate(lines, shortlist=False)))


def train_one(folder: Path, output: Path, language: str) -> None:
    """The first model, trained on for one language."""
    written = folder / "train.en.gz"
    mixed = {written: 3.0, **{output / f"from-{other}.en": 1.0 for other in TARGETS}}
    steps = [(f"mixed-{language}", "joint", mixed, THEN), (f"en-{language}", f"mixed-{language}", {written: 1.0}, LAST)]
    for name, start, english, settings in steps:
        train_to_the_end(
            Request(
                output=output / name,
                source=list(english),
                target=[folder / f"train.{language}.gz"] * len(english),
                weights=list(english.values()),
                valid_source=folder / "val.en.gz",
                valid_target=folder / f"val.{language}.gz",
                preset="tiny",
                settings={
                    **settings,
                    "train.start_from": str(output / start),
                    "data.source_lang": "en",
                    "data.target_lang": language,
                },
            )
        )


def train_to_the_end(request: Request) -> None:
    """Train, and leave if that was interrupted: a model that is half trained must not be the start of the next."""
    if published_step(train(request)) is None:
        sys.exit("interrupted: the same command goes on")


def write(path: Path, lines: Iterable[str]) -> None:
    replace_text(path, "".join(f"{line}\n" for line in lines))


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
