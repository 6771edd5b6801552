"""The exceptions that a user sees as a message, and the check for optional dependencies."""

import importlib
import importlib.util
from types import ModuleType


class UserError(Exception):
    """An error that the user can fix. The command line prints the message and exits with status 1."""


class UsageError(UserError):
    """An invalid setting or option. The command line prints the message and exits with status 2."""


def did_you_mean(name: str, known: list[str]) -> str:
    """Return the end of an error message about an unknown name: the nearest known one, or all of them."""
    import difflib

    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean '{near[0]}'?" if near else f"; valid names: {', '.join(sorted(known))}"


def is_installed(module: str) -> bool:
    """Return whether a module of an optional dependency can be imported, without importing it."""
    return importlib.util.find_spec(module) is not None


def require(module: str, extra: str, purpose: str = "") -> ModuleType:
    """Import and return a module of an optional dependency, or fail with the command that installs it.

    `extra` is the extra of this package that has the dependency. The module may be one of our own that imports it. The
    message begins with the `purpose` that the module is needed for, such as "sampling".
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        missing = error.name or module
        if missing.split(".")[0] == "multihead":
            raise
        problem = f"{purpose} needs {missing}, which is not installed" if purpose else f"{missing} is not installed"
        raise UserError(f"{problem}: pip install 'multihead[{extra}]'{_INSTALL_HINTS.get(missing, '')}") from None


_INSTALL_HINTS = {
    "torch": " (on a machine without a GPU, first install the CPU build of PyTorch, a fraction of the size, as "
    "pytorch.org/get-started describes)"
}
