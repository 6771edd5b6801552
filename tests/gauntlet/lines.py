"""Hostile lines, and text full of numbers: a translation for each line, in bounded time."""

import random
from pathlib import Path

from multihead.storage.files import BUNDLED
from tests.gauntlet.outcome import Row, multihead

RATIO = 3.0  # of the time for lines of numbers to that for lines of words of the same length

_PARTS = (
    *(
        "\0",
        "\x1b[31m",
        "\u202e",
        "\u200d",
        "\ufeff",
        "\ufffd",
        "\x0b",
        "\u2028",
        "\x85",
        "</s>",
        "<unk>",
        "<pad>",
        "\\n",
    ),
    *(
        "<![CDATA[",
        "%s%n",
        "../../etc/passwd",
        "A dog.",
        "1,234.56",
        "٣٤",
        "🏳️‍🌈",
        "á" * 5,
        "ช้าง",
        "हिन्दी",
        "漢字",
        "مرحبا",
    ),
    *("a" * 300, "." * 200, "!?" * 80, "é" * 50, "\u0301" * 60, " ", "\t", '"', "'", "&amp;", "http://x.y/?a=b&c"),
)


def hostile_lines(n: int) -> list[str]:
    rng = random.Random(3)
    return ["".join(rng.choice(_PARTS) + rng.choice(["", " "]) for _ in range(rng.randint(0, 8))) for _ in range(n)]


def number_lines(n: int) -> list[str]:
    rng = random.Random(4)
    return [" ".join(f"{rng.random() * 10_000:.2f}" for _ in range(rng.randint(2, 6))) for _ in range(n)]


def run(fast: bool, folder: Path) -> Row:
    """The lines go through one command; each line whose translation is missing is a failure."""
    row, n = Row("hostile lines and numbers"), 100 if fast else 10_000
    model, cache = BUNDLED / "en-de", folder / "cache"
    multihead("translate", model, stdin="A dog.\n", cache=cache)
    source = folder / "hostile.txt"
    source.write_bytes("".join(line + "\n" for line in hostile_lines(n)).encode())
    outcome = multihead("translate", model, "-i", source, "-o", folder / "out.txt", timeout=3600, cache=cache)
    row.add_outcome("hostile lines", outcome, "refused" if outcome.status else None)
    if outcome.status == 0:
        translated = (folder / "out.txt").read_bytes().count(b"\n")
        if translated != n:
            row.failures.append(f"{translated} translations of {n} lines")
    row.cases += n - 1  # each line is one
    digits = number_lines(n // 10)
    words = ["A man and a dog are in the park with a red ball and a tree." for _ in digits]
    seconds = []
    for lines in (words, digits):
        text = "".join(line + "\n" for line in lines)
        timed = multihead("translate", model, stdin=text, timeout=3600, cache=cache)
        row.add_outcome("numbers", timed, "refused" if timed.status else None)
        seconds.append(timed.seconds)
    is_slow = seconds[1] > RATIO * seconds[0] and seconds[1] > 5
    row.add("time of numbers", f"{seconds[1]:.1f} s, of words {seconds[0]:.1f} s" if is_slow else None)
    return row
