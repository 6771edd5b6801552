"""Which of the languages in a file are meant: codes match by prefix, so that en-US is English."""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

from multihead.errors import UserError
from multihead.text.language import is_known, name_of

_CODE = re.compile(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{2,8})*")
_SIDES = (("source", "src"), ("target", "tgt", "trg"))  # names of columns that need no languages


def matches(code: str, wanted: str) -> bool:
    """Return whether one code is the other, or a variant of it: en-US and en, but not en-US and en-GB."""
    one, other = (text.replace("_", "-").lower() for text in (code, wanted))
    return one == other or one.startswith(f"{other}-") or other.startswith(f"{one}-")


@lru_cache(maxsize=1024)  # the units of a file have few different combinations
def find_languages(codes: tuple[str, ...], wanted: tuple[str, ...]) -> tuple[int, ...] | None:
    """Return the position of the code for each wanted language, or None unless all are there."""
    found = []
    for language in wanted:
        exact = [n for n, code in enumerate(codes) if code.replace("_", "-").lower() == language.lower()]
        places = exact or [n for n, code in enumerate(codes) if matches(code, language)]
        if not places:
            return None
        found.append(places[0])
    return tuple(found) if len(set(found)) == len(found) else None


def find_columns(names: Sequence[str], wanted: Sequence[str]) -> tuple[int, ...] | None:
    """Return the column of each wanted language by the names of columns: codes, English names, or source and target."""
    cells = [name.strip() for name in names]
    if found := find_languages(tuple(cells), tuple(wanted)):
        return found
    lower = [cell.lower() for cell in cells]
    by_name = tuple(lower.index(name) for code in wanted if (name := name_of(code).lower()) in lower)
    by_side = tuple(n for names in _SIDES for n, cell in enumerate(lower) if cell in names)
    found = next((columns for columns in (by_name, by_side) if len(columns) == len(wanted)), None)
    return found if found and len(set(found)) == len(found) else None


def codes_among(names: Iterable[str]) -> list[str]:
    """Return the names of columns that are codes of languages; `id` is Indonesian only if it is one of two."""
    codes = [code for name in names if _CODE.fullmatch(code := name.strip()) and is_known(code)]
    return codes if len(codes) < 3 else [code for code in codes if code != "id"]


def base_codes(codes: Iterable[str]) -> list[str]:
    """Return codes without their regions, unless only the regions tell the languages apart."""
    codes = [code.replace("_", "-") for code in codes]
    bases = [code.split("-")[0].lower() for code in codes]
    return bases if len(set(bases)) == len(codes) else codes


def no_such_languages(path: Path, wanted: Iterable[str], codes: Iterable[str]) -> UserError:
    """Return the error for a file without any pair of the wanted languages."""
    present = ", ".join(sorted(set(codes))[:20]) or "none"
    return UserError(
        f"{path} has no pairs of {' and '.join(wanted)}; its languages are: {present}. "
        "Choose two of them with --source-lang and --target-lang"
    )
