"""Accuracy of the detector of a model's own languages beside py3langid, and its false alarms for the wrong direction.

python -m benchmarks.language_detector ../shared/data        # learns from train, measures on valid and test; a minute
"""

import random
import sys
import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from multihead.console import Table
from multihead.serve.languages import Detector
from multihead.text.detector import LanguageDetector
from multihead.text.lines import read_lines

LEARNED, MEASURED = 200_000, 2000  # lines of each language
WORDS = (1, 2, 3, 5)
CORPORA = [("tatoeba/en-de", "en", "de"), ("tatoeba/en-fr", "en", "fr"), ("tatoeba/en-es", "en", "es")]
CORPORA += [("europarl", "en", "de"), ("europarl", "es", "fr"), ("newstest", "en", "de")]


def lines(path: Path, n: int) -> list[str]:
    return [line.decode() for line in islice(read_lines(path), n)]


def short_texts(texts: Sequence[str], n_words: int) -> list[str]:
    """Return consecutive words of each text, at a random place."""
    rng = random.Random(n_words)
    split = [text.split() for text in texts]
    starts = [(words, rng.randrange(len(words) - n_words + 1)) for words in split if len(words) >= n_words]
    found = (" ".join(words[start : start + n_words]) for words, start in starts)
    return [text for text in found if any(character.isalpha() for character in text)]


def main(data: Path) -> None:
    rows = []
    for folder, *codes in CORPORA:
        root, measured = data / folder, "test" if (data / folder / f"test.{codes[0]}.gz").exists() else "valid"
        learned = [lines(root / f"train.{code}.gz", LEARNED) for code in codes]
        began = time.perf_counter()
        detector = LanguageDetector.learn(codes, learned)
        seconds = time.perf_counter() - began
        detector = detector.calibrated([lines(root / f"valid.{code}.gz", MEASURED) for code in codes])
        texts = [lines(root / f"{measured}.{code}.gz", MEASURED) for code in codes]
        other = Detector(codes)
        cells = [folder, "-".join(codes), f"{seconds:.1f}", f"{detector.threshold:.2f}"]
        for n_words in WORDS:
            short = [
                (text, code) for side, code in zip(texts, codes, strict=True) for text in short_texts(side, n_words)
            ]
            ours = sum(detector.rank(text)[0][0] == code for text, code in short) / len(short)
            theirs = sum(other.rank(text)[0].language == code for text, code in short) / len(short)
            cells.append(f"{ours:.1%} / {theirs:.1%}")
        margins = [detector.margins(side, n) for n, side in enumerate(texts)]
        alarms = [float((margin > detector.threshold).mean()) for margin in margins]
        long = [[text for text in side if len(text.split()) >= 5] for side in texts]
        caught = [float((detector.margins(side, 1 - n) > detector.threshold).mean()) for n, side in enumerate(long)]
        rows.append([*cells, f"{max(alarms):.2%}", f"{min(caught):.1%}"])
    header = ["corpus", "languages", "seconds", "threshold", *(f"{n} words" for n in WORDS), "false alarms", "caught"]
    print(Table(header=header, rows=rows).as_text())
    print("accuracy: ours / py3langid; caught: texts of at least 5 words in the other language")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
