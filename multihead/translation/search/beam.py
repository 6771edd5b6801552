"""TODO."""

import math
from collections.abc import Sequence
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

TIE_MARGIN = 1e-4  # nats; ten times what another batch changes in a sum of log-probabilities
SLACK = 1.1  # with pruning, a translation that is so much longer than the best so far is not expected to be better
MARGIN = 1e-3  # nats; a hypothesis that cannot win by less than this is kept, since another batch may see it win
COMPACT_BELOW = 0.8  # when fewer of a batch's sentences than this are still searched, the others leave


@torch.inference_mode()
def search(
    models: Sequence[Transformer],
    source_ids: Tensor,
    config: SearchConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    shortlist: Candidates | None = None,
) -> list[SearchResult]:
    """Translate each sentence of `source_ids` (B S); an output begins with its prefix, if there is one."""
    if config.sample:
        return sample(models, source_ids, config)
    words = shortlist.for_batch(source_ids) if shortlist and config.shortlist and prefixes is None else None
    beams = BeamSearch(models, source_ids, config, prefixes, words)
    while len(beams.log_probs):
        beams.step()
    return beams.found


class BeamSearch:
    """The live hypotheses of a batch. Each step keeps the `beam` best continuations of a sentence; those that end are
    set aside, and those that cannot win leave."""

    def __init__(
        self,
        models: Sequence[Transformer],
        source_ids: Tensor,
        config: SearchConfig,
        prefixes: Sequence[Sequence[int]] | None,
        words: CandidateTokens | None,
    ) -> None:
        n_sentences, device = len(source_ids), source_ids.device
        self.config, self.prefixes, self.words = config, prefixes, words
        self.prune = config.prune if config.n_best == 1 else 0.0  # the next best are often far behind
        self.ensemble = Ensemble(models, source_ids, words)
        self.found = [SearchResult() for _ in range(n_sentences)]
        # Of each sentence that is still searched
        self.sentences = torch.arange(n_sentences, device=device)  # B: its place in `found`
        self.limits = length_limits(models, source_ids, config.max_extra)  # B
        self.longest = self.limits.clone()  # B: how long a hypothesis that wins may get
        self.score_to_beat = torch.full(
            (n_sentences,), -math.inf, device=device
        )  # B: the score that a hypothesis has to beat
        # Of each live hypothesis, those of a sentence one after the other
        self.sentence = torch.arange(n_sentences, device=device)  # R: an index into the above
        self.log_probs = torch.zeros(n_sentences, device=device)  # R
        self.tokens = torch.full((n_sentences, 1), BOS_ID, device=device)  # R T

    def step(self) -> None:
        length = self.tokens.size(1)  # of the outputs after this step
        values, parents, tokens = self._continuations(length)  # B W+1 each, best first
        ends = (tokens == EOS_ID) & values.isfinite()
        ends[:, self.config.beam :] = False
        self._collect_finished(ends, values, parents, length)
        hopeful = self._can_still_win(values)
        self._mark_close_edge(values, hopeful)
        live = hopeful & ~ends
        live[:, self.config.beam :] = False
        cut = live & (length >= self.limits).unsqueeze(1)
        if bool(cut.any()):
            self._collect_truncated(cut, values, parents, tokens, length)
        self._advance(live & ~cut, values, parents, tokens)

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
            step[:, NEVER_GENERATED] = -math.inf
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

    def _collect_finished(self, ends: Tensor, values: Tensor, parents: Tensor, length: int) -> None:
        where = ends.nonzero()
        rows, columns = where[:, 0], where[:, 1]
        penalty = float(length_penalty(length, self.config.penalty))
        ended = zip(
            rows.tolist(), values[rows, columns].tolist(), self.tokens[parents[rows, columns], 1:].tolist(), strict=True
        )
        for row, log_prob, tokens in ended:
            hypotheses = self.found[int(self.sentences[row])].finished
            hypotheses.append(Hypothesis(tokens=tokens, log_prob=log_prob, score=log_prob / penalty))
            hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
            if len(hypotheses) >= self.config.n_best:
                self.score_to_beat[row] = hypotheses[self.config.n_best - 1].score
            if self.prune:
                self.longest[row] = min(int(self.limits[row]), int(SLACK * (len(hypotheses[0].tokens) + 1)) + 2)

    def _can_still_win(self, values: Tensor) -> Tensor:
        """Which continuations may still win (B C).

        Log-probabilities only fall, so the best that one can reach is its own over the largest penalty: what cannot
        come before the worst that is wanted leaves, and its place stays empty, for what would take it is worse still.
        With `prune` a hypothesis also leaves when it is that far behind the best of its sentence.
        """
        needed = self.score_to_beat * length_penalty(self.longest, self.config.penalty) - MARGIN  # B
        hopeful = values.isfinite() & (values >= needed.unsqueeze(1))
        if self.prune:
            behind = values[:, :1] - values - self.prune  # B C
            hopeful &= behind <= 0
            self._mark_close((behind.abs() < TIE_MARGIN).any(dim=1))
        return hopeful

    def _mark_close_edge(self, values: Tensor, hopeful: Tensor) -> None:
        """The last that the beam keeps and the first that it does not, if it matters which is which."""
        beam = self.config.beam
        if values.size(1) > beam:
            self._mark_close((values[:, beam - 1] - values[:, beam] < TIE_MARGIN) & hopeful[:, beam - 1])

    def _mark_close(self, close: Tensor) -> None:
        for sentence in self.sentences[close].tolist():
            self.found[sentence].near_tie = True

    def _collect_truncated(self, cut: Tensor, values: Tensor, parents: Tensor, tokens: Tensor, length: int) -> None:
        """What is live at the limit is given back only if nothing has ended."""
        penalty = float(length_penalty(length, self.config.penalty))
        for row, column in cut.nonzero().tolist():
            log_prob = float(values[row, column])
            ids = [*self.tokens[parents[row, column], 1:].tolist(), int(tokens[row, column])]
            self.found[int(self.sentences[row])].truncated.append(
                Hypothesis(tokens=ids, log_prob=log_prob, score=log_prob / penalty, finished=False)
            )

    def _advance(self, live: Tensor, values: Tensor, parents: Tensor, tokens: Tensor) -> None:
        """Make the live continuations the new rows; sentences without any leave now and then, since that copies."""
        self.sentence, columns = live.nonzero().unbind(1)
        parents = parents[self.sentence, columns]
        self.log_probs = values[self.sentence, columns]
        self.tokens = torch.cat([self.tokens[parents], tokens[self.sentence, columns].unsqueeze(1)], dim=1)
        searched = live.any(dim=1)
        leave = int(searched.sum()) <= COMPACT_BELOW * len(searched)
        stay = searched.nonzero().flatten() if leave else None
        if stay is not None:
            for sentence in self.sentences[~searched].tolist():
                self._mark_close_ending(self.found[sentence])
            self.sentences, self.score_to_beat = self.sentences[stay], self.score_to_beat[stay]
            self.limits, self.longest = self.limits[stay], self.longest[stay]
            self.sentence = torch.searchsorted(stay, self.sentence)
        if len(self.log_probs):
            self.ensemble.select(parents, stay)

    def _mark_close_ending(self, found: SearchResult) -> None:
        scores = [hypothesis.score for hypothesis in found.best(self.config.n_best + 1)]
        found.near_tie |= any(one - other < TIE_MARGIN for one, other in pairwise(scores))
