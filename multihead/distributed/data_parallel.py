"""A module trained by several processes: replicated (DDP) or sharded (FSDP).

DDP gives each process the whole model and averages gradients while they are computed. FSDP gives each process a shard
of every weight, of its gradient and of its optimizer state; a layer is gathered when it is needed and freed after it.
"""

import contextlib
from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from multihead.distributed.process_group import ProcessGroup
from multihead.distributed.sharding import allocate_shards


def replicate(module: nn.Module) -> nn.Module:
    """Return the module wrapped in DDP.

    DDP also broadcasts buffers before every forward pass. Ours are constant, but small beside the gradients, and the
    name of the option that turns this off depends on the version of torch.
    """
    return DistributedDataParallel(module, gradient_as_bucket_view=True)


def shard(module: nn.Module, units: Iterable[nn.Module], group: ProcessGroup, device: torch.device) -> nn.Module:
    """Shard a module that is on the meta device in place, for shards on `device`, and return it.

    Each unit is gathered as a whole; parameters outside of all units belong to the module itself.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh(device.type, (group.world_size,))
    for unit in units:
        fully_shard(unit, mesh=mesh)
    fully_shard(module, mesh=mesh)
    allocate_shards(module, device)
    return module


@contextlib.contextmanager
def no_gradient_sync(module: nn.Module) -> Iterator[None]:
    """Accumulate gradients locally; the next backward pass outside of this context averages them over all ranks."""
    if isinstance(module, DistributedDataParallel):
        with module.no_sync():
            yield
    elif (set_sync := getattr(module, "set_requires_gradient_sync", None)) is not None:  # FSDP
        set_sync(False)
        try:
            yield
        finally:
            set_sync(True)
    else:
        yield
