"""TODO."""

import torch
from torch import Tensor

# §3.5 Positional encoding


def sinusoids(max_len: int, d_model: int) -> Tensor:
    """§3.5: sin(pos / 10000^(2i/d_model)) in the even dimensions, the cosine of the same in the odd ones."""
    position = torch.arange(max_len, dtype=torch.float64).unsqueeze(1)
    angle = position * 10_000.0 ** (-torch.arange(0, d_model, 2, dtype=torch.float64) / d_model)
    return torch.stack([angle.sin(), angle.cos()], dim=-1).flatten(1)[:, :d_model].float()  # max_len D
