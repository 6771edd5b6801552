"""How worker processes are started. Apart from `concurrency`, because importing multiprocessing takes a while."""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from multiprocessing import parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from types import ModuleType


def use_one_core() -> None:
    """Keep the tokenizers library from starting threads in a process that has one core for itself."""
    os.environ["TOKENIZERS_PARALLELISM"] = "false"


class WorkerProcess(SpawnProcess):
    """A process that does not import the main program, and that ends with its parent.

    multiprocessing imports it in every process that it spawns, so a script without `if __name__ == "__main__"` would
    run again in each of them. Our workers need nothing of it. A worker whose parent is killed would wait for work
    without end.
    """

    def start(self) -> None:
        with _hidden_main():
            super().start()

    def run(self) -> None:
        threading.Thread(target=_exit_after_parent, daemon=True).start()
        super().run()


class WorkerContext(SpawnContext):
    Process = WorkerProcess


def _exit_after_parent() -> None:
    if parent := parent_process():
        parent.join()
        os._exit(1)


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main
