"""`python -m tests.gauntlet [AREA ...] [--fast]`: run the areas and print a table; the status is 1 if a case failed."""

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from multihead.console import Table
from tests.gauntlet import damage, disk, hostile, kills, lines, server, suites
from tests.gauntlet.outcome import Row

AREAS: dict[str, Callable[[bool, Path], Row]] = {
    "kills": kills.run,
    "disk": disk.run,
    "damage": damage.run,
    "hostile": hostile.run,
    "lines": lines.run,
    "server": server.run,
    "ranks": suites.ranks,
    "bulk": suites.bulk,
}
HEADER = ["what", "cases", "failures", "worst time", "worst memory"]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gauntlet", description=__doc__)
    parser.add_argument("areas", nargs="*", metavar="AREA", help=f"{', '.join(AREAS)}; all by default")
    parser.add_argument("--fast", action="store_true", help="a few cases of each area, as in `make test`")
    options = parser.parse_args()
    if unknown := set(options.areas) - AREAS.keys():
        parser.error(f"there is no area {', '.join(unknown)}")
    rows = []
    for name in options.areas or AREAS:
        with tempfile.TemporaryDirectory(prefix="gauntlet-") as folder:
            rows.append(AREAS[name](options.fast, Path(folder)))
        for failure in rows[-1].failures:
            print(f"{name}: {failure}", file=sys.stderr)
        print(f"{name}: {rows[-1].cases:,} cases, {len(rows[-1].failures)} failures", file=sys.stderr)
    print(Table(header=HEADER, rows=[row.cells() for row in rows]).as_text())
    return int(any(row.failures for row in rows))


if __name__ == "__main__":
    sys.exit(main())
