"""TODO."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from unicodedata import decimal

from multihead.config.schema import SearchConfig
from multihead.translation.engine import Hypothesis


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardedResult:
    """What the search gave for a segment, after the guard."""

    hypotheses: list[Hypothesis]
    warnings: list[str] = field(default_factory=list)


COPY_WORDS = 3  # more words than this are a copy, not a name
FAULT_MESSAGES = {
    "empty": "the model gave no translation",
    "loop": "the translation repeats itself",
    "copy": "the translation is the source",
    "number": "a number of the source is not in the translation",
}
RETRY_SETTINGS: dict[str, Callable[[SearchConfig], SearchConfig]] = {
    "empty": lambda config: replace(config, min_length=1),
    "loop": lambda config: replace(config, no_repeat=3),
    "copy": lambda config: replace(config, n_best=max(2, config.n_best), beam=max(4, config.beam)),
    "number": lambda config: replace(config, n_best=max(16, config.n_best), beam=max(16, config.beam)),
}
_NUMBER = re.compile(r"(?<![\d:])\d+(?:[.,'\u2019]\d+|[ \u00a0\u202f]\d{3}(?!\d))*(?!\d*:)")


def numbers(text: str) -> set[str]:
    """The digits of each number of two or more, in any script: 10,000 and 10.000 are one number.

    A single digit is often spelled out, and a time of day may be told otherwise.
    """
    found = ("".join(str(decimal(sign)) for sign in number if sign.isdecimal()) for number in _NUMBER.findall(text))
    return {digits for digits in found if len(digits) > 1}


def has_loop(tokens: Sequence[int], times: int = 4, longest: int = 8) -> bool:
    """True if some run of up to `longest` tokens stands `times` times in a row."""
    for size in range(1, longest + 1):
        same = 0  # tokens that equal the one `size` before
        for at in range(size, len(tokens)):
            same = same + 1 if tokens[at] == tokens[at - size] else 0
            if same == size * (times - 1):
                return True
    return False
