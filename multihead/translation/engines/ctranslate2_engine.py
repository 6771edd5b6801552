"""Search by CTranslate2, which is not quite ours.

It ends a sentence when `beam` hypotheses have ended, where ours goes on while a live one may still win, and it knows
one limit of length for a batch. What comes back is put right here: scores are the paper's, and no output is longer than
its own sentence allows.
"""

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
import torch

from multihead.config.schema import ModelConfig, SearchConfig
from multihead.data.bucketing import length_buckets
from multihead.errors import UserError
from multihead.interop.ctranslate2_export import VOCABULARY_MAP, import_ctranslate2
from multihead.text.tokenizer import EOS_ID, NEVER_GENERATED, SPECIAL_TOKENS
from multihead.translation.engine import Hypothesis, SearchResult, length_penalty

BATCH_TOKENS = 1024  # source tokens that a worker searches at a time; larger is no faster, and slower with int8
SHORTLIST_BATCH_TOKENS = 128  # with a shortlist, which is that of a whole batch, and shorter for a smaller one
SHORTEST_FIRST = -6.0  # as length penalty: a log-probability is multiplied by length^6, so that length outweighs it
PATIENCE = 2.0  # in float32, which is for who wants what our search finds: of 1,000 sentences 999 are the same, not 992
IMPOSSIBLE = -1e9  # nats; CTranslate2 gives what is forbidden a very low score, and takes it if there is nothing else

TokenBatch = tuple[list[int], int]  # segments by their place, and how long their outputs may be


class CTranslate2Engine:
    """Search by CTranslate2 on the processor, as many batches at a time as there are workers, one thread each.

    That is best for many sentences, and with int8 for a single one too, on which two threads took ten times as long.
    """

    chunk_size, prefetch = 250, 4

    def __init__(
        self, folder: Path, config: ModelConfig, workers: int = 0, one_sentence_per_batch: bool = False
    ) -> None:
        """`workers` batches are searched at a time, by default as many as torch has threads.

        `one_sentence_per_batch` makes a batch of every sentence: slower, but no neighbour can change it.
        """
        n_threads = torch.get_num_threads()
        options = {"inter_threads": workers or n_threads, "intra_threads": 1}
        try:
            self._pieces: list[str] = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
            self._translator = import_ctranslate2().Translator(str(folder), device="cpu", **options)
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(f"CTranslate2 cannot load {folder}: {error}") from None
        finally:
            torch.set_num_threads(n_threads)  # to load a model sets it to 1, for torch too
        self._ids = {piece: id for id, piece in enumerate(self._pieces)}
        self._max_len = config.max_len
        self._one_sentence_per_batch, self._has_shortlist = one_sentence_per_batch, (folder / VOCABULARY_MAP).exists()

    def unsupported_reason(self, config: SearchConfig) -> str:
        """Why it cannot search like this, in words; empty if it can."""
        if config.sample:
            return "CTranslate2 draws other samples in other batches, whatever the seed"
        return ""

    def search(self, segments: Sequence[list[int]], config: SearchConfig) -> list[SearchResult]:
        """Translate each of these sentences, ids without the end symbol."""
        if reason := self.unsupported_reason(config):
            raise UserError(f"{reason}: use --engine torch")
        longest = max(map(len, segments), default=0) + 1
        if longest > self._max_len:
            raise ValueError(f"{longest} tokens are more than the {self._max_len} positions of this model")
        limits = [min(len(ids) + 1 + config.max_extra, self._max_len) for ids in segments]
        lengths = np.array([[len(ids), len(ids)] for ids in segments], dtype=np.int32).reshape(-1, 2)
        how = SearchPass(
            has_constraints=bool(config.min_length or config.no_repeat),
            penalty=config.penalty,
            shortlist=config.shortlist and self._has_shortlist,
            one_sentence_per_batch=self._one_sentence_per_batch,
            patience=PATIENCE if self._translator.compute_type == "float32" and config.beam > 1 else 1.0,
        )
        batches = [batch.tolist() for batch in length_buckets(lengths, how.batch_tokens)][::-1]  # the longest first
        found = self._search(segments, [(at, max(limits[one] for one in at)) for at in batches], config, how)
        late = _by_limit((at for at, one in found.items() if _exceeds_limit(one, limits[at], config)), limits)
        found |= self._search(segments, late, config, replace(how, penalty=SHORTEST_FIRST))
        odd = _by_limit((at for at, one in found.items() if _contains_special_tokens(one)), limits)
        found |= self._search(segments, odd, config, replace(how, has_constraints=True))
        return [found[at] for at in range(len(segments))]

    def _search(
        self, segments: Sequence[list[int]], batches: Iterable[TokenBatch], config: SearchConfig, how: "SearchPass"
    ) -> dict[int, SearchResult]:
        under_way: list[tuple[int, Any]] = []
        for places, limit in batches:
            sources = [self._text(segments[at]) for at in places]
            results = self._translator.translate_batch(sources, **_options(config, limit, how))
            under_way += zip(places, results, strict=True)
        found = {at: self._read(result.result(), config, how.penalty) for at, result in under_way}
        if how.has_constraints:
            self._score(segments, found, config)
        for one in found.values():
            one.finished.sort(key=lambda hypothesis: -hypothesis.score)
        return found

    def _text(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[id] for id in ids]

    def _read(self, result: Any, config: SearchConfig, penalty: float) -> SearchResult:
        """Its score is the log-probability over length^penalty; the end symbol counts, as it is given back.

        An empty sentence alone comes back without it, as nothing: it is not searched at all.
        """
        found = SearchResult()
        for pieces, score in zip(result.hypotheses, result.scores, strict=True):
            ids, log_prob = [self._ids[piece] for piece in pieces], score * max(1, len(pieces)) ** penalty
            if ids[-1:] == [EOS_ID] and log_prob > IMPOSSIBLE:  # which something undefined is not either
                found.finished.append(_hypothesis(ids[:-1], log_prob, True, config.penalty))
            elif log_prob > IMPOSSIBLE:
                found.truncated.append(_hypothesis(ids, log_prob, False, config.penalty))
        return found

    def _score(self, segments: Sequence[list[int]], found: dict[int, SearchResult], config: SearchConfig) -> None:
        """Give what has ended the model's own log-probabilities: CTranslate2 spreads that of what is forbidden."""
        ended = [(at, one.tokens) for at in found for one in found[at].finished]
        sources, targets = [self._text(segments[at]) for at, _ in ended], [self._text(tokens) for _, tokens in ended]
        batching = {"max_batch_size": BATCH_TOKENS, "batch_type": "tokens"}
        results = self._translator.score_batch(sources, targets, max_input_length=0, **batching)
        for at in found:
            found[at].finished.clear()
        for (at, tokens), result in zip(ended, results, strict=True):
            found[at].finished.append(_hypothesis(tokens, math.fsum(result.log_probs), True, config.penalty))


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPass:
    """What differs between the times that a sentence is searched."""

    has_constraints: bool  # something is forbidden
    penalty: float  # what comes first is what has the largest log-probability / length^penalty
    shortlist: bool
    one_sentence_per_batch: bool  # every sentence is a batch
    patience: float  # it stops when so many times `beam` hypotheses have ended

    @property
    def batch_tokens(self) -> int:
        return SHORTLIST_BATCH_TOKENS if self.shortlist else BATCH_TOKENS


