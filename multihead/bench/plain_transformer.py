"""What a careful user builds from torch.nn.Transformer, for comparison."""

import math
import warnings

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.positions import sinusoids
from multihead.text.tokenizer import PAD_ID


class PlainTransformer(nn.Module):
    """torch.nn.Transformer with what it leaves to the user: embeddings, positions and the output projection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.embedding = nn.Embedding(config.vocab_size, config.d_model, padding_idx=PAD_ID)
        nn.init.normal_(self.embedding.weight, std=config.d_model**-0.5)
        with warnings.catch_warnings(action="ignore"):  # pre-norm has no fast path for inference
            self.transformer = nn.Transformer(
                config.d_model,
                config.n_heads,
                config.encoder_layers,
                config.decoder_layers,
                config.d_ff,
                config.dropout,
                batch_first=True,
                norm_first=config.norm == "pre",
            )
        self.positions = nn.Buffer(torch.from_numpy(sinusoids(config.max_len, config.d_model)), persistent=False)
        self.dropout = nn.Dropout(config.dropout)
        self.scale = math.sqrt(config.d_model)

    def forward(self, source: Tensor, target_in: Tensor, target_out: Tensor) -> Tensor:
        padding = source == PAD_ID
        later = torch.ones(target_in.size(1), target_in.size(1), dtype=torch.bool, device=source.device).triu(1)
        hidden = self.transformer(
            self._embed(source),
            self._embed(target_in),
            tgt_mask=later,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        real = target_out != PAD_ID
        logits = F.linear(hidden[real], self.embedding.weight)
        return F.cross_entropy(logits, target_out[real], label_smoothing=0.1)

    def _embed(self, ids: Tensor) -> Tensor:
        x: Tensor = self.dropout(self.embedding(ids) * self.scale + self.positions[: ids.size(1)])
        return x
