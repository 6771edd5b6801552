"""End-to-end memory networks (Sukhbaatar et al., 2015): several hops of attention over facts, then an answer.

Shapes as in transformer.py; N facts of a source. A token that ends a fact (`model.fact_end_id`, a full stop) belongs to
it; what follows the last one is the question.
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.transformer import Blocks, Transformer, masked_softmax

MAX_FACTS = 64  # ages that are told apart


class Facts(NamedTuple):
    """The facts and the question of each source."""

    keys: Tensor  # B N D
    values: Tensor  # B N D
    real: Tensor  # B 1 N
    question: Tensor  # B 1 D
    tokens: Tensor  # B N S: 1 where a token is a part of the fact


class Hop(nn.Module):
    """Softmax(u · keys) over the facts, and the values that it weighs."""

    def forward(self, u: Tensor, facts: Facts) -> Tensor:
        return self.weights(u, facts).to(u.dtype) @ facts.values  # B 1 D

    def weights(self, u: Tensor, facts: Facts) -> Tensor:
        """Return how much is drawn from each fact (B 1 N); nothing if there are none."""
        return masked_softmax(u @ facts.keys.mT, facts.real).nan_to_num(0.0)


class MemoryNetwork(Transformer):
    """An encoder that reads facts as often as it has layers: u becomes H u + o, where o is what a hop reads.

    u begins as the question. Facts and question are sums of embeddings, weighted by the place of a word in them, and
    facts also have their age. All hops share their embeddings and H. The decoder sees the last u, and nothing else of
    the source.
    """

    def __init__(self, config: ModelConfig, blocks: Blocks) -> None:
        super().__init__(config, blocks)
        self.encoder = nn.ModuleList(Hop() for _ in range(config.encoder_layers))
        self.value_embedding = nn.Embedding(config.vocab_size, config.d_model)
        self.key_ages = nn.Parameter(torch.empty(MAX_FACTS, config.d_model))
        self.value_ages = nn.Parameter(torch.empty(MAX_FACTS, config.d_model))
        for weight in (self.value_embedding.weight, self.key_ages, self.value_ages):
            nn.init.normal_(weight, std=config.d_model**-0.5)
        self.w_h = nn.Linear(config.d_model, config.d_model, bias=False)

    def encode(self, source_ids: Tensor, source_heads: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Return u after the last hop as a memory of one position (B 1 D), and its mask."""
        facts = self.facts(source_ids)
        u = facts.question  # B 1 D
        for hop in self.encoder:
            u = self.w_h(u) + hop(u, facts)
        return self.encoder_norm(u), torch.ones_like(source_ids[:, None, None, :1], dtype=torch.bool)

    def facts(self, source_ids: Tensor) -> Facts:
        """Split sources into facts and question, and embed them."""
        is_text = source_ids != self.config.pad_id  # B S
        ends = (source_ids == self.config.fact_end_id) & is_text  # B S
        number = ends.cumsum(dim=1) - ends.long()  # B S: of the fact that a token belongs to
        n_facts = ends.sum(dim=1, keepdim=True)  # B 1; the question has this number
        index = torch.arange(max(1, int(n_facts.max())), device=source_ids.device).unsqueeze(1)  # N 1
        tokens = (number.unsqueeze(1) == index) & (index < n_facts.unsqueeze(1))  # B N S
        asks = (number == n_facts) & is_text  # B S
        texts = torch.cat([tokens, asks.unsqueeze(1)], dim=1).to(self.key_ages.dtype)  # B N+1 S
        weights = place_weights(texts, self.config.d_model)  # B S D
        sums = texts @ (weights * self.dropout(self.source_embedding(source_ids)))  # B N+1 D
        values = texts[:, :-1] @ (weights * self.dropout(self.value_embedding(source_ids)))  # B N D
        age = (n_facts - 1 - index.mT).clamp(0, MAX_FACTS - 1)  # B N
        return Facts(
            keys=sums[:, :-1] + self.key_ages[age],
            values=values + self.value_ages[age],
            real=index.mT.unsqueeze(0) < n_facts.unsqueeze(1),
            question=sums[:, -1:],
            tokens=tokens,
        )

    def hop_weights(self, source_ids: Tensor) -> list[Tensor]:
        """Return how much each hop draws from each token (B 1 S): the weight of a fact is shared by its tokens."""
        facts = self.facts(source_ids)
        share = facts.tokens / facts.tokens.sum(dim=2, keepdim=True).clamp_min(1)  # B N S
        u, weights = facts.question, []
        for hop in self.encoder:
            assert isinstance(hop, Hop)
            weights.append(hop.weights(u, facts).to(share.dtype) @ share)
            u = self.w_h(u) + hop(u, facts)
        return weights


def place_weights(texts: Tensor, width: int) -> Tensor:
    """Return the weight of each token (B S D): (1 - j/J) - (k/D)(1 - 2j/J) for word j of J in its text, dimension k.

    `texts` (B N S) is 1 where a token is a part of the text; no token is a part of two.
    """
    j = (texts.cumsum(dim=2) / texts.sum(dim=2, keepdim=True).clamp_min(1) * texts).sum(dim=1).unsqueeze(-1)  # B S 1
    k = torch.arange(1, width + 1, device=texts.device, dtype=texts.dtype) / width  # D
    return (1 - j) - k * (1 - 2 * j)
