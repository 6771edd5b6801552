"""Several processes that train together, started as torchrun starts them, but from a server that has imported torch."""

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

PRELOADED = ["multihead.runs.train", "torch.utils.tensorboard", "matplotlib.figure", "sacrebleu"]


@dataclass(frozen=True, slots=True)
class Group:
    """Running processes, and a pipe with the result of each."""

    processes: list[ForkServerProcess]
    pipes: list[Connection]
    store: TCPStore  # torchrun hosts it

    def results(self) -> list[Any]:
        """Return what the function returned in each process; fail if it failed in any."""
        results = [pipe.recv() for pipe in self.pipes]
        for process in self.processes:
            process.join()
        errors = [result for result in results if isinstance(result, Error)]
        assert not errors, errors[0].traceback
        return results


@dataclass(frozen=True, slots=True)
class Error:
    traceback: str


def start(world_size: int, function: Callable[..., object], *arguments: object, stderr: Path | None = None) -> Group:
    """Call a function in `world_size` processes; their standard error is appended to `stderr`."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]
    store = TCPStore("127.0.0.1", port, is_master=True, wait_for_workers=False, master_listen_fd=listening.detach())
    processes, pipes = [], []
    for rank in range(world_size):
        mine, theirs = context.Pipe(duplex=False)
        environment = _environment(rank, world_size, port)
        process = context.Process(target=_run, args=(environment, stderr, theirs, function, arguments))
        process.start()
        theirs.close()
        processes.append(process)
        pipes.append(mine)
    return Group(processes, pipes, store)


def on_ranks(world_size: int, function: Callable[..., object], *arguments: object) -> list[Any]:
    """Return what a function returns in each of `world_size` processes."""
    return start(world_size, function, *arguments).results()


def _environment(rank: int, world_size: int, port: int) -> dict[str, str]:
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
    environment: dict[str, str],
    stderr: Path | None,
    pipe: Connection,
    function: Callable[..., object],
    arguments: tuple[object, ...],
) -> None:
    os.environ |= environment
    if stderr:
        os.dup2(os.open(stderr, os.O_WRONLY | os.O_CREAT | os.O_APPEND), 2)
    try:
        pipe.send(function(*arguments))
    except BaseException:
        pipe.send(Error(traceback.format_exc()))
        raise
