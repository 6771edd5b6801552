"""Output for the user: lines on stderr, tables, durations, and errors as exit codes."""

import errno
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, NoReturn, Self

from multihead.errors import UsageError, UserError

if TYPE_CHECKING:
    from rich.console import Console

Log = Callable[[str], None]  # receives one line for the user
INTERVAL, VERBOSE_INTERVAL = 5.0, 1.0  # seconds between lines of progress


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells of text, with a title above and notes below."""

    header: list[str]
    rows: list[list[str]]
    title: str = ""
    notes: list[str] = field(default_factory=list)

    def as_text(self) -> str:
        """Return aligned columns, two spaces apart."""
        lines = [self.header, *self.rows]
        columns = list(zip(*lines, strict=True))
        widths = [max(map(len, column)) for column in columns]
        right = [self._is_numeric(column) for column in range(len(columns))]
        texts = [
            "  ".join(
                f"{cell:>{width}}" if is_right else f"{cell:<{width}}"
                for cell, width, is_right in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*([self.title, ""] if self.title else []), *texts, *self._spaced_notes()])

    def show(self) -> None:
        """Print to stdout, with rules if that is a terminal."""
        if sys.stdout.isatty():
            self._show_ruled()
        else:
            print(self.as_text())

    def _show_ruled(self) -> None:
        from rich import box
        from rich.console import Console
        from rich.markup import escape
        from rich.table import Table as RuledTable

        ruled = RuledTable(box=box.SIMPLE_HEAD, title=escape(self.title), title_justify="left", title_style="bold")
        for column, name in enumerate(self.header):
            ruled.add_column(escape(name), justify="right" if self._is_numeric(column) else "left")
        for row in self.rows:
            ruled.add_row(*map(escape, row))
        console = Console()
        console.print(ruled)
        for note in self.notes:
            console.print(note, style="dim", highlight=False, markup=False)

    def _is_numeric(self, column: int) -> bool:
        cells = [row[column] for row in self.rows if row[column]]
        return bool(cells) and all(re.match(r"[-+]?[\d.]", cell) for cell in cells)

    def _spaced_notes(self) -> list[str]:
        return ["", *self.notes] if self.notes else []


def make_table(records: list[dict[str, object]]) -> Table:
    """Return a table of records that have the same keys."""
    return Table(header=list(records[0]), rows=[[str(value) for value in record.values()] for record in records])


def log_to(console: "Console") -> Log:
    """Return a function that prints a line without highlighting or markup."""
    return partial(console.print, highlight=False, markup=False, soft_wrap=True)


def duration(seconds: float) -> str:
    """Format a time in the largest unit of which there are at least two: "45 s", "12 min", "3.5 h", "4.2 days"."""
    for unit, size, digits in (("days", 86_400, 1), ("h", 3600, 1), ("min", 60, 0)):
        if seconds >= 2 * size:
            number = seconds / size
            return f"{number:,.{digits if number < 100 else 0}f}".removesuffix(".0") + f" {unit}"
    return f"{seconds:.0f} s"


class _Verbosity:
    """What `--quiet` and `--verbose` set for this process."""

    quiet = False
    verbose = False


def set_verbosity(quiet: bool, verbose: bool = False) -> None:
    """Show only errors, or more detail."""
    if quiet and verbose:
        raise UsageError("--quiet and --verbose contradict each other")
    _Verbosity.quiet, _Verbosity.verbose = quiet, verbose
    logging.disable(logging.WARNING if quiet else logging.NOTSET)


def is_quiet() -> bool:
    return _Verbosity.quiet


def is_verbose() -> bool:
    return _Verbosity.verbose


def printable(text: str) -> str:
    """Escape control characters, which a file of unknown origin could send to the terminal; keep tabs and newlines."""
    return re.sub("[\x00-\x08\x0b-\x1f\x7f-\x9f]", lambda match: ascii(match[0])[1:-1], text)


def say(line: str) -> None:
    """Print a line to stderr, unless the user asked for quiet."""
    if not _Verbosity.quiet:
        print(line, file=sys.stderr)


def say_detail(line: str) -> None:
    """Print a line to stderr if the user asked for detail."""
    if _Verbosity.verbose:
        say(line)


class Progress:
    """Prints how far a long task is, every few seconds while it is open as a context."""

    def __init__(self, log: Log, task: str, interval: float | None = None) -> None:
        self.done = 0  # pairs
        self._log, self._task = log, task
        self._interval = interval or (VERBOSE_INTERVAL if is_verbose() else INTERVAL)
        self._ended, self._began = threading.Event(), time.monotonic()
        self._thread = threading.Thread(target=self._report, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if is_verbose():
            self._log(self._line())

    def _report(self) -> None:
        while not self._ended.wait(self._interval):
            self._log(self._line())

    def _line(self) -> str:
        seconds = time.monotonic() - self._began
        pairs = f"{self.done:,} pairs, {self.done / seconds:,.0f} pairs/s, " if self.done else ""
        return f"{self._task}: {pairs}{duration(seconds)}"


def run_and_report_errors(command: Callable[[], object]) -> None:
    """Run a command; an error that the user can fix is printed as a message without a traceback."""
    try:
        command()
    except UsageError as error:
        _fail(str(error), status=2)
    except UserError as error:
        _fail(str(error), status=1)
    except BrokenPipeError:
        _end_quietly()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # Typer turns it into an exit with status 1
            _end_quietly()
        raise
    except OSError as error:
        _fail(_describe(error), status=1)
    except MemoryError as error:
        _fail(f"not enough memory{f': {error}' if str(error) else ''}", status=1)
    except KeyboardInterrupt:
        _fail("interrupted", status=130)


# The second message is that of numpy.
_FULL_DISK = r"No space left|\d+ requested and \d+ written"


def _describe(error: OSError) -> str:
    """Return the message of a failed file operation, and what to do."""
    if error.errno == errno.ENOSPC or re.search(_FULL_DISK, str(error)):
        advice = "; the disk is full: free some space and run the same command again"
    elif error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        advice = "; change its permissions or choose another place"
    elif error.errno == errno.ENOENT:
        advice = "; check that its folder exists"
    elif error.errno in (errno.EEXIST, errno.ENOTDIR):
        advice = "; a folder is needed, and there is a file in its place"
    elif error.errno == errno.EISDIR:
        advice = "; give a file"
    else:
        advice = ""
    if not error.filename:
        return f"cannot read or write a file: {error}{advice}"
    return f"cannot read or write {os.fsdecode(error.filename)}: {error.strerror}{advice}"


def _end_quietly() -> NoReturn:
    """Exit like a command ended by SIGPIPE: the reader of our output, such as `head`, closed the pipe."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # flushing standard output at exit would fail, too
    sys.exit(141)


def _fail(message: str, status: int) -> NoReturn:
    print(printable(f"multihead: {message}"), file=sys.stderr)
    sys.exit(status)
