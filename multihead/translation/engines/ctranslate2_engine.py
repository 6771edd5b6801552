"""Search with CTranslate2, corrected to our definition.

CTranslate2 stops after `beam` finished hypotheses, where our search continues while a live one can still win, and it
has a single length limit per batch. Its results are scored as in the paper here, and sentences that exceed their own
limit are searched again.
"""

import contextlib
import json
import math
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from multihead.concurrency import n_threads as default_threads
from multihead.config.schema import ModelConfig, SearchConfig
from multihead.data.bucketing import length_buckets
from multihead.errors import UserError
from multihead.inspection.attention_maps import Array, between_pieces
from multihead.interop.ctranslate2_export import VOCABULARY_MAP
from multihead.text.tokenizer import EOS_ID, NEVER_GENERATED, SPECIAL_TOKENS
from multihead.translation.engine import Hypothesis, SearchResult, Segment, length_penalty
from multihead.translation.engines.ctranslate2_scores import TokenScorer

BATCH_TOKENS = 1024  # source tokens per batch; larger batches are no faster, and slower with int8
BATCHING = {"max_batch_size": BATCH_TOKENS, "batch_type": "tokens"}  # of a pass that is not a beam search
GPU_BATCH_TOKENS = 16_384
SHORTLIST_BATCH_TOKENS = 128  # with a shortlist, which is the union over a batch: smaller batches have a shorter one
SHORTEST_FIRST = -6.0  # length penalty that ranks by length: a log-probability is multiplied by length^6
FLOAT32_PATIENCE = 2.0  # makes 999 of 1,000 sentences equal to our search, where 1.0 makes 992
IMPOSSIBLE = -1e9  # nats; CTranslate2 returns forbidden tokens with such log-probabilities if nothing else is left

TokenBatch = tuple[list[int], int]  # positions of segments, and the maximum length of their outputs


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPass:
    """The options in which the passes over a sentence differ."""

    has_constraints: bool  # some tokens are forbidden
    penalty: float  # hypotheses are ranked by log-probability / length^penalty
    shortlist: bool
    one_sentence_per_batch: bool
    patience: float  # the search stops after patience · beam finished hypotheses
    details: bool  # return attention and token scores
    is_on_gpu: bool

    @property
    def batch_tokens(self) -> int:
        if self.is_on_gpu:
            return GPU_BATCH_TOKENS
        return SHORTLIST_BATCH_TOKENS if self.shortlist else BATCH_TOKENS


def worker_options(n_gpus: int, n_threads: int) -> dict[str, Any]:
    """Return where CTranslate2 searches: on a GPU if there is one, else with threads that have a core each."""
    return {"device": "cuda"} if n_gpus else {"device": "cpu", "inter_threads": n_threads, "intra_threads": 1}


