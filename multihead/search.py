"""Decoding (§6.1): beam search, of which greedy search is a beam of one, and sampling.

Shapes: B sentences still searched, W rows of each, V vocabulary, T tokens so far.

A sentence's result must not depend on its neighbours, but sums of floating-point numbers do: in another batch the same
sentence differs in the last digits, and may then fall on the other side of a near tie. So every decision needs a
margin, and a sentence with a closer call is marked: searched again alone, it gives what every sure batch would give.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from multihead.config import SearchConfig
from multihead.model import DecoderState, Transformer
from multihead.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID

CLOSE_CALL = 1e-4  # nats; ten times what another batch changes in a sum of log-probabilities
NEVER_SAID = [PAD_ID, UNK_ID, BOS_ID]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A translation with what the model thinks of it."""

    tokens: list[int]  # without the end symbol
    log_prob: float  # of the tokens and the end symbol
    score: float  # log_prob / length penalty
    ended: bool = True  # False: cut off at the limit


# What a model says whose probabilities are undefined, as they are once training has gone wrong.
NOTHING = Hypothesis(tokens=[], log_prob=-math.inf, score=-math.inf, ended=False)


@dataclass(slots=True)
class Found:
    """What the search has found for one sentence."""

    ended: list[Hypothesis] = field(default_factory=list)  # best first
    cut: list[Hypothesis] = field(default_factory=list)  # live at the limit
    close: bool = False  # a decision was too close to be the same in another batch

    def best(self, n: int) -> list[Hypothesis]:
        return (self.ended or self.cut or [NOTHING])[:n]


def length_penalty(length: int | Tensor, alpha: float) -> float | Tensor:
    """§6.1, after Wu et al. (2016): ((5 + length) / 6)^alpha, the end symbol counted."""
    return ((5 + length) / 6) ** alpha


class Ensemble:
    """One or several models that vote: the mean of their probabilities. All share a vocabulary."""

    def __init__(self, models: Sequence[Transformer], source_ids: Tensor) -> None:
        self._models = models
        self._states: list[DecoderState] = [model.start(source_ids) for model in models]

    def step(self, ids: Tensor) -> Tensor:
        """Log-probabilities of the next token for each row: R V."""
        votes = [model.step(ids, state).float() for model, state in zip(self._models, self._states, strict=True)]
        log_probs = torch.stack([logits.log_softmax(dim=-1) for logits in votes])
        return log_probs[0] if len(votes) == 1 else log_probs.logsumexp(dim=0) - math.log(len(votes))

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Go on with these rows, and if some sentences left, with those that stay."""
        for state in self._states:
            state.reorder(rows)
            if sentences is not None:
                state.keep_sentences(sentences)


def limits(models: Sequence[Transformer], source_ids: Tensor, max_extra: int) -> Tensor:
    """The longest output of each sentence, the end symbol counted: §6.1's input + 50, as far as positions reach."""
    longest = min(model.config.max_len for model in models)
    return ((source_ids != models[0].config.pad_id).sum(dim=1) + max_extra).clamp(max=longest)


