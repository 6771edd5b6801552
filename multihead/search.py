"""Decoding: from a model's `start` and `step` to the ids of a translation.

Shapes: B sentences, V vocabulary.
"""

import torch
from torch import Tensor

from multihead.model import Transformer
from multihead.tokenizer import BOS_ID, EOS_ID

MAX_EXTRA = 50  # §6.1: an output is at most this much longer than its input


@torch.inference_mode()
def greedy(model: Transformer, source_ids: Tensor, max_extra: int = MAX_EXTRA) -> list[list[int]]:
    """The likeliest token at every step, for each sentence of `source_ids` (B S); the end symbol is left out."""
    state = model.start(source_ids)
    limits = ((source_ids != model.config.pad_id).sum(dim=1) + max_extra).clamp(max=model.config.max_len - 1)
    results: list[list[int]] = [[] for _ in range(len(source_ids))]
    live = torch.arange(len(source_ids), device=source_ids.device)  # sentences not yet ended
    ids = torch.full_like(live, BOS_ID)
    while len(live):
        ids = model.step(ids, state).argmax(dim=-1)  # B
        for sentence, id in zip(live.tolist(), ids.tolist(), strict=True):
            if id != EOS_ID:
                results[sentence].append(id)
        going_on = ((ids != EOS_ID) & (limits > state.n_decoded)).nonzero().squeeze(1)
        if len(going_on) < len(live):  # ended sentences leave the batch
            live, ids, limits = live[going_on], ids[going_on], limits[going_on]
            state.reorder(going_on)
            state.keep_sentences(going_on)
    return results
