"""Beam search (§6.1), in batches.

Shapes: B sentences that are still searched, R live hypotheses (rows), W beam width, C candidate continuations of a
sentence, T output length, V vocabulary (with a shortlist: the candidate tokens of the batch).
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
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
    """The sentences that are still searched and their live hypotheses."""

    ensemble: Ensemble  # its `rows` map each hypothesis to its sentence
    sentences: Tensor  # B: position of each sentence in the results
    limits: Tensor  # B: maximum output length, including the end symbol
    score_to_beat: Tensor  # B: the worst score that is still returned, -inf while there are fewer than n_best
    log_probs: Tensor  # R; the rows of a sentence are consecutive
    tokens: Tensor  # R T

    @classmethod
    def start(cls, ensemble: Ensemble, limits: Tensor) -> "BeamState":
        """Return the state before the first step: one row per sentence, holding only the start symbol."""
        n_sentences, device = len(limits), limits.device
        return cls(
            ensemble=ensemble,
            sentences=torch.arange(n_sentences, device=device),
            limits=limits,
            score_to_beat=torch.full((n_sentences,), -math.inf, device=device),
            log_probs=torch.zeros(n_sentences, device=device),
            tokens=torch.full((n_sentences, 1), BOS_ID, device=device),
        )

    def select(self, rows: Tensor, sentences: Tensor | None = None) -> None:
        """Replace the rows by these and, if `sentences` is given, drop the other sentences (which have no rows)."""
        self.log_probs, self.tokens = self.log_probs[rows], self.tokens[rows]
        if sentences is not None:
            self.sentences, self.limits = self.sentences[sentences], self.limits[sentences]
            self.score_to_beat = self.score_to_beat[sentences]
        if len(rows):
            self.ensemble.select(rows, sentences)

    def append(self, log_probs: Tensor, tokens: Tensor) -> None:
        """Add one token to each row; `log_probs` are the new totals."""
        self.log_probs, self.tokens = log_probs, torch.cat([self.tokens, tokens.unsqueeze(1)], dim=1)


@dataclass(frozen=True, slots=True)
class Continuations:
    """The best continuations of each sentence, best first; each is a row extended by one token."""

    log_probs: Tensor  # B C: of the whole hypothesis; -inf where a sentence has fewer
    rows: Tensor  # B C
    tokens: Tensor  # B C


class BeamSearch:
    """Beam search over a batch.

    Each step keeps the `beam` best continuations of a sentence. Finished ones become results; those that can no longer
    beat the results are pruned, which never changes the outcome.
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
        self.state = BeamState.start(ensemble, length_limits(models, source_ids, config.max_extra))
        self.results = [SearchResult() for _ in source_ids]
        self.tied_at_edge = torch.zeros(len(source_ids), dtype=torch.bool, device=source_ids.device)

    def run(self) -> list[SearchResult]:
        """Search until no live hypothesis can win."""
        while len(self.state.log_probs):
            self.step()
        for result, tied_at_edge in zip(self.results, self.tied_at_edge.tolist(), strict=True):
            result.near_tie = tied_at_edge or has_near_tie(result.best(self.config.n_best + 1))
        return self.results

    def step(self) -> None:
        """Extend every live hypothesis by one token."""
        length = self.state.tokens.size(1)  # of the outputs after this step
        best = self._continuations(length)
        in_beam = torch.arange(best.tokens.size(1), device=best.tokens.device) < self.config.beam  # C
        ends = (best.tokens == EOS_ID) & best.log_probs.isfinite() & in_beam
        self._collect_finished(ends, best, length)
        can_still_win = self._can_still_win(best.log_probs)
        self.tied_at_edge[self.state.sentences] |= self._is_tied_at_edge(best.log_probs, can_still_win)
        live = can_still_win & ~ends & in_beam
        truncated = live & (length >= self.state.limits).unsqueeze(1)
        self._collect_truncated(truncated, best, length)
        self._advance(live & ~truncated, best)

    def _continuations(self, length: int) -> Continuations:
        """Return the best `beam` + 1 continuations: the first that is left out shows whether the edge was a tie."""
        step = self.state.ensemble.step(self.state.tokens[:, -1])  # R V
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
            step[:, NEVER_GENERATED] = -math.inf
        if length <= self.config.min_length:
            step[:, EOS_ID if self.candidates is None else self.candidates.end] = -math.inf
        if self.config.no_repeat:
            self._forbid_repeats(step)

    def _forbid_repeats(self, step: Tensor) -> None:
        """Forbid tokens that would complete an n-gram which the row already contains."""
        size = self.config.no_repeat
        columns = {} if self.candidates is None else {id: at for at, id in enumerate(self.candidates.ids.tolist())}
        for row, tokens in enumerate(self.state.tokens.tolist()):
            tail = tokens[len(tokens) - size + 1 :]
            for start in range(1, len(tokens) - size + 1):
                if tokens[start : start + size - 1] == tail:
                    token = tokens[start + size - 1]
                    step[row, columns.get(token, token)] = -math.inf

    def _collect_finished(self, ends: Tensor, best: Continuations, length: int) -> None:
        penalty, n_best = length_penalty(length, self.config.penalty), self.config.n_best
        sentences, columns = ends.nonzero().unbind(1)
        log_probs = best.log_probs[sentences, columns].tolist()
        outputs = self.state.tokens[best.rows[sentences, columns], 1:].tolist()
        places = self.state.sentences[sentences].tolist()
        for sentence, place, log_prob, tokens in zip(sentences.tolist(), places, log_probs, outputs, strict=True):
            finished = self.results[place].finished
            finished.append(Hypothesis(tokens=tokens, log_prob=log_prob, score=log_prob / penalty))
            finished.sort(key=lambda hypothesis: -hypothesis.score)
            if len(finished) >= n_best:
                self.state.score_to_beat[sentence] = finished[n_best - 1].score

    def _can_still_win(self, log_probs: Tensor) -> Tensor:
        """Return which continuations can still reach the n-best list (B C).

        Log-probabilities only fall, so the best score within reach is the current sum over the largest penalty. What is
        pruned leaves its place in the beam empty: anything that would take it is even worse.
        """
        largest_penalty = length_penalty(self.state.limits, self.config.penalty)
        needed = self.state.score_to_beat * largest_penalty - PRUNING_MARGIN  # B
        return log_probs.isfinite() & (log_probs >= needed.unsqueeze(1))

    def _is_tied_at_edge(self, log_probs: Tensor, can_still_win: Tensor) -> Tensor:
        """Return for which sentences (B) the last continuation in the beam nearly equals the first one outside."""
        beam = self.config.beam
        if log_probs.size(1) <= beam:
            return torch.zeros(len(log_probs), dtype=torch.bool, device=log_probs.device)
        return (log_probs[:, beam - 1] - log_probs[:, beam] < TIE_MARGIN) & can_still_win[:, beam - 1]

    def _collect_truncated(self, truncated: Tensor, best: Continuations, length: int) -> None:
        """Keep hypotheses that are unfinished at the limit: the result if none finishes."""
        penalty = length_penalty(length, self.config.penalty)
        for sentence, column in truncated.nonzero().tolist():
            log_prob = float(best.log_probs[sentence, column])
            tokens = [*self.state.tokens[best.rows[sentence, column], 1:].tolist(), int(best.tokens[sentence, column])]
            self.results[int(self.state.sentences[sentence])].truncated.append(
                Hypothesis(tokens=tokens, log_prob=log_prob, score=log_prob / penalty, finished=False)
            )

    def _advance(self, live: Tensor, best: Continuations) -> None:
        """Make the live continuations the new rows; now and then drop finished sentences, which costs a copy."""
        is_searched = live.any(dim=1)  # B
        compact = int(is_searched.sum()) <= COMPACT_BELOW * len(is_searched)
        self.state.select(best.rows[live], is_searched.nonzero().flatten() if compact else None)
        self.state.append(best.log_probs[live], best.tokens[live])


def has_near_tie(hypotheses: Sequence[Hypothesis]) -> bool:
    """Return whether two neighbors in a ranking have nearly the same score."""
    return any(better.score - worse.score < TIE_MARGIN for better, worse in pairwise(hypotheses))
