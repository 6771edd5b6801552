"""TODO."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.incremental import LayerCache


class Convolution(nn.Module):
    """A convolution over `kernel` places that are `dilation` apart: around a place, or up to it if it is causal.

    Separable: each of d_model on its own, then a linear map of all. Gated: half of what comes out decides how much of
    the other half is let through (Gehring et al., 2017).
    """

    def __init__(
        self, config: ModelConfig, causal: bool, *, dilation: int = 1, separable: bool = False, gated: bool = False
    ) -> None:
        super().__init__()
        d_model, reach = config.d_model, (config.kernel - 1) * dilation
        self.before = reach if causal else reach // 2
        self.after = reach - self.before
        self.causal = causal
        self.convolution = nn.Conv1d(
            d_model,
            2 * d_model if gated else d_model,
            config.kernel,
            dilation=dilation,
            groups=d_model if separable else 1,
        )
        self.last = nn.GLU() if gated else nn.Linear(d_model, d_model) if separable else nn.Identity()

    def forward(self, x: Tensor, mask: Tensor, past: LayerCache | None = None) -> Tensor:
        if past is not None:
            x = past["x"] = torch.cat([past["x"][:, 1:] if past else x.new_zeros(len(x), self.before, x.size(2)), x], 1)
        else:
            x = x if self.causal else x * mask[:, 0].mT  # what is not there is zero: padding as well as what is beyond
            x = F.pad(x, (0, 0, self.before, self.after))
        out: Tensor = self.last(self.convolution(x.mT).mT)  # B T D
        return out
