"""Ranks and bulk with kills: the existing tests, run by pytest and counted."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from functools import partial
from pathlib import Path

from tests.gauntlet.outcome import Row

ROOT = Path(__file__).parents[2]
SECONDS = 3600


def _run(what: str, file: str, fast_test: str, fast: bool, folder: Path) -> Row:
    """Run the tests of a file, or one of them."""
    report, row = folder / "report.xml", Row(what)
    selected = f"{file}::{fast_test}" if fast else file
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "",
        f"--junitxml={report}",
        selected,
    ]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS, check=False
    )
    if not report.exists():
        row.add(what, f"pytest ended with {done.returncode}: {done.stdout[-200:]}")
        return row
    for case in ElementTree.parse(report).iter("testcase"):
        failed = [one for one in case if one.tag in ("failure", "error")]
        if not any(one.tag == "skipped" for one in case):
            row.add(
                case.attrib["name"], failed[0].attrib["message"][:200] if failed else None, float(case.attrib["time"])
            )
    return row


FAILING_RANK = "test_a_rank_that_fails_says_why_and_the_others_do_not_wait"
ranks = partial(
    _run,
    "ranks that die or hang",
    "tests/fault/test_ranks.py",
    FAILING_RANK,
)
bulk = partial(_run, "bulk with kills", "tests/end_to_end/test_bulk.py", "")
