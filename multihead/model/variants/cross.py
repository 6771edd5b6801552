"""What a decoder layer knows of the source, in place of multi-head attention (`transformer.Cross`).

Shapes as in transformer.py.
"""

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.incremental import KeysValues, Memory
from multihead.model.transformer import Score, Transformer
from multihead.model.variants.scores import make_score


class SingleVector(nn.Module):
    """No attention: every position of the target sees the same vector, a linear map of one summary of the source.

    The summary is the encoder's output at the end symbol ("last"), as in Sutskever et al. (2014), or its mean.
    """

    def __init__(self, config: ModelConfig, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.w_v = nn.Linear(config.d_model, config.d_model, bias=False)

    def keys_values(self, x: Tensor) -> KeysValues:
        v = self.w_v(x).unsqueeze(1)  # B 1 S D
        return v, v

    def forward(self, x: Tensor, mask: Tensor, *, memory: Memory) -> Tensor:
        v = memory.kv[1]
        vector = (self.shares(mask, v.dtype) @ v).squeeze(1)  # B 1 D
        vector = vector if memory.rows is None else vector[memory.rows.sentence]  # R 1 D
        return vector.expand(-1, x.size(1), -1)  # B T D

    def shares(self, mask: Tensor, dtype: torch.dtype) -> Tensor:
        """Return how much of the vector comes from each position of the source (B 1 1 S); padding is at its end."""
        n_real = mask.sum(dim=-1, keepdim=True)
        if self.kind == "mean":
            return mask.to(dtype) / n_real
        return (torch.arange(mask.size(-1), device=mask.device) == n_real - 1).to(dtype)

    def weights(self, x: Tensor, mask: Tensor, memory: Memory) -> Tensor:
        return self.shares(mask, x.dtype).expand(-1, -1, x.size(1), -1)  # B 1 T S


class ConvS2SAttention(nn.Module):
    """The attention of Gehring et al. (2017): softmax(score(W h + b + g, z)) (z + e), with one head.

    h are the states of the decoder, g the embeddings of the target tokens, z the output of the encoder and e its input.
    There are no other projections. The memory is z and e side by side (B S 2D), as `ConvS2S.encode` returns it.
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w_q = nn.Linear(config.d_model, config.d_model)
        self.score: Score = make_score(config, of_source=True)

    def keys_values(self, x: Tensor) -> KeysValues:
        z, e = x.unsqueeze(1).chunk(2, dim=-1)
        return z, z + e  # B 1 S D

    def queries(self, x: Tensor, memory: Memory) -> Tensor:
        assert memory.inputs is not None
        queries: Tensor = self.w_q(x) + memory.inputs  # B T D, or R 1 D
        return queries.unsqueeze(1)

    def forward(self, x: Tensor, mask: Tensor, *, memory: Memory) -> Tensor:
        q, (k, v), rows = self.queries(x, memory), memory.kv, memory.rows
        heads = self.score(q if rows is None else rows.fold(q), k, v, mask)  # B 1 T D
        out: Tensor = heads if rows is None else rows.unfold(heads)  # B 1 T D, or R 1 1 D
        return out.squeeze(1)

    def weights(self, x: Tensor, mask: Tensor, memory: Memory) -> Tensor:
        weights: Tensor = self.score.weights(self.queries(x, memory), memory.kv[0], mask)
        return weights  # B 1 T S


class ConvS2S(Transformer):
    """A model whose decoder also sees the embeddings of the source (`ConvS2SAttention`)."""

    def encode(self, source_ids: Tensor, source_heads: Tensor | None = None) -> tuple[Tensor, Tensor]:
        mask = (source_ids != self.config.pad_id)[:, None, None, :]  # B 1 1 S
        e = x = self.embed(self.source_embedding, source_ids)  # B S D
        for layer in self.encoder:
            x = layer(x, mask)
        return torch.cat([self.encoder_norm(x), e], dim=-1), mask  # B S 2D
