"""Make the training text of the bundled en-de: Tatoeba with more names than Tom and Mary.

    python -m benchmarks.recipes.tatoeba FOLDER-OF-TATOEBA OUTPUT

Every fifth English sentence of Tatoeba is about Tom, and nearly every town is Boston. A model learns to copy a name by
seeing many, so in half of such pairs both sides get another name; and a number that both sides have becomes another.
"""

import random
import re
import sys
import tomllib
from pathlib import Path

from multihead.data.parallel_text import read_pairs
from multihead.text.lines import open_output

CHANCE = 0.5  # probability of changing a pair with such a name or number
SEED = 2017

NAMES = tomllib.loads(Path(__file__).with_name("names.toml").read_text(encoding="utf-8"))
OTHERS = {"Tom": NAMES["men"], "John": NAMES["men"], "Mary": NAMES["women"], "Boston": NAMES["towns"]}
NAME = re.compile(rf"\b({'|'.join(OTHERS)})\b")
NUMBER = re.compile(r"(?<![\d.,:])\d{1,4}(?![\d.,:]*\d)")


def another_name(source: str, target: str, rng: random.Random) -> tuple[str, str]:
    """Replace each name that both sides have in the same form."""
    for name in sorted(set(NAME.findall(source)) & set(NAME.findall(target))):
        other = rng.choice(OTHERS[name])
        source, target = (re.sub(rf"\b{name}\b", other, side) for side in (source, target))
        if not other.endswith(("s", "x", "z")):  # their German genitive is irregular
            target = re.sub(rf"\b{name}s\b", f"{other}s", target)
    return source, target


def another_number(source: str, target: str, rng: random.Random) -> tuple[str, str]:
    """Replace each number that both sides have by another with as many digits."""
    for number in sorted(set(NUMBER.findall(source)) & set(NUMBER.findall(target))):
        digits = len(number)
        other = str(rng.randrange(10 ** (digits - 1), 10**digits)) if int(number) > 1 else number
        source, target = (re.sub(rf"(?<!\d){number}(?!\d)", other, side) for side in (source, target))
    return source, target


def main(folder: Path, output: Path) -> None:
    """Write train.en and train.de."""
    rng = random.Random(SEED)
    output.mkdir(parents=True, exist_ok=True)
    raw = read_pairs(folder / "train.en.gz", folder / "train.de.gz")
    with open_output(output / "train.en") as english, open_output(output / "train.de") as german:
        for pair in raw:
            source, target = (side.decode() for side in pair)
            if rng.random() < CHANCE:
                source, target = another_number(*another_name(source, target, rng), rng)
            english.write(f"{source}\n")
            german.write(f"{target}\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
