"""TODO."""

import math
import random
from collections.abc import Sequence

import torch
from torch import Tensor

from multihead.config.schema import SearchConfig
from multihead.model.transformer import Transformer
from multihead.text.tokenizer import BOS_ID, EOS_ID, NEVER_GENERATED, PAD_ID
from multihead.translation.engine import Hypothesis, SearchResult, length_penalty
from multihead.translation.search.ensemble import Ensemble, length_limits


def sample(models: Sequence[Transformer], source_ids: Tensor, config: SearchConfig) -> list[SearchResult]:
    """`n_best` draws for each sentence; its numbers depend on the seed and on the sentence alone."""
    n_sentences, n_draws = len(source_ids), config.n_best
    ensemble = Ensemble(models, source_ids)
    ensemble.select(torch.arange(n_sentences, device=source_ids.device).repeat_interleave(n_draws), None)
    most = length_limits(models, source_ids, config.max_extra).tolist()
    draws = [
        random.Random(f"{config.seed} {draw} {[id for id in ids if id != PAD_ID]}")
        for ids in source_ids.tolist()
        for draw in range(n_draws)
    ]
    tokens: list[list[int]] = [[] for _ in draws]
    log_probs = [0.0] * len(draws)
    found = [SearchResult() for _ in range(n_sentences)]
    live = [True] * len(draws)
    ids = torch.full((len(draws),), BOS_ID, device=source_ids.device)
    while any(live):
        step = ensemble.step(ids)  # R V
        step[:, NEVER_GENERATED] = -math.inf
        chosen = _draw(step, config, torch.tensor([draw.random() for draw in draws], device=step.device))
        for row, id in enumerate(chosen.tolist()):
            if not live[row]:
                continue
            log_probs[row] += float(step[row, id])
            ended = id == EOS_ID
            if not ended:
                tokens[row].append(id)
            length = len(tokens[row]) + ended
            if ended or length >= most[row // n_draws]:
                live[row] = False
                score = log_probs[row] / float(length_penalty(length, config.penalty))
                hypothesis = Hypothesis(tokens=tokens[row], log_prob=log_probs[row], score=score, finished=ended)
                found[row // n_draws].finished.append(hypothesis)
        ids = chosen
    return found


def _draw(log_probs: Tensor, config: SearchConfig, uniform: Tensor) -> Tensor:
    """One token a row, from the likeliest `top_k` and the likeliest of mass `top_p`, at the temperature."""
    ordered, ids = (log_probs / config.temperature).sort(dim=-1, descending=True, stable=True)
    probs = ordered.softmax(dim=-1)
    before = probs.cumsum(dim=-1) - probs  # the mass of what is likelier
    probs = probs.masked_fill(before >= config.top_p, 0.0)
    if config.top_k:
        probs[:, config.top_k :] = 0.0
    cumulative = probs.cumsum(dim=-1)
    at = (cumulative < (uniform * cumulative[:, -1]).unsqueeze(1)).sum(dim=-1, keepdim=True)
    return ids.gather(1, at.clamp(max=ids.size(1) - 1)).squeeze(1)
