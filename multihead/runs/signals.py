"""SIGTERM and Ctrl-C: a run is saved before its process ends."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from typing import NoReturn


@contextlib.contextmanager
def catch_signals(second_signal_exits: bool) -> Iterator[list[int]]:
    """Append SIGTERM and SIGINT to the list that is returned, in place of ending the process.

    A second signal ends the process if `second_signal_exits`. torchrun forwards signals, so its processes may receive
    one twice; it kills processes that do not exit.
    """
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # only the main thread receives signals
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def remember(number: int, _: object) -> None:
        received.append(number)
        if second_signal_exits:
            signal.signal(number, before[signal.Signals(number)])

    for number in before:
        signal.signal(number, remember)
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def exit_by_signal(number: int) -> NoReturn:
    """Exit as a process does that does not handle the signal, so that scripts notice."""
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    raise SystemExit(128 + number)
