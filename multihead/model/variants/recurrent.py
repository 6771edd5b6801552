"""Mixers that are recurrent networks: LSTM and GRU."""

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.incremental import LayerCache


class Recurrent(nn.Module):
    """An LSTM or GRU; in the encoder, half of the dimensions are read from the end of the sentence."""

    def __init__(self, config: ModelConfig, causal: bool, kind: type[nn.LSTM] | type[nn.GRU]) -> None:
        super().__init__()
        n_back = 0 if causal else config.d_model // 2
        self.forwards = kind(config.d_model, config.d_model - n_back, batch_first=True)
        self.backwards = kind(config.d_model, n_back, batch_first=True) if n_back else None

    def forward(self, x: Tensor, mask: Tensor, cache: LayerCache | None = None) -> Tensor:
        if cache is not None:
            return self._step(x, cache)
        y: Tensor = self.forwards(x)[0]  # B S D
        if self.backwards is None:
            return y
        order = reversed_positions(mask[:, 0, 0]).unsqueeze(-1)  # B S 1
        z: Tensor = self.backwards(x.gather(1, order.expand_as(x)))[0]
        return torch.cat([y, z.gather(1, order.expand_as(z))], dim=-1)  # B S D

    def _step(self, x: Tensor, cache: LayerCache) -> Tensor:
        names = "hc" if isinstance(self.forwards, nn.LSTM) else "h"
        before = tuple(cache.tensors[name].unsqueeze(0) for name in names) if cache.length else None  # 1 R D
        y, after = self.forwards(x, before[0] if before and len(names) == 1 else before)
        for name, state in zip(names, after if len(names) > 1 else (after,), strict=True):
            cache.tensors[name] = state.squeeze(0)  # R D
        out: Tensor = y
        return out


def reversed_positions(is_real: Tensor) -> Tensor:
    """Return the order that reverses each sentence and leaves its padding where it is: B S."""
    index = torch.arange(is_real.size(1), device=is_real.device)
    last = is_real.sum(dim=1, keepdim=True) - 1
    return torch.where(index <= last, last - index, index)
