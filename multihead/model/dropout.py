"""TODO."""

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

# §5.4 Dropout


class Dropout(nn.Module):
    """Sets a share of the numbers to zero while training, and scales the rest so that the mean stays.

    On CPUs torch draws a number of 64 bits for each; a quarter of that is plenty, and takes a quarter of the time.
    """

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        if not self.training or self.p == 0:
            return x
        return x * dropout_mask(x.shape, self.p) if x.device.type == "cpu" else F.dropout(x, self.p)


def dropout_mask(shape: torch.Size, p: float) -> Tensor:
    """1 / (1 - p) where a number is kept, 0 where it is dropped, from 16 random bits for each."""
    n_dropped = round(p * 2**16)  # of the 2^16 values that 16 bits can have
    bits = torch.empty(math.ceil(shape.numel() / 4), dtype=torch.int64).random_(-(2**63), None)
    is_kept = bits.view(torch.int16)[: shape.numel()] >= n_dropped - 2**15
    return is_kept.float().mul_(2**16 / (2**16 - n_dropped)).view(shape)
