"""Decoding (§6.1): beam search, of which greedy search is a beam of one, and sampling.

Shapes: B sentences still searched, R live hypotheses of all of them, of which a sentence has W at most, T tokens so
far, C continuations, V vocabulary, or the words of it that can be said.

A sentence's result must not depend on its neighbours, but sums of floating-point numbers do: in another batch the same
sentence differs in the last digits, and may then fall on the other side of a near tie. So every decision needs a
margin, and a sentence with a closer call is marked, to be decided by whoever can tell (engines.py).
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import torch
from torch import Tensor

from multihead.config import SearchConfig
from multihead.model import DecoderState, Rows, Transformer
from multihead.shortlist import NEVER_SAID, Shortlist, Words
from multihead.tokenizer import BOS_ID, EOS_ID, PAD_ID

CLOSE_CALL = 1e-4  # nats; ten times what another batch changes in a sum of log-probabilities
SLACK = 1.1  # with pruning, a translation that is so much longer than the best so far is not expected to be better
MARGIN = 1e-3  # nats; a hypothesis that cannot win by less than this is kept, since another batch may see it win
CROWDED = 0.8  # when fewer of a batch's sentences than this are still searched, the others leave


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

    def __init__(self, models: Sequence[Transformer], source_ids: Tensor, words: Words | None = None) -> None:
        self._models, self._words = models, words
        self._states: list[DecoderState] = [model.start(source_ids, words.ids if words else None) for model in models]

    def step(self, ids: Tensor) -> Tensor:
        """Log-probabilities of the next token for each row: R V."""
        steps = [model.step(ids, state) for model, state in zip(self._models, self._states, strict=True)]
        votes = [self._only_allowed(logits).log_softmax(dim=-1) for logits in steps]
        return votes[0] if len(votes) == 1 else torch.stack(votes).logsumexp(dim=0) - math.log(len(votes))

    @property
    def rows(self) -> Rows:
        """The same for all models."""
        return self._states[0].rows

    def _only_allowed(self, logits: Tensor) -> Tensor:
        if self._words is None:
            return logits
        return logits.add_(self._words.barred[self.rows.sentence])  # each sentence has words of its own

    def select(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Go on with these rows, and if only some sentences have rows left, with those."""
        for state in self._states:
            state.reorder(rows)
            if sentences is not None:
                state.keep_sentences(sentences)
        if sentences is not None and self._words is not None:
            self._words = self._words.of(sentences)


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
    shortlist: Shortlist | None = None,
) -> list[Found]:
    """Translate each sentence of `source_ids` (B S); an output begins with its prefix, if there is one."""
    if config.sample:
        return _sample(models, source_ids, config)
    words = shortlist.words(source_ids) if shortlist and config.shortlist and prefixes is None else None
    beams = _Beams(models, source_ids, config, prefixes, words)
    while len(beams.log_probs):
        beams.step()
    return beams.found


