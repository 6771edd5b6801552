"""Tables for people: ruled on a terminal, plain columns elsewhere."""

import re
import sys
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Cells that are text already, with a line above and lines below."""

    header: list[str]
    rows: list[list[str]]
    title: str = ""
    notes: list[str] = field(default_factory=list)

    def as_text(self) -> str:
        """Aligned columns, two spaces apart."""
        lines = [self.header, *self.rows]
        columns = list(zip(*lines, strict=True))
        widths = [max(map(len, column)) for column in columns]
        right = [self._is_numeric(at) for at in range(len(columns))]
        texts = [
            "  ".join(
                f"{cell:>{width}}" if is_right else f"{cell:<{width}}"
                for cell, width, is_right in zip(line, widths, right, strict=True)
            ).rstrip()
            for line in lines
        ]
        return "\n".join([*([self.title, ""] if self.title else []), *texts, *self._spaced_notes()])

    def show(self) -> None:
        """Print to stdout."""
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
        for at, name in enumerate(self.header):
            ruled.add_column(escape(name), justify="right" if self._is_numeric(at) else "left")
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


def table_of(figures: list[dict[str, object]]) -> Table:
    """Rows of the same figures."""
    return Table(header=list(figures[0]), rows=[[str(value) for value in row.values()] for row in figures])
