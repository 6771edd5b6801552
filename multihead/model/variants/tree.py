"""TODO."""

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig
from multihead.model.positions import sinusoids
from multihead.model.variants.scores import MASKED_DISTANCE
from multihead.text.tokenizer import PLACE, SPECIAL_TOKENS

# What a model asks


def depths_and_distances(tokens: Tensor) -> tuple[Tensor, Tensor]:
    """How deep each place is below the end symbol (B S), and how many edges are between two (B S S).

    A distance is negative if the second of the two comes earlier in the sentence.
    """
    above = _ancestors(tokens)
    depths = above.sum(dim=-1)  # B S
    distances = depths.unsqueeze(2) + depths.unsqueeze(1) - 2 * above @ above.mT  # B S S
    places = torch.arange(tokens.size(1), device=tokens.device)
    return depths.long(), (distances * (places - places.unsqueeze(1)).sign()).long()


def _ancestors(tokens: Tensor) -> Tensor:
    """1 where a place is above another or is that one (B S S); the end symbol, above all, counts as none."""
    n_places = tokens.size(1)
    places = torch.arange(n_places, device=tokens.device)
    parents = (tokens // PLACE - 1).unsqueeze(-1)  # B S 1, -1 for what hangs from the end symbol
    above = ((parents == places) | (places == places.unsqueeze(1))).float()  # B S S
    for _ in range(n_places.bit_length()):  # twice as far up each time
        above = (above @ above).clamp_max(1)
    return above * (tokens % PLACE >= len(SPECIAL_TOKENS)).unsqueeze(-1)


class Tree(nn.Module):
    """Wang et al. (2019): positions from a dependency tree, beside those of the sentence.

    The depth of a word is encoded as a position is, and mapped by a matrix; the distance of two words in the tree, with
    its sign from their order, takes the place of their distance in the sentence (`RelativeScore`).
    """

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.w_depth = nn.Linear(config.d_model, config.d_model, bias=False)
        self.depths: Tensor
        self.register_buffer(
            "depths", torch.from_numpy(sinusoids(config.max_len + 1, config.d_model)), persistent=False
        )

    def forward(self, tokens: Tensor, mask: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The ids, what is added to their embeddings (B S D), and distances to what may be seen (B 1 S S)."""
        depths, distances = depths_and_distances(tokens)
        return tokens % PLACE, self.w_depth(self.depths[depths]), distances.unsqueeze(1).where(mask, MASKED_DISTANCE)
