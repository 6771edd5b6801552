"""The objective: a module from a batch to its loss."""

import torch
from torch import Tensor, nn

from multihead.model.transformer import Transformer
from multihead.training.batch import Batch
from multihead.training.loss import linear_smoothed_loss


class Objective(nn.Module):
    """Computes the loss of a batch: all of a forward pass, so that DDP or FSDP sees every use of a weight."""

    def __init__(self, model: Transformer, compiled: bool = False) -> None:
        super().__init__()
        self.model = model
        self.hidden = torch.compile(model.hidden, dynamic=True) if compiled else model.hidden

    def forward(self, batch: Batch, smoothing: float, r_drop: float) -> tuple[Tensor, Tensor]:
        """Return smoothed and plain loss, summed over the tokens of a batch; with R-Drop, the mean of two passes."""
        n_passes = 2 if r_drop else 1
        source, target_in = (ids.repeat(n_passes, 1) for ids in (batch.source, batch.target_in))
        heads = None if batch.source_heads is None else batch.source_heads.repeat(n_passes, 1)
        n_places = batch.target_out.numel()
        places = torch.cat([batch.real + n_places * number for number in range(n_passes)])
        x = self.hidden(source, target_in, heads).flatten(0, 1)[places]  # N D
        targets = batch.target_out.flatten()[batch.real]
        loss, plain = linear_smoothed_loss(x, self.model.output, targets, smoothing, r_drop)
        return loss / n_passes, plain / n_passes

    def shard_units(self) -> list[nn.Module]:
        """Return the modules that FSDP gathers one at a time, inner ones first."""
        # Keys and values of the memory are projected for all layers before the first one runs.
        cross = [getattr(layer, "cross_attention", None) for layer in self.model.decoder]
        modules = [getattr(attention, name, None) for attention in cross for name in ("w_k", "w_v")]
        projections = [module for module in modules if module is not None]
        return [*projections, *self.model.encoder, *self.model.decoder]
