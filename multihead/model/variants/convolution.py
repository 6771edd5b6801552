"""Mixers that are convolutions: plain, dilated, separable and gated."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.incremental import LayerCache


class Convolution(nn.Module):
    """A convolution over `kernel` positions that are `dilation` apart: centered, or if causal over earlier ones only.

    A separable convolution works on each dimension separately and then maps all of them linearly. A gated one lets half
    of its output control how much of the other half passes (Gehring et al., 2017).
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

    def forward(self, x: Tensor, mask: Tensor, cache: LayerCache | None = None) -> Tensor:
        if cache is not None:
            earlier = cache.tensors["x"][:, 1:] if cache.length else x.new_zeros(len(x), self.before, x.size(2))
            x = cache.tensors["x"] = torch.cat([earlier, x], dim=1)
        else:
            x = x if self.causal else x * mask[:, 0].mT  # padding is zero, like everything beyond the sentence
            x = F.pad(x, (0, 0, self.before, self.after))
        out: Tensor = self.last(self.convolution(x.mT).mT)  # B T D
        return out
