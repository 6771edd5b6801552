"""Several processes that train together, started as torchrun starts them, but in milliseconds: all is imported."""

import multiprocessing
import os
import socket
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import Any

from torch.distributed import TCPStore  # type: ignore[attr-defined]  # torch does not declare the export

PRELOADED = ["multihead.run", "torch.utils.tensorboard", "matplotlib.figure", "sacrebleu"]


@dataclass(frozen=True, slots=True)
class Group:
    """Processes under way, and what each of them will say."""

    processes: list[ForkServerProcess]
    answers: list[Connection]
    store: TCPStore  # which is torchrun's part

    def results(self) -> list[Any]:
        """What each process returned; an error of any is an error."""
        found = [answer.recv() for answer in self.answers]
        for process in self.processes:
            process.join()
        failed = [said for said in found if isinstance(said, Failure)]
        assert not failed, failed[0].words
        return found


@dataclass(frozen=True, slots=True)
class Failure:
    words: str


def start(world_size: int, function: Callable[..., object], *arguments: object, errors: Path | None = None) -> Group:
    """Call a function in `world_size` processes; what they write to standard error goes to `errors`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    processes, answers = [], []
    for rank in range(world_size):
        mine, theirs = context.Pipe(duplex=False)
        process = context.Process(
            target=_run, args=(_variables(rank, world_size, port), errors, theirs, function, arguments)
        )
        process.start()
        theirs.close()
        processes.append(process)
        answers.append(mine)
    return Group(processes, answers, store)


def on_ranks(world_size: int, function: Callable[..., object], *arguments: object) -> list[Any]:
    """What a function returns in each of `world_size` processes."""
    return start(world_size, function, *arguments).results()


def _variables(rank: int, world_size: int, port: int) -> dict[str, str]:
    return {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "TORCHELASTIC_USE_AGENT_STORE": "True",
        "GLOO_SOCKET_IFNAME": "lo",
    }


def _run(
    variables: dict[str, str],
    errors: Path | None,
    answer: Connection,
    function: Callable[..., object],
    arguments: tuple[object, ...],
) -> None:
    os.environ |= variables
    if errors:
        os.dup2(os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    try:
        answer.send(function(*arguments))
    except BaseException:
        answer.send(Failure(traceback.format_exc()))
        raise
