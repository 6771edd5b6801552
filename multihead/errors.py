"""Every choice a run can make: frozen dataclasses whose defaults are the paper's, and how they are set.

A choice is addressed by its dotted name (`train.warmup`) everywhere: in presets, in TOML files, in `--set`.
"""

import difflib


class UserError(Exception):
    """Something the user can mend, in one clear sentence; the command line shows it and exits with 1."""


class UsageError(UserError):
    """A setting that cannot be: the command was misused, and exits with 2."""


def did_you_mean(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(sorted(known))}"