def _hypothesis(tokens: list[int], log_prob: float, finished: bool, alpha: float) -> Hypothesis:
    penalty = float(length_penalty(len(tokens) + finished, alpha))
    return Hypothesis(tokens=tokens, log_prob=log_prob, score=log_prob / penalty, finished=finished)


def _options(config: SearchConfig, limit: int, how: SearchPass) -> dict[str, object]:
    """A search in the words of CTranslate2."""
    never_said = [[SPECIAL_TOKENS[id]] for id in NEVER_GENERATED]
    return {
        "beam_size": config.beam,
        # All that it can give back, to be ranked anew; without a penalty it knows when nothing better can come.
        "num_hypotheses": config.beam if how.penalty else config.n_best,
        "length_penalty": how.penalty,
        "patience": how.patience,
        "no_repeat_ngram_size": config.no_repeat,
        "min_decoding_length": min(config.min_length, limit),
        "max_decoding_length": limit,
        "max_input_length": 0,  # nothing is cut silently
        "suppress_sequences": never_said if how.has_constraints else None,
        "return_scores": True,
        "return_end_token": True,
        "use_vmap": how.shortlist,
        "max_batch_size": 1 if how.one_sentence_per_batch else how.batch_tokens,
        "batch_type": "examples" if how.one_sentence_per_batch else "tokens",
        "asynchronous": True,
    }


def _by_limit(places: Iterable[int], limits: Sequence[int]) -> list[TokenBatch]:
    ordered = sorted(places, key=limits.__getitem__)
    return [(list(group), limit) for limit, group in groupby(ordered, key=limits.__getitem__)]


def _exceeds_limit(found: SearchResult, limit: int, config: SearchConfig) -> bool:
    """True if the limit came before the end of the search.

    A batch has one limit, the largest of all, so that a sentence may go beyond its own. And what is cut at the limit
    counts as ended, and may push what has ended out of the number that is given back.
    """
    longest = max((len(one.tokens) + one.finished for one in found.finished + found.truncated), default=0)
    return longest > limit or bool(found.truncated and config.beam > 1)


def _contains_special_tokens(found: SearchResult) -> bool:
    """To forbid them from the start would change every score a little, for what hardly ever happens."""
    return any(id in NEVER_GENERATED for one in found.finished + found.truncated for id in one.tokens)
