"""A GPU for tests: a device that computes on the CPU and records each time that the CPU would have to wait for it.

A program waits when it reads a number, when an operation has a result whose size depends on values (nonzero, a boolean
index), and when it copies without `non_blocking`. Reading results in any other way fails. The device is called "meta",
because torch needs no driver for it.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

GPU = "meta"
READS = ("aten::_local_scalar_dense", "aten::item", "aten::equal", "aten::is_nonzero")
SIZED_BY_VALUES = (
    "aten::nonzero",
    "aten::masked_select",
    "aten::bincount",
    "aten::_unique2",
    "aten::repeat_interleave",
)


class GpuTensor(Tensor):
    """A tensor on the fake device; `on_cpu` has its values."""

    on_cpu: Tensor

    @staticmethod
    def __new__(cls, on_cpu: Tensor) -> "GpuTensor":
        made: GpuTensor = Tensor._make_wrapper_subclass(
            cls,
            on_cpu.size(),
            strides=on_cpu.stride(),
            storage_offset=on_cpu.storage_offset(),
            dtype=on_cpu.dtype,
            device=torch.device(GPU),
            requires_grad=on_cpu.requires_grad,
        )
        made.on_cpu = on_cpu
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        raise RuntimeError(f"{func} outside of FakeGpu")


class FakeGpu(TorchDispatchMode):
    """Inside of this context the device works; `waits` has what the CPU waited for."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.waits: list[str] = []

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        options, tensors = (
            dict(kwargs or {}),
            [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)],
        )
        is_on_gpu = any(isinstance(tensor, GpuTensor) for tensor in tensors)
        target = torch.device(options["device"]).type if options.get("device") else None
        if target == GPU:
            options["device"] = "cpu"
        if reason := _reason_to_wait(func.name(), args, tensors, is_on_gpu, target, options):
            self.waits.append(reason)
        args, options = tree_map(lambda leaf: leaf.on_cpu if isinstance(leaf, GpuTensor) else leaf, (args, options))
        result = func(*args, **options)
        if target != GPU and (not is_on_gpu or target == "cpu"):
            return result
        with torch.inference_mode(False):  # a view of a tensor with a version counter needs one, too
            return tree_map_only(Tensor, GpuTensor, result)


def _reason_to_wait(  # noqa: PLR0913 - a call
    name: str,
    args: Sequence[Any],
    tensors: Sequence[Tensor],
    is_on_gpu: bool,
    target: str | None,
    options: Mapping[str, Any],
) -> str | None:
    name = name.partition(".")[0]
    if is_on_gpu and target == "cpu":
        return f"{name} to the CPU"
    if tensors and not is_on_gpu and target == GPU and not options.get("non_blocking"):
        return f"{name} to the GPU"
    if not is_on_gpu:
        return None
    if any(not isinstance(tensor, GpuTensor) and tensor.dim() for tensor in tensors):
        return f"{name} of a tensor on the CPU"
    indices = tree_leaves(args[1]) if name in ("aten::index", "aten::index_put_") else []
    is_mask = any(isinstance(index, Tensor) and index.dtype == torch.bool for index in indices)
    return name if name in READS + SIZED_BY_VALUES or is_mask else None
