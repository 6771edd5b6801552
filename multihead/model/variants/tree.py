"""Positions from a dependency tree: the depth of a word, and the distance of two words in the tree.

Shapes: B batch, S source length, D d_model.
"""

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.positions import sinusoids
from multihead.text.dependency_trees import NO_HEAD
from multihead.text.tokenizer import SPECIAL_TOKENS


def depths_and_distances(source_ids: Tensor, heads: Tensor) -> tuple[Tensor, Tensor]:
    """Return how deep each token is below the end symbol (B S), and the number of edges between two tokens (B S S).

    A distance is negative if the second token comes earlier in the sentence.
    """
    above = _ancestors(source_ids, heads)
    depths = above.sum(dim=-1)  # B S
    distances = depths.unsqueeze(2) + depths.unsqueeze(1) - 2 * above @ above.mT  # B S S
    index = torch.arange(source_ids.size(1), device=source_ids.device)
    return depths.long(), (distances * (index - index.unsqueeze(1)).sign()).long()


def _ancestors(source_ids: Tensor, heads: Tensor) -> Tensor:
    """Return 1 where the second token is an ancestor of the first or the token itself, else 0: B S S.

    The end symbol is above every token and is not counted.
    """
    n_tokens = source_ids.size(1)
    index = torch.arange(n_tokens, device=source_ids.device)
    above = ((heads.unsqueeze(-1) == index) | (index == index.unsqueeze(1))).float()  # B S S
    for _ in range(n_tokens.bit_length()):  # each product reaches twice as far up
        above = (above @ above).clamp_max(1)
    return above * (source_ids >= len(SPECIAL_TOKENS)).unsqueeze(-1)


class Tree(nn.Module):
    """Positions from a dependency tree, beside those in the sentence (Wang et al., 2019).

    The depth of a token is encoded as positions are, and mapped by a matrix. The distance of two tokens in the tree,
    signed by their order, replaces their distance in the sentence (`RelativeScore`).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w_depth = nn.Linear(config.d_model, config.d_model, bias=False)
        self.depths: Tensor
        self.register_buffer(
            "depths", torch.from_numpy(sinusoids(config.max_len + 1, config.d_model)), persistent=False
        )

    def forward(self, source_ids: Tensor, heads: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return what is added to the embeddings (B S D), and the distances of all tokens (B 1 S S)."""
        heads = torch.full_like(source_ids, NO_HEAD) if heads is None else heads
        depths, distances = depths_and_distances(source_ids, heads)
        return self.w_depth(self.depths[depths]), distances.unsqueeze(1)