class _Beams:
    """The live hypotheses of a batch. Each step keeps the `beam` best continuations of a sentence; those that end are
    set aside, and those that cannot win leave."""

    def __init__(
        self,
        models: Sequence[Transformer],
        source_ids: Tensor,
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]] | None,
        words: Words | None,
    ) -> None:
        n_sentences, device = len(source_ids), source_ids.device
        self.config, self.prefixes, self.words = config, prefixes, words
        self.prune = config.prune if config.n_best == 1 else 0.0  # the next best are often far behind
        self.ensemble = Ensemble(models, source_ids, words)
        self.found = [Found() for _ in range(n_sentences)]
        # Of each sentence that is still searched
        self.sentences = torch.arange(n_sentences, device=device)  # B: its place in `found`
        self.limits = limits(models, source_ids, config.max_extra)  # B
        self.longest = self.limits.clone()  # B: how long a hypothesis that wins may get
        self.wanted = torch.full((n_sentences,), -math.inf, device=device)  # B: the score that a hypothesis has to beat
        # Of each live hypothesis, those of a sentence one after the other
        self.sentence = torch.arange(n_sentences, device=device)  # R: an index into the above
        self.log_probs = torch.zeros(n_sentences, device=device)  # R
        self.tokens = torch.full((n_sentences, 1), BOS_ID, device=device)  # R T

    def step(self) -> None:
        length = self.tokens.size(1)  # of the outputs after this step
        values, parents, tokens = self._continuations(length)  # B W+1 each, best first
        ends = (tokens == EOS_ID) & values.isfinite()
        ends[:, self.config.beam :] = False
        self._set_aside(ends, values, parents, length)
        hopeful = self._hopeful(values)
        self._mark_close_edge(values, hopeful)
        live = hopeful & ~ends
        live[:, self.config.beam :] = False
        cut = live & (length >= self.limits).unsqueeze(1)
        if bool(cut.any()):
            self._keep_cut(cut, values, parents, tokens, length)
        self._go_on(live & ~cut, values, parents, tokens)

    def _continuations(self, length: int) -> tuple[Tensor, Tensor, Tensor]:
        """The best `beam` + 1 continuations of each sentence: log-probability, row that they continue, token."""
        step = self.ensemble.step(self.tokens[:, -1])  # R V
        self._forbid(step, length)
        most = self.config.beam + 1
        values, at = step.topk(min(most, step.size(1)), dim=1)  # R C, and no sentence needs more of one row
        ids = at if self.words is None else self.words.ids[at]
        rows = self.ensemble.rows
        totals = rows.spread(values + self.log_probs.unsqueeze(1), -math.inf).flatten(1)  # B W·C
        totals, at = totals.topk(min(most, totals.size(1)), dim=1)  # B C
        row_at = rows.spread(torch.arange(len(self.sentence), device=at.device))  # B W
        parents = row_at.gather(1, at // values.size(1))
        return totals, parents, ids[parents, at % values.size(1)]

    def _forbid(self, step: Tensor, length: int) -> None:
        """Set to -inf what may not come next; the rest keeps its log-probability, so that scores stay forced scores."""
        end = EOS_ID if self.words is None else self.words.end
        if self.words is None:  # a shortlist has none of them
            step[:, NEVER_SAID] = -math.inf
        if length <= self.config.min_length:
            step[:, end] = -math.inf
        if self.config.no_repeat:
            self._forbid_repeats(step)
        if self.prefixes:
            self._follow_prefixes(step, self.prefixes, length)

    def _follow_prefixes(self, step: Tensor, prefixes: Sequence[Sequence[int]], length: int) -> None:
        for row, sentence in enumerate(self.sentences[self.sentence].tolist()):
            if length <= len(prefixes[sentence]):
                token = prefixes[sentence][length - 1]
                forced = float(step[row, token])
                step[row] = -math.inf
                step[row, token] = forced

    def _forbid_repeats(self, step: Tensor) -> None:
        size = self.config.no_repeat
        column = {} if self.words is None else {id: at for at, id in enumerate(self.words.ids.tolist())}
        for row, tokens in enumerate(self.tokens.tolist()):
            tail = tokens[len(tokens) - size + 1 :]
            for at in range(1, len(tokens) - size + 1):
                if tokens[at : at + size - 1] == tail:
                    token = tokens[at + size - 1]
                    step[row, column.get(token, token)] = -math.inf

    def _set_aside(self, ends: Tensor, values: Tensor, parents: Tensor, length: int) -> None:
        where = ends.nonzero()
        rows, columns = where[:, 0], where[:, 1]
        penalty = float(length_penalty(length, self.config.penalty))
        ended = zip(
            rows.tolist(), values[rows, columns].tolist(), self.tokens[parents[rows, columns], 1:].tolist(), strict=True
        )
        for row, log_prob, tokens in ended:
            hypotheses = self.found[int(self.sentences[row])].ended
            hypotheses.append(Hypothesis(tokens=tokens, log_prob=log_prob, score=log_prob / penalty))
            hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
            if len(hypotheses) >= self.config.n_best:
                self.wanted[row] = hypotheses[self.config.n_best - 1].score
            if self.prune:
                self.longest[row] = min(int(self.limits[row]), int(SLACK * (len(hypotheses[0].tokens) + 1)) + 2)

    def _hopeful(self, values: Tensor) -> Tensor:
        """Which continuations may still win (B C).

        Log-probabilities only fall, so the best that one can reach is its own over the largest penalty: what cannot
        come before the worst that is wanted leaves, and its place stays empty, for what would take it is worse still.
        With `prune` a hypothesis also leaves when it is that far behind the best of its sentence.
        """
        needed = self.wanted * length_penalty(self.longest, self.config.penalty) - MARGIN  # B
        hopeful = values.isfinite() & (values >= needed.unsqueeze(1))
        if self.prune:
            behind = values[:, :1] - values - self.prune  # B C
            hopeful &= behind <= 0
            self._mark_close((behind.abs() < CLOSE_CALL).any(dim=1))
        return hopeful

    def _mark_close_edge(self, values: Tensor, hopeful: Tensor) -> None:
        """The last that the beam keeps and the first that it does not, if it matters which is which."""
        beam = self.config.beam
        if values.size(1) > beam:
            self._mark_close((values[:, beam - 1] - values[:, beam] < CLOSE_CALL) & hopeful[:, beam - 1])

    def _mark_close(self, close: Tensor) -> None:
        for sentence in self.sentences[close].tolist():
            self.found[sentence].close = True

    def _keep_cut(self, cut: Tensor, values: Tensor, parents: Tensor, tokens: Tensor, length: int) -> None:
        """What is live at the limit is given back only if nothing has ended."""
        penalty = float(length_penalty(length, self.config.penalty))
        for row, column in cut.nonzero().tolist():
            log_prob = float(values[row, column])
            ids = [*self.tokens[parents[row, column], 1:].tolist(), int(tokens[row, column])]
            self.found[int(self.sentences[row])].cut.append(
                Hypothesis(tokens=ids, log_prob=log_prob, score=log_prob / penalty, ended=False)
            )

    def _go_on(self, live: Tensor, values: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Make the live continuations the new rows; sentences without any leave now and then, since that copies."""
        self.sentence, columns = live.nonzero().unbind(1)
        parents = parents[self.sentence, columns]
        self.log_probs = values[self.sentence, columns]
        self.tokens = torch.cat([self.tokens[parents], tokens[self.sentence, columns].unsqueeze(1)], dim=1)
        searched = live.any(dim=1)
        leave = int(searched.sum()) <= CROWDED * len(searched)
        stay = searched.nonzero().flatten() if leave else None
        if stay is not None:
            for sentence in self.sentences[~searched].tolist():
                self._mark_close_ending(self.found[sentence])
            self.sentences, self.wanted = self.sentences[stay], self.wanted[stay]
            self.limits, self.longest = self.limits[stay], self.longest[stay]
            self.sentence = torch.searchsorted(stay, self.sentence)
        if len(self.log_probs):
            self.ensemble.select(parents, stay)

    def _mark_close_ending(self, found: Found) -> None:
        scores = [hypothesis.score for hypothesis in found.best(self.config.n_best + 1)]
        found.close |= any(one - other < CLOSE_CALL for one, other in pairwise(scores))


def _sample(models: Sequence[Transformer], source_ids: Tensor, config: SearchConfig) -> list[Found]:
    """`n_best` draws for each sentence; its numbers depend on the seed and on the sentence alone."""
    n_sentences, n_draws = len(source_ids), config.n_best
    ensemble = Ensemble(models, source_ids)
    ensemble.select(torch.arange(n_sentences, device=source_ids.device).repeat_interleave(n_draws), None)
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
                score = log_probs[row] / float(length_penalty(length, config.penalty))
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
