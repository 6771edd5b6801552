"""What is trained, as one module from ids to loss; and the same on many processes at a time, whole or in shards.

DDP gives each process the whole model, and sums the gradients while they are computed. FSDP gives each a shard of every
weight, of its gradient and of its moments; a layer is put together when it is needed, and taken apart after it.
"""

import contextlib
import copy
import inspect
from collections.abc import Iterator
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from multihead.batches import Batch
from multihead.distributed import Ranks
from multihead.loss import linear_smoothed_loss
from multihead.model import DecoderLayer, Transformer
from multihead.tokenizer import PAD_ID

_DDP_OPTIONS = inspect.signature(DistributedDataParallel.__init__).parameters


class Objective(nn.Module):
    """The loss of a batch: all that a step computes, so that whoever wraps it sees every use of a weight."""

    def __init__(self, model: Transformer, compiled: bool = False) -> None:
        super().__init__()
        self.model, self.compiled = model, compiled
        self.hidden = torch.compile(model.hidden, dynamic=True) if compiled else model.hidden

    def forward(self, batch: Batch, smoothing: float, r_drop: float) -> tuple[Tensor, Tensor]:
        """Smoothed and plain loss, summed over the real tokens of a batch; the mean of both passes with R-Drop."""
        n_passes = 2 if r_drop else 1
        source, target_in = (ids.repeat(n_passes, 1) for ids in (batch.source, batch.target_in))
        real = batch.target_out != PAD_ID  # B T
        x = self.hidden(source, target_in)[real.repeat(n_passes, 1)]  # N D
        loss, plain = linear_smoothed_loss(x, self.model.output, batch.target_out[real], smoothing, r_drop)
        return loss / n_passes, plain / n_passes


def spread(objective: Objective, parallel: str, ranks: Ranks) -> nn.Module:
    """The same objective, trained by all ranks together; alone it stays as it is."""
    if ranks.n_ranks == 1:
        return objective
    if parallel == "fsdp":
        return _in_shards(objective, ranks)
    # Buffers are the same everywhere, and stay so; the name of this choice depends on the version of torch.
    choice = "forward_sync_buffers" if "forward_sync_buffers" in _DDP_OPTIONS else "broadcast_buffers"
    options: dict[str, Any] = {choice: False, "gradient_as_bucket_view": True}
    return DistributedDataParallel(objective, **options)


def trained_model(objective: nn.Module) -> Transformer:
    """The model whose weights are moved: of an objective as it is, or as `spread` made it."""
    inner = objective.module if isinstance(objective, DistributedDataParallel) else objective
    return cast(Objective, inner).model


def _in_shards(objective: Objective, ranks: Ranks) -> nn.Module:
    """A copy of the objective in shards, a group for each layer; what is left is the objective's own group."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = copy.deepcopy(objective.model)
    mesh = init_device_mesh(next(model.parameters()).device.type, (ranks.n_ranks,))
    for layer in model.decoder:
        # What the encoder said is projected for all layers before the first one runs: not in the layer's own time.
        cross = cast(DecoderLayer, layer).cross_attention
        fully_shard(cross.w_k, mesh=mesh)
        fully_shard(cross.w_v, mesh=mesh)
    for layer in [*model.encoder, *model.decoder]:
        fully_shard(layer, mesh=mesh)
    sharded = Objective(model, objective.compiled)
    fully_shard(sharded, mesh=mesh)
    return sharded


@contextlib.contextmanager
def summed_later(objective: nn.Module) -> Iterator[None]:
    """Within it a rank adds up its own gradients; the first ones outside of it are summed over all ranks."""
    if isinstance(objective, DistributedDataParallel):
        with objective.no_sync():
            yield
    elif (set_sync := getattr(objective, "set_requires_gradient_sync", None)) is not None:
        set_sync(False)
        try:
            yield
        finally:
            set_sync(True)
    else:
        yield
