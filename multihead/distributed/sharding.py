"""TODO."""

from typing import cast

from torch import Tensor

# Tensors in shards, of which each rank has one (FSDP)


def full_tensor(tensor: Tensor) -> Tensor:
    """All of a tensor that may be in shards; all ranks have to ask."""
    gather = getattr(tensor, "full_tensor", None)  # of a DTensor alone
    return tensor if gather is None else cast(Tensor, gather())


def shard_like(tensor: Tensor, other: Tensor) -> Tensor:
    """A whole tensor, which every rank has, in the shards of another one."""
    if not _is_sharded(other):
        return tensor
    from torch.distributed.tensor import DTensor, distribute_tensor

    assert isinstance(other, DTensor)
    # Every rank has all of it, so that nothing needs to be sent.
    return distribute_tensor(tensor.to(other.device), other.device_mesh, other.placements, src_data_rank=None)


def _is_sharded(tensor: Tensor) -> bool:
    return hasattr(tensor, "full_tensor")
