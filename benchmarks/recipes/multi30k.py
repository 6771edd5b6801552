"""Multi30k en-de or en-fr: a model, its own translations of the training text, and that model trained on with both.

    OMP_NUM_THREADS=1 python -m benchmarks.recipes.multi30k FOLDER-OF-MULTI30K de OUTPUT

What a model says of the text that it was trained on is simpler than what people wrote, and another way to say it; a
small model learns more from both than from people alone (Kim and Rush, 2016). Interrupted, the same command goes on.
"""

import sys
from pathlib import Path

import multihead
from multihead.config import Overrides, read_toml
from multihead.files import replace_text
from multihead.run import Request, train
from multihead.text import read_lines

FIRST = read_toml(Path(__file__).with_name("multi30k.toml"))
THEN: Overrides = {**FIRST, "train.lr_scale": 0.6, "train.steps": 12_600}


def main(folder: Path, language: str, output: Path) -> None:
    teacher, said = output / "teacher", output / f"said.{language}"
    written = folder / f"train.{language}.gz"
    train(request(folder, language, teacher, [written], FIRST))
    if not said.exists():
        replace_text(said, translations(teacher, folder / "train.en.gz"))
    train(request(folder, language, output / "model", [written, said], {**THEN, "train.start_from": str(teacher)}))


def request(folder: Path, language: str, output: Path, targets: list[Path], settings: Overrides) -> Request:
    """A run from English; all the targets have the same source."""
    return Request(
        output=output,
        source=[folder / "train.en.gz"] * len(targets),
        target=targets,
        valid_source=folder / "val.en.gz",
        valid_target=folder / f"val.{language}.gz",
        preset="tiny",
        settings={**settings, "data.source_lang": "en", "data.target_lang": language},
    )


def translations(model: Path, source: Path) -> str:
    """What a model says of a text, a line each."""
    translator = multihead.load(model, engine="ctranslate2:float32")
    found = translator.translate([line.decode() for line in read_lines(source)], alpha=1.0, shortlist=False)
    return "".join(f"{translation.text}\n" for translation in found)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3]))
