"""Reading a translation memory beside a bare loop of lxml that only collects the segments.

python -m benchmarks.tmx [units]        # half a minute
"""

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from lxml import etree

from multihead.data.readers.corpus import read_pairs

UNIT = (
    '<tu><tuv xml:lang="en-US"><seg>Where is station {0}?</seg></tuv>'
    '<tuv xml:lang="de"><seg>Wo ist Gleis {0}?</seg></tuv></tu>\n'
)


def bare(path: Path) -> int:
    n_units = 0
    for _, unit in etree.iterparse(str(path), tag="tu"):
        n_units += len([segment.text for segment in unit.iter("seg")]) > 0
        unit.clear()
        while unit.getprevious() is not None:
            del unit.getparent()[0]
    return n_units


def ours(path: Path) -> int:
    return sum(1 for _ in read_pairs(path, ["en", "de"]))


def units_per_second(read: Callable[[Path], int], path: Path) -> float:
    began = time.perf_counter()
    return read(path) / (time.perf_counter() - began)


def main(n_units: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "memory.tmx"
        with path.open("w", encoding="utf-8") as file:
            file.write('<tmx version="1.4"><header srclang="en-US"/><body>\n')
            file.writelines(UNIT.format(number) for number in range(n_units))
            file.write("</body></tmx>\n")
        for _ in range(3):
            speeds = [units_per_second(read, path) for read in (ours, bare)]
            print(f"ours {speeds[0]:,.0f} units/s, bare loop {speeds[1]:,.0f}: ratio {speeds[0] / speeds[1]:.2f}")
    print(f"peak memory of the process: {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
