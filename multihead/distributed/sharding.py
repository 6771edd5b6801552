"""Tensors in shards (FSDP): each rank holds one shard of a DTensor. Plain tensors pass through unchanged."""

from typing import cast

from torch import Tensor


def full_tensor(tensor: Tensor) -> Tensor:
    """Return all of a tensor that may be sharded; every rank must call this."""
    gather = getattr(tensor, "full_tensor", None)  # only a DTensor has it
    return tensor if gather is None else cast(Tensor, gather())


def shard_like(tensor: Tensor, other: Tensor) -> Tensor:
    """Return the shard of `tensor`, which every rank has in full, that corresponds to the shard of `other`."""
    if not hasattr(other, "full_tensor"):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(other, DTensor)
    # With src_data_rank=None each rank takes its shard from its own copy, and nothing is sent.
    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None)
