"""Load time of a model with and without the verification of its files, interleaved: `python -m benchmarks.load_time`.

The time is that of `multihead.load` in a process that has imported everything; a command adds its start to both.
"""

import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import multihead
from multihead.interop import export_cache
from multihead.storage import model_folder
from multihead.text import tokenizer

REPEATS = 25


@contextmanager
def unverified() -> Iterator[None]:
    """Load as before there were checksums."""
    changes: list[tuple[Any, str, Callable[..., Any]]] = [
        (model_folder, "check_loaded", lambda *_: None),
        (model_folder, "check_finite", lambda *_: None),
        (tokenizer, "parse_json", lambda *_: None),
        (tokenizer, "check_tokenizer", lambda *_: None),
        (export_cache, "_is_intact", lambda *_: True),
    ]
    with ExitStack() as stack:
        for module, name, replacement in changes:
            stack.enter_context(patch.object(module, name, replacement))
        yield


def seconds_of(load: Callable[[], object]) -> float:
    began = time.perf_counter()
    load()
    return time.perf_counter() - began


def main(name: str = "en-de") -> None:
    loads: dict[str, Callable[[], object]] = {
        "auto": lambda: multihead.load(name),
        "torch": lambda: multihead.load(name, engine="torch").models,
    }
    for engine, load in loads.items():
        load()
        with_checks, without = [], []
        for _ in range(REPEATS):
            with_checks.append(seconds_of(load))
            with unverified():
                without.append(seconds_of(load))
        medians = statistics.median(with_checks), statistics.median(without)
        verified, plain = (f"{1000 * median:.1f} ms" for median in medians)
        print(f"{engine}: {verified}, unverified {plain}, ratio {medians[0] / medians[1]:.3f}")


if __name__ == "__main__":
    main()
