"""Tensors in shards (FSDP): each rank holds one shard of a DTensor. Plain tensors pass through unchanged."""

from typing import cast

import torch
import torch.distributed as dist
from torch import Tensor, nn


def is_sharded(tensor: Tensor) -> bool:
    """Return whether each rank holds a shard of a tensor."""
    return hasattr(tensor, "full_tensor")  # only a DTensor has it


def full_tensor(tensor: Tensor) -> Tensor:
    """Return all of a tensor that may be sharded; every rank must call this."""
    gather = getattr(tensor, "full_tensor", None)
    return tensor if gather is None else cast(Tensor, gather())


def shard_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Return the shard of `tensor`, which every rank has in full, that corresponds to the shard of `other`."""
    if not is_sharded(other):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(other, DTensor)
    # With src_data_rank=None each rank takes its shard from its own copy, and nothing is sent. The shard is a view,
    # which would keep all of the tensor in memory.
    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None).clone()


def allocate_shards(module: nn.Module, device: torch.device) -> None:
    """Give a module that was sharded on the meta device memory for its shards; their content is undefined.

    `Module.to_empty` would separate parameters that are shared.
    """
    shards = {id(parameter): nn.Parameter(_empty_shard(parameter, device)) for parameter in module.parameters()}
    for submodule in module.modules():
        for name, parameter in list(submodule.named_parameters(recurse=False)):
            setattr(submodule, name, shards[id(parameter)])
        for name, buffer in list(submodule.named_buffers(recurse=False)):
            setattr(submodule, name, torch.empty_like(buffer, device=device))


def _empty_shard(parameter: Tensor, device: torch.device) -> Tensor:
    from torch.distributed.tensor import DTensor

    assert isinstance(parameter, DTensor)
    local = torch.empty_like(parameter.to_local(), device=device)
    mesh, placements = parameter.device_mesh, parameter.placements
    return DTensor.from_local(local, mesh, placements, shape=parameter.shape, stride=parameter.stride())


@torch.no_grad()
def scatter(full: nn.Module, module: nn.Module) -> None:
    """Copy the tensors of a module that rank 0 has in full to the shards of all ranks; every rank must call this.

    On the other ranks `full` may be on the meta device. No device holds more than one tensor in full at a time.
    """
    from torch.distributed.tensor import DTensor, distribute_tensor

    parameters = dict(full.named_parameters())
    for name, shard in module.named_parameters():
        assert isinstance(shard, DTensor)
        whole = _on_device(parameters[name], shard.device)
        shard.copy_(distribute_tensor(whole, shard.device_mesh, shard.placements))
    buffers = dict(full.named_buffers())
    for name, buffer in module.named_buffers():
        buffer.copy_(_on_device(buffers[name], buffer.device))
        dist.broadcast(buffer, src=0)


def _on_device(tensor: Tensor, device: torch.device) -> Tensor:
    return torch.empty_like(tensor, device=device) if tensor.is_meta else tensor.detach().to(device)


@torch.no_grad()
def gather(module: nn.Module, full: nn.Module | None) -> None:
    """Copy the shards of all ranks to `full`, which rank 0 has, tensor by tensor; every rank must call this."""
    targets = dict(full.named_parameters()) if full else {}
    for name, shard in module.named_parameters():
        whole = full_tensor(shard.detach())
        if full:
            targets[name].copy_(whole)
