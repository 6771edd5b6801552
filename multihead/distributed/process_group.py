"""The process group that torchrun started. With a single process, every call is a no-op.

    torchrun --nproc-per-node 2 -m multihead train ...

Numbers and Python objects are exchanged on the CPU (gloo), gradients where the model is: NCCL on GPUs, gloo on CPUs.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar, cast

import torch
import torch.distributed as dist
from torch import Tensor

from multihead.distributed.heartbeat import TIMEOUT_SECONDS, Heartbeat, connect

T = TypeVar("T")

# Rank 0 may prepare data or validate for hours, so collectives have no timeout; heartbeat.py finds dead or hung ranks.
COLLECTIVE_TIMEOUT = timedelta(days=7)


@dataclass(frozen=True, slots=True)
class ProcessGroup:
    """The rank of this process, and the collectives of all ranks."""

    rank: int = 0
    world_size: int = 1

    @property
    def is_main(self) -> bool:
        """Whether this is rank 0, which validates and writes logs and files."""
        return self.rank == 0

    def sum(self, *numbers: float) -> list[float]:
        """Return the sum of each number over all ranks."""
        return self._reduce(numbers, dist.ReduceOp.SUM)

    def max(self, *numbers: float) -> list[float]:
        """Return the maximum of each number over all ranks."""
        return self._reduce(numbers, dist.ReduceOp.MAX)

    def _reduce(self, numbers: tuple[float, ...], operation: dist.ReduceOp.RedOpType) -> list[float]:
        if self.world_size == 1:
            return list(numbers)
        reduced = torch.tensor(numbers, dtype=torch.float64)  # exact for token counts
        dist.all_reduce(reduced, operation)
        return cast(list[float], reduced.tolist())

    def concatenate(self, tensor: Tensor) -> Tensor:
        """Return the tensors of all ranks, which have the same shape, along axis 0 in the order of the ranks."""
        if self.world_size == 1:
            return tensor
        # As bytes, since gloo does not know every type.
        mine = tensor.contiguous().view(torch.uint8)
        gathered = [torch.empty_like(mine) for _ in range(self.world_size)]
        dist.all_gather(gathered, mine)
        return torch.cat(gathered).view(tensor.dtype)

    def on_main(self, compute: Callable[[], T]) -> T:
        """Compute on rank 0 and broadcast the result; the other ranks block until it is done."""
        if self.world_size == 1:
            return compute()
        result = [compute() if self.is_main else None]
        dist.broadcast_object_list(result, src=0)
        return cast(T, result[0])


SINGLE_PROCESS = ProcessGroup()


def under_torchrun() -> bool:
    """Return whether torchrun started this process, alone or with others."""
    return "WORLD_SIZE" in os.environ


@contextlib.contextmanager
def process_group(rank_timeout: float = TIMEOUT_SECONDS) -> Iterator[ProcessGroup]:
    """Join the processes that torchrun started, and leave once all are done; without torchrun, rank 0 of 1.

    A rank that gives no sign of life for `rank_timeout` seconds counts as lost.
    """
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    if world_size == 1:
        yield SINGLE_PROCESS
        return
    rank = int(os.environ["RANK"])
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    store = connect(hosting=rank == 0)
    dist.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=COLLECTIVE_TIMEOUT)
    heartbeat = Heartbeat(rank, world_size, rank_timeout)
    try:
        yield ProcessGroup(rank, world_size)
        dist.barrier()  # rank 0 publishes while the others have nothing left to do
    except BaseException as error:
        if _is_connection_error(error):
            heartbeat.wait_for_failure()
        heartbeat.report_failure(str(error) or type(error).__name__)
        raise
    heartbeat.stop()
    dist.destroy_process_group()


def _is_connection_error(error: BaseException) -> bool:
    """Return whether a collective failed, for which torch raises a plain RuntimeError."""
    words = ("connection", "gloo", "nccl")
    return isinstance(error, RuntimeError) and any(word in str(error).lower() for word in words)