@torch.inference_mode()
def search(
    models: Sequence[Transformer],
    source_ids: Tensor,
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[Found]:
    """Translate each sentence of `source_ids` (B S); an output begins with its prefix, if there is one."""
    if config.sample:
        return _sample(models, source_ids, config)
    beams = _Beams(models, source_ids, config, prefixes)
    while len(beams.sentences):
        beams.step()
    return beams.found


class _Beams:
    """The live hypotheses of a batch. Each step keeps the `beam` best continuations; those that end are set aside."""

    def __init__(
        self,
        models: Sequence[Transformer],
        source_ids: Tensor,
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]] | None,
    ) -> None:
        n_sentences, device = len(source_ids), source_ids.device
        self.config, self.prefixes = config, prefixes
        self.ensemble = Ensemble(models, source_ids)
        self.found = [Found() for _ in range(n_sentences)]
        self.sentences = torch.arange(n_sentences, device=device)  # B: which sentence a row of what follows is of
        self.limits = limits(models, source_ids, config.max_extra)  # B
        self.log_probs = torch.zeros(n_sentences, 1, device=device)  # B W, -inf for a row that is dead
        self.tokens = torch.full((n_sentences, 1, 1), BOS_ID, device=device)  # B W T

    def step(self) -> None:
        length = self.tokens.size(2)  # of the outputs after this step
        values, parents, tokens = self._continuations(length)  # B W+1 each
        beam = min(self.config.beam, values.size(1))
        if values.size(1) > beam:
            self._mark_close(values[:, beam - 1] - values[:, beam])
        values, parents, tokens = values[:, :beam], parents[:, :beam], tokens[:, :beam]

        ends = (tokens == EOS_ID) & values.isfinite()
        self._set_aside(ends, values, parents, length)
        live = values.masked_fill(ends, -math.inf)
        done = self._done(live, length)
        if bool((done & (length >= self.limits)).any()):
            self._keep_cut(done & (length >= self.limits), live, parents, tokens, length)
        self._go_on(done, live, parents, tokens)

    def _continuations(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best `beam` + 1 continuations of each sentence: log-probability, row that they continue, token."""
        n_sentences, width = self.log_probs.shape
        step = self.ensemble.step(self.tokens[:, :, -1].flatten()).view(n_sentences, width, -1)  # B W V
        self._forbid(step, length)
        totals = (self.log_probs.unsqueeze(2) + step).flatten(1)  # B W·V
        values, at = totals.topk(min(self.config.beam + 1, totals.size(1)), dim=1)
        return values, at // step.size(2), at % step.size(2)

    def _forbid(self, step: Tensor, length: int) -> None:
        """Set to -inf what may not come next; the rest keeps its log-probability, so that scores stay forced scores."""
        step[:, :, NEVER_SAID] = -math.inf
        if length <= self.config.min_length:
            step[:, :, EOS_ID] = -math.inf
        if self.config.no_repeat:
            self._forbid_repeats(step)
        for row, sentence in enumerate(self.sentences.tolist() if self.prefixes else []):
            prefix = self.prefixes[sentence] if self.prefixes else ()
            if length <= len(prefix):
                forced = step[row, :, prefix[length - 1]].clone()
                step[row] = -math.inf
                step[row, :, prefix[length - 1]] = forced

    def _forbid_repeats(self, step: Tensor) -> None:
        size = self.config.no_repeat
        for row, hypotheses in enumerate(self.tokens.tolist()):
            for column, tokens in enumerate(hypotheses):
                tail = tokens[len(tokens) - size + 1 :]
                for at in range(1, len(tokens) - size + 1):
                    if tokens[at : at + size - 1] == tail:
                        step[row, column, tokens[at + size - 1]] = -math.inf

    def _mark_close(self, gaps: Tensor) -> None:
        for sentence in self.sentences[gaps < CLOSE_CALL].tolist():
            self.found[sentence].close = True

    def _set_aside(self, ends: Tensor, values: Tensor, parents: Tensor, length: int) -> None:
        penalty = float(length_penalty(length, self.config.alpha))
        for row, column in ends.nonzero().tolist():
            log_prob = float(values[row, column])
            tokens = self.tokens[row, parents[row, column], 1:].tolist()
            hypotheses = self.found[int(self.sentences[row])].ended
            hypotheses.append(Hypothesis(tokens=tokens, log_prob=log_prob, score=log_prob / penalty))
            hypotheses.sort(key=lambda hypothesis: -hypothesis.score)

    def _done(self, live: Tensor, length: int) -> Tensor:
        """Sentences at their limit, or whose live hypotheses cannot come before what has ended, however they go on.

        Log-probabilities only fall, so the best that a live one can reach is its own over the largest penalty.
        """
        reachable = live.max(dim=1).values / length_penalty(self.limits, self.config.alpha)  # B
        worst_wanted = [self._worst_wanted(sentence) for sentence in self.sentences.tolist()]
        safe = torch.tensor(worst_wanted, device=live.device) >= reachable + CLOSE_CALL
        return safe | (length >= self.limits) | ~live.isfinite().any(dim=1)

    def _worst_wanted(self, sentence: int) -> float:
        ended, n_best = self.found[sentence].ended, self.config.n_best
        return ended[n_best - 1].score if len(ended) >= n_best else -math.inf

    def _keep_cut(self, cut: Tensor, live: Tensor, parents: Tensor, tokens: Tensor, length: int) -> None:
        """What is live at the limit is given back only if nothing has ended."""
        penalty = float(length_penalty(length, self.config.alpha))
        for row in cut.nonzero().flatten().tolist():
            for column in live[row].isfinite().nonzero().flatten().tolist():
                log_prob = float(live[row, column])
                ids = [*self.tokens[row, parents[row, column], 1:].tolist(), int(tokens[row, column])]
                self.found[int(self.sentences[row])].cut.append(
                    Hypothesis(tokens=ids, log_prob=log_prob, score=log_prob / penalty, ended=False)
                )

    def _go_on(self, done: Tensor, live: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Make the continuations the new rows; sentences that are done leave, and so do columns where all are dead."""
        for sentence in self.sentences[done].tolist():
            self._mark_close_ending(self.found[sentence])
        stay = (~done).nonzero().flatten()
        if not len(stay):
            self.sentences = stay
            return
        live, order = live[stay].sort(dim=1, descending=True, stable=True)  # the dead come last
        width = int(live.isfinite().sum(dim=1).max())
        order = order[:, :width]
        parents, tokens = parents[stay].gather(1, order), tokens[stay].gather(1, order)
        self.ensemble.select(
            (stay.unsqueeze(1) * self.log_probs.size(1) + parents).flatten(), stay if bool(done.any()) else None
        )
        history = self.tokens[stay.unsqueeze(1), parents]  # B W T
        self.tokens = torch.cat([history, tokens.unsqueeze(2)], dim=2)
        self.log_probs = live[:, :width]
        self.sentences, self.limits = self.sentences[stay], self.limits[stay]

    def _mark_close_ending(self, found: Found) -> None:
        scores = [hypothesis.score for hypothesis in found.best(self.config.n_best + 1)]
        found.close |= any(one - other < CLOSE_CALL for one, other in pairwise(scores))


def _sample(models: Sequence[Transformer], source_ids: Tensor, config: SearchConfig) -> list[Found]:
    """`n_best` draws for each sentence; its numbers depend on the seed and on the sentence alone."""
    n_sentences, n_draws = len(source_ids), config.n_best
    ensemble = Ensemble(models, source_ids)
    most = limits(models, source_ids, config.max_extra).tolist()
    draws = [
        random.Random(f"{config.seed} {draw} {[id for id in ids if id != PAD_ID]}")
        for ids in source_ids.tolist()
        for draw in range(n_draws)
    ]
    tokens: list[list[int]] = [[] for _ in draws]
    log_probs = [0.0] * len(draws)
    found = [Found() for _ in range(n_sentences)]
    live = [True] * len(draws)
    ids = torch.full((len(draws),), BOS_ID, device=source_ids.device)
    while any(live):
        step = ensemble.step(ids)  # R V
        step[:, NEVER_SAID] = -math.inf
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
                score = log_probs[row] / float(length_penalty(length, config.alpha))
                hypothesis = Hypothesis(tokens=tokens[row], log_prob=log_probs[row], score=score, ended=ended)
                found[row // n_draws].ended.append(hypothesis)
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
