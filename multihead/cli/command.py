"""Commands that start fast.

Typer converts every value with pydantic, absent ones too, and importing pydantic takes longer than translating a
sentence. Texts and defaults have their type already, so they are left as they are.
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from typing import Any

from typer.core import TyperCommand, TyperGroup

from multihead.config.fields import requirement_of


def import_numpy_with_one_thread() -> None:
    """Import numpy without the threads of its BLAS, which take a quarter of its time to start.

    For commands that leave large products to CTranslate2. The variable is removed again, because a torch that is loaded
    later reads it, too.
    """
    variable = "OPENBLAS_NUM_THREADS"
    if "numpy" not in sys.modules and variable not in os.environ:
        os.environ[variable] = "1"
        import numpy  # noqa: F401

        del os.environ[variable]


class FastCommand(TyperCommand):
    """A command that converts only the values that need it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` included."""
        return _converting_less(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the arguments; a wrong one is explained in our words."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # its classes are not exported by every version of Typer
            if explanation := self._explanation(error):
                error.message = explanation  # type: ignore[attr-defined]
            raise

    def _explanation(self, error: Exception) -> str | None:
        option = getattr(error, "option_name", "--")
        if not option.startswith("--") and any(parameter.name == "text" for parameter in self.params):
            return f"{error}. Put a text that begins with - after --"  # an unknown short option may be a text
        if error.__cause__ and type(error.__cause__).__name__ == "ValidationError":
            return requirement_of(error.__cause__)
        return None


class FastGroup(TyperGroup):
    """A group of commands that converts only the values that need it."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters, `--help` included."""
        return _converting_less(super().get_params(ctx))


def _converting_less(parameters: Sequence[Any]) -> list[Any]:
    for parameter in parameters:
        if not isinstance(parameter.process_value, partial):
            parameter.process_value = partial(_process_value, parameter, parameter.process_value)
    return list(parameters)


def _process_value(parameter: Any, convert: Any, context: Any, value: Any) -> Any:
    """Return the value of a parameter, and call its callback; `convert` is Typer's own method."""
    # Other versions of Typer have no type descriptor: they convert values as always.
    kind = getattr(getattr(parameter, "type_descriptor", None), "annotation", None)
    has_type = value is parameter.default or (kind is str and isinstance(value, str))
    if kind is None or (value is None and parameter.required):
        return convert(context, value)
    if value is None and (parameter.multiple or parameter.nargs == -1):
        value = ()
    elif value and kind == list[str] and isinstance(value, list | tuple):
        value = list(value)
    elif value is not None and not has_type:
        return convert(context, value)
    return parameter.callback(context, parameter, value) if parameter.callback else value