class CTranslate2Engine:
    """Search with CTranslate2: on the CPU a batch per thread, on a GPU one batch after the other.

    On the CPU, this is the fastest way for many sentences; with int8 also for one, which takes ten times as long on two
    threads.
    """

    chunk_size, prefetch = 250, 4

    def __init__(
        self,
        folder: Path,
        config: ModelConfig,
        n_threads: int | None = None,
        one_sentence_per_batch: bool = False,
        concurrent_searches: int = 1,
    ) -> None:
        """Load the export in `folder`.

        `n_threads` batches are searched at the same time; by default as many as `concurrency.n_threads` says. With
        `one_sentence_per_batch`, no other sentence can change a result, which is slower. With
        several `concurrent_searches`, each call of `search` has one thread, whatever `n_threads` says, so that none
        waits for the batches of another.
        """
        import ctranslate2

        self.concurrent_searches, self.merges_sentences = concurrent_searches, not one_sentence_per_batch
        n_threads = concurrent_searches if concurrent_searches > 1 else n_threads or default_threads()
        n_gpus = ctranslate2.get_cuda_device_count()
        options = worker_options(0 if one_sentence_per_batch else n_gpus, n_threads)
        try:
            self._pieces: list[str] = json.loads((folder / "shared_vocabulary.json").read_text(encoding="utf-8"))
            with _torch_threads_restored():
                self._translator = ctranslate2.Translator(str(folder), **options)
        except (OSError, ValueError, RuntimeError) as error:
            raise UserError(f"CTranslate2 cannot load {folder}: {error}") from None
        self._ids = {piece: id for id, piece in enumerate(self._pieces)}
        self._max_len = config.max_len
        self._one_sentence_per_batch = one_sentence_per_batch
        self._has_shortlist = (folder / VOCABULARY_MAP).exists()
        self._scorer = TokenScorer(self._translator, self._pieces, folder / VOCABULARY_MAP)

    def unsupported_reason(self, config: SearchConfig) -> str | None:
        """Return why CTranslate2 cannot search with these settings, or None if it can."""
        if config.sample:
            return "CTranslate2 cannot draw the same samples in every batch"
        return None

    def search(self, segments: Sequence[Segment], config: SearchConfig, details: bool = False) -> list[SearchResult]:
        """Return the result for each segment, in order; with `details`, the best have attention and token scores."""
        if reason := self.unsupported_reason(config):
            raise UserError(f"{reason}: use --engine torch")
        sentences = [segment.ids for segment in segments]  # models that read dependency trees cannot be exported
        longest = max(map(len, sentences), default=0) + 1
        if longest > self._max_len:
            raise ValueError(f"{longest} tokens are more than the {self._max_len} positions of this model")
        limits = [min(len(ids) + 1 + config.max_extra, self._max_len) for ids in sentences]
        first = SearchPass(
            has_constraints=bool(config.min_length or config.no_repeat),
            penalty=config.penalty,
            shortlist=config.shortlist and self._has_shortlist,
            one_sentence_per_batch=self._one_sentence_per_batch,
            patience=FLOAT32_PATIENCE if self._translator.compute_type == "float32" and config.beam > 1 else 1.0,
            details=details,
            is_on_gpu=self._translator.device == "cuda",
        )
        lengths = np.array([[len(ids), len(ids)] for ids in sentences], dtype=np.int32).reshape(-1, 2)
        batches = [batch.tolist() for batch in length_buckets(lengths, first.batch_tokens)][::-1]  # longest first
        results = self._search(
            sentences, [(batch, max(limits[place] for place in batch)) for batch in batches], config, first
        )
        too_long = [place for place, result in results.items() if _exceeds_limit(result, limits[place], config)]
        results |= self._search(
            sentences, _group_by_limit(too_long, limits), config, replace(first, penalty=SHORTEST_FIRST)
        )
        special = [place for place, result in results.items() if _contains_special_tokens(result)]
        results |= self._search(
            sentences, _group_by_limit(special, limits), config, replace(first, has_constraints=True)
        )
        return [results[place] for place in range(len(segments))]

    def _search(
        self, sentences: Sequence[list[int]], batches: Iterable[TokenBatch], config: SearchConfig, options: SearchPass
    ) -> dict[int, SearchResult]:
        """Search some sentences in one pass; return results by position."""
        pending: list[tuple[int, Any]] = []
        neighbors: dict[int, list[list[int]]] = {}  # the sentences of the same batch, with their own
        if self.concurrent_searches > 1 and self._one_sentence_per_batch:
            batches = [([place], limit) for places, limit in batches for place in places]
        for places, limit in batches:
            batch = [sentences[place] for place in places]
            options_of_batch = _library_options(config, limit, options)
            futures = self._translator.translate_batch([self._to_pieces(ids) for ids in batch], **options_of_batch)
            pending += zip(places, futures, strict=True)
            if self.concurrent_searches > 1:
                futures[-1].result()  # leaves the other threads to other searches
            neighbors |= {place: [sentences[place]] if self._one_sentence_per_batch else batch for place in places}
        results = {place: self._read(future.result(), sentences[place], config, options) for place, future in pending}
        if options.details and config.beam > 1 and not self._one_sentence_per_batch:
            self._correct_first_rows(sentences, results)
        if options.has_constraints:
            self._rescore(sentences, results, config)
        for result in results.values():
            result.finished.sort(key=lambda hypothesis: -hypothesis.score)
        if options.details and not options.has_constraints:
            self._add_token_scores(sentences, results, neighbors, config, options)
        return results

    def _to_pieces(self, ids: Sequence[int]) -> list[str]:
        return [self._pieces[id] for id in ids]

    def _read(self, output: Any, source: list[int], config: SearchConfig, options: SearchPass) -> SearchResult:
        """Convert a result of the library, whose score is the log-probability over length^penalty.

        The length includes the end symbol, which the library returns too. An empty sentence in its own batch is not
        searched at all and comes back without it.
        """
        result = SearchResult()
        attentions = output.attention or [None] * len(output.hypotheses)
        for pieces, score, rows in zip(output.hypotheses, output.scores, attentions, strict=True):
            ids, log_prob = [self._ids[piece] for piece in pieces], score * max(1, len(pieces)) ** options.penalty
            if not log_prob > IMPOSSIBLE:  # also true of NaN
                continue
            is_finished = ids[-1:] == [EOS_ID]
            hypothesis = _hypothesis(ids[: len(ids) - is_finished], log_prob, is_finished, config.penalty)
            if rows is not None:
                hypothesis = replace(hypothesis, attention=_attention(rows[: len(hypothesis.tokens)], len(source)))
            (result.finished if is_finished else result.truncated).append(hypothesis)
        return result

    def _correct_first_rows(self, sentences: Sequence[list[int]], results: dict[int, SearchResult]) -> None:
        """Replace the attention of first tokens: beam search in batches returns that of another sentence (4.8.4).

        All hypotheses begin with the same query, and greedy search returns its attention correctly.
        """
        steps = self._translator.translate_batch(
            [self._to_pieces(sentences[place]) for place in results],
            beam_size=1,
            max_decoding_length=1,
            max_input_length=0,
            return_end_token=True,
            return_attention=True,
            **BATCHING,
        )
        for result, step in zip(results.values(), steps, strict=True):
            for one in result.finished + result.truncated:
                if one.attention is not None and one.tokens:
                    one.attention[0] = _attention(step.attention[0], one.attention.shape[1])[0]

    def _add_token_scores(
        self,
        sentences: Sequence[list[int]],
        results: dict[int, SearchResult],
        neighbors: dict[int, list[list[int]]],
        config: SearchConfig,
        options: SearchPass,
    ) -> None:
        """Set the token scores of the best hypotheses; those of others are rarely needed, and cost another pass."""
        best = [
            (place, hypotheses, rank)
            for place, result in results.items()
            for hypotheses in [result.finished or result.truncated]
            for rank in range(min(config.n_best, len(hypotheses)))
        ]
        sources, found = [sentences[place] for place, *_ in best], [hypotheses[rank] for _, hypotheses, rank in best]
        if options.shortlist:
            scores = self._scorer.shortlist_scores([neighbors[place] for place, *_ in best], sources, found)
        else:
            scores = self._scorer.token_scores(sources, found)
        for (_, hypotheses, rank), one in zip(best, scores, strict=True):
            hypotheses[rank] = replace(hypotheses[rank], token_scores=one)

    def _rescore(self, sentences: Sequence[list[int]], results: dict[int, SearchResult], config: SearchConfig) -> None:
        """Replace the log-probabilities of hypotheses by the model's own.

        CTranslate2 renormalizes after forbidding tokens, our search does not. A hypothesis that fills all positions
        keeps what it has: the library has no position left to score it with.
        """
        found = [
            (place, hypotheses, rank)
            for place, result in results.items()
            for hypotheses in (result.finished, result.truncated)
            for rank in range(len(hypotheses))
            if len(hypotheses[rank].tokens) < self._max_len
        ]
        sources = [self._to_pieces(sentences[place]) for place, *_ in found]
        targets = [self._to_pieces(hypotheses[rank].tokens) for _, hypotheses, rank in found]
        scores = self._translator.score_batch(sources, targets, max_input_length=0, **BATCHING)
        for (_, hypotheses, rank), score in zip(found, scores, strict=True):
            one = hypotheses[rank]
            log_probs = score.log_probs[: one.length]
            rescored = _hypothesis(one.tokens, math.fsum(log_probs), one.finished, config.penalty)
            hypotheses[rank] = replace(rescored, attention=one.attention, token_scores=log_probs)


