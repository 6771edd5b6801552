"""Count how many of the 60 sentences of the lesson a model translates as one of the accepted translations.

python -m benchmarks.recipes.lesson_sentences lesson

The sentences are in multihead/lesson/assets/sentences.en-de.tsv: English, a tab, a regular expression of the German
translations that count as right. What does not match is printed: a person decides whether it is right, and then the
expression gets it as one more alternative.
"""

import re
from typing import Annotated

import typer

import multihead
from multihead.lesson.explain import sample


def main(model: Annotated[str, typer.Argument()] = "lesson") -> None:
    """Translate with beam 4 as the page does: exact numbers, no shortlist, sentences in one piece."""
    pairs = [line.split("\t") for line in sample("en-de")]
    translator = multihead.load(model, engine="torch")
    found = translator.translate([text for text, _ in pairs], beam=4, shortlist=False, guard=False, split=False)
    wrong = [
        (text, one.text) for (text, accepted), one in zip(pairs, found, strict=True) if not accepts(accepted, one.text)
    ]
    for text, translation in wrong:
        print(f"{text}\n    {translation}")
    print(f"{len(pairs) - len(wrong)} of {len(pairs)} sentences")


def accepts(expression: str, translation: str) -> bool:
    """Return whether a translation is one of the accepted ones."""
    return re.fullmatch(expression, translation) is not None


if __name__ == "__main__":
    typer.run(main)
