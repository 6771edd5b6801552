"""Beam search (§6.1), in batches.

Shapes: B sentences that are still searched, R live hypotheses (rows), W beam width, C candidate continuations of a
sentence, T output length, V vocabulary (with a shortlist: the candidate tokens of the batch).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from itertools import pairwise

import torch
from torch import Tensor

from multihead.config.schema import SearchConfig
from multihead.model.transformer import Transformer
from multihead.text.tokenizer import BOS_ID, EOS_ID, NEVER_GENERATED
from multihead.translation.engine import Hypothesis, SearchResult, length_penalty
from multihead.translation.search.candidates import Candidates, CandidateTokens
from multihead.translation.search.ensemble import Ensemble, length_limits
from multihead.translation.search.sampling import sample

TIE_MARGIN = 1e-4  # nats; ten times the error that a different batch causes in a sum of log-probabilities
PRUNING_MARGIN = 1e-3  # nats; keeps hypotheses that miss by less, so that rounding never decides what is pruned
COMPACT_BELOW = 0.8  # finished sentences are removed from the batch once fewer than this share are still searched


@torch.inference_mode()
def search(
    models: Sequence[Transformer],
    source_ids: Tensor,
    config: SearchConfig,
    shortlist: Candidates | None = None,
    source_heads: Tensor | None = None,
) -> list[SearchResult]:
    """Translate each sentence of `source_ids` (B S) by beam search, or by sampling if `config.sample` is set."""
    if config.sample:
        return sample(models, source_ids, config, source_heads)
    candidates = shortlist.for_batch(source_ids) if shortlist and config.shortlist else None
    return BeamSearch(models, source_ids, config, candidates, source_heads).run()


@dataclass(slots=True)
class BeamState:
    """The sentences that are still searched and their live hypotheses.

    What decides the next step is on the device of the models. The tokens so far are on the CPU, which collects results.
    """

    ensemble: Ensemble  # its `rows` map each hypothesis to its sentence
    sentences: Tensor  # B: position of each sentence in the results
    sentences_on_cpu: Tensor  # B: the same
    limits: Tensor  # B: maximum output length, including the end symbol
    best_scores: Tensor  # B N: the `n_best` scores of finished hypotheses, best first; -inf where there are fewer
    log_probs: Tensor  # R; the rows of a sentence are consecutive
    last: Tensor  # R: the latest token of each row
    tokens: Tensor  # R T: all of them, on the CPU

    @classmethod
    def start(cls, ensemble: Ensemble, limits: Tensor, n_best: int) -> "BeamState":
        """Return the state before the first step: one row per sentence, holding only the start symbol."""
        n_sentences, device = len(limits), limits.device
        return cls(
            ensemble=ensemble,
            sentences=torch.arange(n_sentences, device=device),
            sentences_on_cpu=torch.arange(n_sentences),
            limits=limits,
            best_scores=torch.full((n_sentences, n_best), -math.inf, device=device),
            log_probs=torch.zeros(n_sentences, device=device),
            last=torch.full((n_sentences,), BOS_ID, device=device),
            tokens=torch.full((n_sentences, 1), BOS_ID),
        )

    def advance(self, rows: Tensor, tokens: Tensor, log_probs: Tensor, sentences: Tensor | None = None) -> None:
        """Replace the rows by these, each with one more token, and drop all sentences that are not in `sentences`.

        Sentences that are dropped have no rows. `log_probs` are the new totals. All arguments are on the CPU.
        """
        device, precision = self.log_probs.device, self.best_scores.dtype
        self.log_probs = log_probs.to(precision).to(device, non_blocking=True)
        self.last = tokens.to(device, non_blocking=True)
        self.tokens = torch.cat([self.tokens[rows], tokens.unsqueeze(1)], dim=1)
        if sentences is not None:
            kept = sentences.to(device, non_blocking=True)
            self.sentences, self.sentences_on_cpu = self.sentences[kept], self.sentences_on_cpu[sentences]
            self.limits, self.best_scores = self.limits[kept], self.best_scores[kept]
        if len(rows):
            self.ensemble.select(rows, sentences)


@dataclass(frozen=True, slots=True)
class Continuations:
    """The best continuations of each sentence, best first; each is a row extended by one token."""

    log_probs: Tensor  # B C: of the whole hypothesis; -inf where a sentence has fewer
    rows: Tensor  # B C
    tokens: Tensor  # B C


class Fate(IntEnum):
    """What becomes of a continuation."""

    DROPPED = 0
    FINISHED = 1
    TRUNCATED = 2  # unfinished at the maximum length
    LIVE = 3


class BeamSearch:
    """Beam search over a batch.

    Each step keeps the `beam` best continuations of a sentence. Finished ones become results; those that can no longer
    beat the results are pruned, which never changes the outcome. All of this is decided on the device of the models, so
    that a GPU is waited for once per step, when the continuations and their fates are copied to the CPU.
    """

    def __init__(
        self,
        models: Sequence[Transformer],
        source_ids: Tensor,
        config: SearchConfig,
        candidates: CandidateTokens | None = None,
        source_heads: Tensor | None = None,
    ) -> None:
        self.config, self.candidates = config, candidates
        ensemble = Ensemble(models, source_ids, candidates, source_heads)
        self.state = BeamState.start(ensemble, length_limits(models, source_ids, config.max_extra), config.n_best)
        self.results = [SearchResult() for _ in source_ids]
        self.tied_at_edge = torch.zeros(len(source_ids), dtype=torch.bool, device=source_ids.device)

    def run(self) -> list[SearchResult]:
        """Search until no live hypothesis can win."""
        while len(self.state.log_probs):
            self.step()
        for result, tied_at_edge in zip(self.results, self.tied_at_edge.cpu().tolist(), strict=True):
            result.near_tie = tied_at_edge or has_near_tie(result.best(self.config.n_best + 1))
        return self.results

    def step(self) -> None:
        """Extend every live hypothesis by one token."""
        length = self.state.tokens.size(1)  # of the outputs after this step
        best = self._continuations(length)
        fates = self._decide(best, length)
        best, fates = _to_cpu(best, fates)
        self._collect(Fate.FINISHED, fates, best, length)
        self._collect(Fate.TRUNCATED, fates, best, length)
        self._advance(fates == Fate.LIVE, best)

    def _decide(self, best: Continuations, length: int) -> Tensor:
        """Return the fate of each continuation (B C)."""
        in_beam = torch.arange(best.tokens.size(1), device=best.tokens.device) < self.config.beam  # C
        ends = (best.tokens == EOS_ID) & best.log_probs.isfinite() & in_beam
        self._record_scores(ends, best.log_probs, length)
        can_still_win = self._can_still_win(best.log_probs)
        self.tied_at_edge[self.state.sentences] |= self._is_tied_at_edge(best.log_probs, can_still_win)
        live = can_still_win & ~ends & in_beam
        is_at_limit = (length >= self.state.limits).unsqueeze(1)
        fates = torch.where(is_at_limit, int(Fate.TRUNCATED), int(Fate.LIVE)) * live
        return fates + int(Fate.FINISHED) * ends

    def _record_scores(self, ends: Tensor, log_probs: Tensor, length: int) -> None:
        scores = torch.where(ends, log_probs / length_penalty(length, self.config.penalty), -math.inf)  # B C
        self.state.best_scores = torch.cat([self.state.best_scores, scores], dim=1).topk(self.config.n_best).values

    def _continuations(self, length: int) -> Continuations:
        """Return the best `beam` + 1 continuations: the first that is left out shows whether the edge was a tie."""
        step = self.state.ensemble.step(self.state.last)  # R V
        self._forbid(step, length)
        n_best = self.config.beam + 1
        values, columns = step.topk(min(n_best, step.size(1)), dim=1)  # R C: no sentence needs more from one row
        ids = columns if self.candidates is None else self.candidates.ids[columns]
        rows = self.state.ensemble.rows
        totals = rows.to_grid(values + self.state.log_probs.unsqueeze(1), -math.inf).flatten(1)  # B W·C
        totals, places = totals.topk(min(n_best, totals.size(1)), dim=1)  # B C
        row_numbers = rows.to_grid(torch.arange(len(values), device=values.device))  # B W
        parents = row_numbers.gather(1, places // values.size(1))
        return Continuations(totals, parents, ids[parents, places % values.size(1)])

    def _forbid(self, step: Tensor, length: int) -> None:
        """Set forbidden tokens to -inf without renormalizing, so that a score equals the score of a forced pass."""
        if self.candidates is None:  # a shortlist excludes them already
            for id in NEVER_GENERATED:
                step[:, id] = -math.inf
        if length <= self.config.min_length:
            step[:, EOS_ID if self.candidates is None else self.candidates.end] = -math.inf
        if self.config.no_repeat:
            self._forbid_repeats(step)

    def _forbid_repeats(self, step: Tensor) -> None:
        """Forbid tokens that would complete an n-gram which the row already contains."""
        size = self.config.no_repeat
        columns = (
            {} if self.candidates is None else {id: at for at, id in enumerate(self.candidates.ids.cpu().tolist())}
        )
        for row, tokens in enumerate(self.state.tokens.tolist()):
            tail = tokens[len(tokens) - size + 1 :]
            for start in range(1, len(tokens) - size + 1):
                if tokens[start : start + size - 1] == tail:
                    token = tokens[start + size - 1]
                    step[row, columns.get(token, token)] = -math.inf

    def _can_still_win(self, log_probs: Tensor) -> Tensor:
        """Return which continuations can still reach the n-best list (B C).

        Log-probabilities only fall, so the best score within reach is the current sum over the largest penalty. What is
        pruned leaves its place in the beam empty: anything that would take it is even worse.
        """
        largest_penalty = length_penalty(self.state.limits, self.config.penalty)
        needed = self.state.best_scores[:, -1] * largest_penalty - PRUNING_MARGIN  # B
        return log_probs.isfinite() & (log_probs >= needed.unsqueeze(1))

    def _is_tied_at_edge(self, log_probs: Tensor, can_still_win: Tensor) -> Tensor:
        """Return for which sentences (B) the last continuation in the beam nearly equals the first one outside."""
        beam = self.config.beam
        if log_probs.size(1) <= beam:
            return torch.zeros(len(log_probs), dtype=torch.bool, device=log_probs.device)
        return (log_probs[:, beam - 1] - log_probs[:, beam] < TIE_MARGIN) & can_still_win[:, beam - 1]

    def _collect(self, fate: Fate, fates: Tensor, best: Continuations, length: int) -> None:
        """Add finished hypotheses, or those that are truncated, which are the result if none finishes."""
        penalty = length_penalty(length, self.config.penalty)
        sentences, columns = (fates == fate).nonzero().unbind(1)
        log_probs, last = (values[sentences, columns].tolist() for values in (best.log_probs, best.tokens))
        outputs = self.state.tokens[best.rows[sentences, columns], 1:].tolist()
        places = self.state.sentences_on_cpu[sentences].tolist()
        for place, log_prob, tokens, token in zip(places, log_probs, outputs, last, strict=True):
            score = log_prob / penalty
            if fate == Fate.FINISHED:
                finished = self.results[place].finished
                finished.append(Hypothesis(tokens=tokens, log_prob=log_prob, score=score))
                finished.sort(key=lambda hypothesis: -hypothesis.score)
            else:
                truncated = Hypothesis(tokens=[*tokens, token], log_prob=log_prob, score=score, finished=False)
                self.results[place].truncated.append(truncated)

    def _advance(self, live: Tensor, best: Continuations) -> None:
        """Make the live continuations the new rows; now and then drop finished sentences, which costs a copy."""
        is_searched = live.any(dim=1)  # B
        compact = int(is_searched.sum()) <= COMPACT_BELOW * len(is_searched)
        sentences = is_searched.nonzero().flatten() if compact else None
        self.state.advance(best.rows[live], best.tokens[live], best.log_probs[live], sentences)


def _to_cpu(best: Continuations, fates: Tensor) -> tuple[Continuations, Tensor]:
    """Copy continuations and fates to the CPU in one transfer: float64 holds all of them exactly."""
    packed = torch.stack([best.log_probs.double(), best.rows.double(), best.tokens.double(), fates.double()]).cpu()
    rows, tokens, fates = packed[1:].long().unbind()
    return Continuations(packed[0], rows, tokens), fates


def has_near_tie(hypotheses: Sequence[Hypothesis]) -> bool:
    """Return whether two neighbors in a ranking have nearly the same score."""
    return any(better.score - worse.score < TIE_MARGIN for better, worse in pairwise(hypotheses))
