"""§5.4: dropout, with fewer random bits than torch draws on CPUs."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Dropout(nn.Module):
    """In training, sets elements to zero with probability p and scales the others by 1 / (1 - p).

    On CPUs torch draws 64 random bits per element. We draw 16, which takes a quarter of the time.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * dropout_mask(x.shape, self.p) if x.device.type == "cpu" else F.dropout(x, self.p)


def dropout_mask(shape: torch.Size, p: float) -> Tensor:
    """Return 0 where an element is dropped and 1 / (1 - p) elsewhere, from 16 random bits per element."""
    n_dropped = round(p * 2**16)  # of the 2^16 values that 16 bits can have
    bits = torch.empty(math.ceil(shape.numel() / 4), dtype=torch.int64).random_(-(2**63), None)
    is_kept = bits.view(torch.int16)[: shape.numel()] >= n_dropped - 2**15
    return is_kept.float().mul_(2**16 / (2**16 - n_dropped)).view(shape)
