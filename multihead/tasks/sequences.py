"""Tasks on sequences of digits, each pair a function of its number: copy, reverse, sort and add."""

import random
from collections.abc import Callable, Mapping

Pair = tuple[str, str]

MAX_LENGTH = 12  # digits of a sequence
MAX_DIGITS = 5  # of a number that is added
DIGITS = tuple("0123456789")
PLUS = "+"


def _on_digits(change: Callable[[list[str]], list[str]]) -> Callable[[int], Pair]:
    def make_pair(seed: int) -> Pair:
        rng = random.Random(seed)
        digits = rng.choices(DIGITS, k=rng.randint(1, MAX_LENGTH))
        return " ".join(digits), " ".join(change(digits))

    return make_pair


def _add(seed: int) -> Pair:
    """Return two numbers and their sum, written digit by digit: 4 7 + 8 → 5 5."""
    rng = random.Random(seed)
    one, other = (rng.randrange(10 ** rng.randint(1, MAX_DIGITS)) for _ in range(2))
    return f"{' '.join(str(one))} {PLUS} {' '.join(str(other))}", " ".join(str(one + other))


SEQUENCE_TASKS: Mapping[str, Callable[[int], Pair]] = {
    "copy": _on_digits(list),
    "reverse": _on_digits(lambda digits: digits[::-1]),
    "sort": _on_digits(sorted),
    "add": _add,
}
