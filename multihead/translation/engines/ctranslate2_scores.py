"""The log-probability of each token of hypotheses that CTranslate2 has found, from a second pass.

CTranslate2 returns the score of a hypothesis, but not how it is made up. One sentence is scored at a time, so that no
other sentence can change a number.
"""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from multihead.text.tokenizer import BOS_ID, EOS_ID, UNK_ID
from multihead.translation.engine import Hypothesis

Ids = NDArray[np.int64]
ALWAYS_CANDIDATES = [UNK_ID, BOS_ID, EOS_ID]  # CTranslate2 adds them to every vocabulary map


class TokenScorer:
    """Scores the tokens of hypotheses with a loaded model of CTranslate2."""

    def __init__(self, translator: Any, pieces: Sequence[str], vocabulary_map: Path) -> None:
        self._translator, self._pieces, self._path = translator, pieces, vocabulary_map

    def token_scores(self, sources: Sequence[list[int]], hypotheses: Sequence[Hypothesis]) -> list[list[float]]:
        """Return the log-probabilities of the tokens of each hypothesis and of its end symbol, if it has one."""
        inputs = [self._to_pieces(source) for source in sources]
        outputs = [self._to_pieces(one.tokens) for one in hypotheses]
        scores = self._translator.score_batch(inputs, outputs, max_input_length=0, max_batch_size=1)
        return [score.log_probs[: one.length] for score, one in zip(scores, hypotheses, strict=True)]

    def shortlist_scores(
        self, batches: Sequence[list[list[int]]], sources: Sequence[list[int]], hypotheses: Sequence[Hypothesis]
    ) -> list[list[float]]:
        """Return the same for a search with the shortlist, which leaves the probability to its tokens alone.

        `batches` are the sentences that were searched together with each source, since their shortlists are united.
        Only a search returns logits, so this is one that is forced to the tokens of the hypothesis.
        """
        pending = [
            self._translator.translate_batch(
                [self._to_pieces(source)],
                target_prefix=[self._to_pieces(one.tokens)],
                beam_size=1,
                min_decoding_length=0,
                max_decoding_length=one.length,
                max_input_length=0,
                return_logits_vocab=True,
                asynchronous=True,
            )
            for source, one in zip(sources, hypotheses, strict=True)
        ]
        return [
            self._normalize(futures[0].result().logits[0], one, self._allowed(batch))
            for futures, one, batch in zip(pending, hypotheses, batches, strict=True)
        ]

    def _normalize(self, steps: Sequence[Any], hypothesis: Hypothesis, allowed: Ids) -> list[float]:
        """Return the log-probability of each token among those allowed, given the logits of each step."""
        outputs = hypothesis.tokens + [EOS_ID] * hypothesis.finished
        logits = np.stack([np.array(step) for step in steps]).astype(np.float64)  # T V
        candidates = logits[:, allowed]
        largest = candidates.max(axis=1)
        totals = largest + np.log(np.exp(candidates - largest[:, None]).sum(axis=1))
        scores: list[float] = (logits[range(len(outputs)), outputs] - totals).tolist()
        return scores

    def _allowed(self, batch: Sequence[list[int]]) -> Ids:
        """Return the ids that the vocabulary map allows in a batch."""
        tokens = {id for sentence in batch for id in sentence}
        candidates = [self._candidates[piece] for id in tokens if (piece := self._pieces[id]) in self._candidates]
        return np.unique(np.concatenate([ALWAYS_CANDIDATES, self._candidates[""], *candidates]))

    @cached_property
    def _candidates(self) -> dict[str, Ids]:
        """The candidates of each piece, read from the vocabulary map; those of "" are always allowed."""
        ids = {piece: id for id, piece in enumerate(self._pieces)}
        lines = (line.split("\t") for line in self._path.read_text(encoding="utf-8").split("\n") if line)
        return {piece: np.array([ids[one] for one in candidates.split()], np.int64) for piece, candidates in lines}

    def _to_pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[id] for id in ids]
