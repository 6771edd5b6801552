"""Sampling: draw each token from the model's distribution instead of searching for the best output."""

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from multihead.config.schema import SearchConfig
from multihead.model.transformer import Transformer
from multihead.text.tokenizer import BOS_ID, EOS_ID, NEVER_GENERATED, PAD_ID
from multihead.translation.engine import Hypothesis, SearchResult, length_penalty
from multihead.translation.search.ensemble import Ensemble, length_limits


def sample(
    models: Sequence[Transformer], source_ids: Tensor, config: SearchConfig, source_heads: Tensor | None = None
) -> list[SearchResult]:
    """Draw `n_best` translations of each sentence of `source_ids` (B S).

    A sample is a function of (seed, sentence): neither the rest of the batch nor the number of draws changes it.
    """
    n_sentences, n_draws = len(source_ids), config.n_best
    ensemble = Ensemble(models, source_ids, source_heads=source_heads)
    ensemble.select(torch.arange(n_sentences).repeat_interleave(n_draws))
    limits = length_limits(models, source_ids, config.max_extra).cpu().repeat_interleave(n_draws).tolist()
    generators = [
        random_generator(config.seed, draw, [id for id in ids if id != PAD_ID])
        for ids in source_ids.cpu().tolist()
        for draw in range(n_draws)
    ]
    outputs: list[list[int]] = [[] for _ in generators]
    log_probs = [0.0] * len(generators)
    results = [SearchResult() for _ in range(n_sentences)]
    live = set(range(len(generators)))
    ids = torch.full((len(generators),), BOS_ID, device=source_ids.device)  # R
    while live:
        step = ensemble.step(ids)  # R V
        for id in NEVER_GENERATED:
            step[:, id] = -math.inf
        uniform = torch.tensor([one.random() for one in generators])
        ids = _draw(step, config, uniform.to(step.device, non_blocking=True))
        drawn = torch.stack([ids.double(), step.gather(1, ids.unsqueeze(1)).squeeze(1).double()])
        # A GPU is waited for here only: one transfer per token.
        for row, (id, log_prob) in enumerate(drawn.cpu().mT.tolist()):
            if row not in live:
                continue
            log_probs[row] += log_prob
            finished = id == EOS_ID
            if not finished:
                outputs[row].append(int(id))
            length = len(outputs[row]) + finished
            if finished or length >= limits[row]:
                live.remove(row)
                score = log_probs[row] / length_penalty(length, config.penalty)
                results[row // n_draws].finished.append(
                    Hypothesis(tokens=outputs[row], log_prob=log_probs[row], score=score, finished=finished)
                )
    return results


def random_generator(seed: int, draw: int, source: Sequence[int]) -> np.random.Generator:
    """Return the generator of one draw of one sentence."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence([seed, draw, *source])))


def _draw(log_probs: Tensor, config: SearchConfig, uniform: Tensor) -> Tensor:
    """Draw a token per row (R), restricted by temperature, `top_k` and `top_p`; `uniform` are numbers in [0, 1)."""
    ordered, ids = (log_probs / config.temperature).sort(dim=-1, descending=True, stable=True)
    probs = ordered.softmax(dim=-1)
    mass_before = probs.cumsum(dim=-1) - probs
    probs = probs.masked_fill(mass_before >= config.top_p, 0.0)
    if config.top_k:
        probs[:, config.top_k :] = 0.0
    cumulative = probs.cumsum(dim=-1)
    columns = (cumulative < (uniform * cumulative[:, -1]).unsqueeze(1)).sum(dim=-1, keepdim=True)
    return ids.gather(1, columns.clamp(max=ids.size(1) - 1)).squeeze(1)
