"""Time of the guard on ordinary text and on text full of numbers, beside the same search without the guard.

python -m benchmarks.guard_numbers [MODEL]     # about two minutes; CPU time, so that other processes matter little
"""

import random
import statistics
import sys
import time

from multihead.config.schema import SearchConfig
from multihead.console import make_table
from multihead.translation.translator import Translation, Translator, load

ROUNDS = 5
N_LINES = 200
ITEMS = "bolts,screws,copper pipe,hinges,paint,brushes,door handles,light bulbs,cable,sockets,tiles,gloves".split(",")
STREETS = "High Street,Station Road,Mill Lane,Park Avenue".split(",")
ORDINARY = [
    "The meeting starts after lunch.",
    "I have never seen such a big dog.",
    "She asked me where the station was.",
    "We bought 25 apples and a loaf of bread.",
    "My brother has lived in Berlin since 2015.",
    "Please close the window, it is cold here.",
]


def invoice_lines(rng: random.Random) -> list[str]:
    """Return the lines of an invented invoice."""

    def line() -> str:
        count, price = rng.randint(2, 480), rng.randint(100, 99_999) / 100
        number, day, month = rng.randint(10_000, 99_999), rng.randint(1, 28), rng.randint(1, 12)
        return rng.choice(
            [
                f"{number} {rng.choice(ITEMS)} {count} x {price:.2f} = {count * price:,.2f}",
                f"Invoice {number} of {day:02}/{month:02}/2024, due in {rng.choice([14, 30, 60])} days.",
                f"Please pay {count * price:,.2f} euros to account {number} {rng.randint(10, 99)} before May {day}.",
                f"{count} | {price:.2f} | 19% | {count * price * 1.19:,.2f}",
                f"We delivered {count} {rng.choice(ITEMS)} to {rng.randint(1, 200)} {rng.choice(STREETS)}.",
                f"Total: {count * price:,.2f}; tax: {count * price * 0.19:,.2f}; to pay: {count * price * 1.19:,.2f}",
            ]
        )

    return [line() for _ in range(N_LINES)]


def cpu_seconds(translator: Translator, lines: list[str], guard: bool) -> tuple[float, list[Translation]]:
    """Return the processor time of translating lines, and the translations."""
    began = time.process_time()
    found = list(translator.stream(lines, SearchConfig(guard=guard)))
    return time.process_time() - began, found


def measure(translator: Translator, name: str, lines: list[str]) -> dict[str, object]:
    """Return a row of the table; searches with and without the guard take turns."""
    cpu_seconds(translator, lines[:20], guard=True)
    ratios = []
    for _ in range(ROUNDS):
        with_guard, found = cpu_seconds(translator, lines, guard=True)
        without, _ = cpu_seconds(translator, lines, guard=False)
        ratios.append(with_guard / without)
    warnings = [warning for one in found for warning in one.warnings if warning.startswith("number")]
    again = sum("searched again" in warning for warning in warnings)
    return {
        "text": name,
        "time with : without guard": f"{statistics.median(ratios):.2f}",
        "range": f"{min(ratios):.2f} to {max(ratios):.2f}",
        "numbers found again": again,
        "numbers flagged": len(warnings) - again,
    }


def main() -> None:
    """Print the ratios."""
    translator = load(sys.argv[1] if len(sys.argv) > 1 else "en-de", threads=1)
    rng = random.Random(1)
    texts = {"ordinary": ORDINARY * (N_LINES // len(ORDINARY)), "invoice": invoice_lines(rng)}
    make_table([measure(translator, name, lines) for name, lines in texts.items()]).show()


if __name__ == "__main__":
    main()