@contextlib.contextmanager
def _torch_threads_restored() -> Iterator[None]:
    """Keep torch's thread count, if torch is in use: CTranslate2 sets it to 1 when it loads a model."""
    torch = sys.modules.get("torch")
    n_threads = torch.get_num_threads() if torch else 0
    try:
        yield
    finally:
        if torch:
            torch.set_num_threads(n_threads)


def _attention(rows: Sequence[Sequence[float]], n_source: int) -> Array:
    """Return rows of the library, which leaves out the end symbol of the source, so that they sum to 1 again."""
    return between_pieces(np.array(rows, dtype=np.float32).reshape(len(rows), n_source))


def _hypothesis(tokens: list[int], log_prob: float, finished: bool, alpha: float) -> Hypothesis:
    penalty = length_penalty(len(tokens) + finished, alpha)
    return Hypothesis(tokens=tokens, log_prob=log_prob, score=log_prob / penalty, finished=finished)


def _library_options(config: SearchConfig, limit: int, options: SearchPass) -> dict[str, object]:
    """Return the arguments of `translate_batch`."""
    forbidden = [[SPECIAL_TOKENS[id]] for id in NEVER_GENERATED]
    return {
        "beam_size": config.beam,
        # With a penalty, return all hypotheses and rank them here; without one, the library knows when to stop.
        "num_hypotheses": config.beam if options.penalty else config.n_best,
        "length_penalty": options.penalty,
        "patience": options.patience,
        "no_repeat_ngram_size": config.no_repeat,
        "min_decoding_length": min(config.min_length, limit),
        "max_decoding_length": limit,
        "max_input_length": 0,  # never truncate the input silently
        "suppress_sequences": forbidden if options.has_constraints else None,
        "return_scores": True,
        "return_attention": options.details,
        "return_end_token": True,
        "use_vmap": options.shortlist,
        "max_batch_size": 1 if options.one_sentence_per_batch else options.batch_tokens,
        "batch_type": "examples" if options.one_sentence_per_batch else "tokens",
        "asynchronous": True,
    }


def _group_by_limit(places: Iterable[int], limits: Sequence[int]) -> list[TokenBatch]:
    ordered = sorted(places, key=limits.__getitem__)
    return [(list(group), limit) for limit, group in groupby(ordered, key=limits.__getitem__)]


def _exceeds_limit(result: SearchResult, limit: int, config: SearchConfig) -> bool:
    """Return whether the length limit interfered with the search.

    The limit of a batch is that of its longest sentence, so that others can exceed theirs. Also, CTranslate2 counts
    hypotheses that it truncates as finished, and they can displace finished ones.
    """
    longest = max((hypothesis.length for hypothesis in result.finished + result.truncated), default=0)
    return longest > limit or bool(result.truncated and config.beam > 1)


def _contains_special_tokens(result: SearchResult) -> bool:
    """Return whether padding or the start symbol was generated.

    That is rare. Forbidding them from the start would change every score slightly.
    """
    return any(id in NEVER_GENERATED for one in result.finished + result.truncated for id in one.tokens)
