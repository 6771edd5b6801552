"""Search with our own beam search and sampling on torch: the reference, and the only engine for ensembles and GPUs."""

import contextlib
import copy
import math
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from multihead.config.schema import SearchConfig
from multihead.data.bucketing import length_buckets
from multihead.model.transformer import Transformer
from multihead.storage.shortlist import Shortlist
from multihead.text.dependency_trees import NO_HEAD
from multihead.text.tokenizer import EOS_ID, PAD_ID
from multihead.translation.engine import SearchResult, Segment
from multihead.translation.search.beam import search
from multihead.translation.search.candidates import Candidates
from multihead.translation.search.details import add_details

BATCH_TOKENS = 2048  # source tokens per batch, including padding
GPU_BATCH_TOKENS = 16_384  # on a GPU, which searches one batch at a time
WIDE_MODEL = 512  # d_model from which several cores are faster when they share one sentence


class TorchEngine:
    """One model or an ensemble, in batches of sentences of similar length.

    Sentences with a near tie are searched again in float64, which gives the same result in every batch. The copy of the
    models for that is made at the first near tie and kept: it takes twice the memory of the models. Copying for each
    search instead would cost more time than the search of a sentence. The copy is on the CPU, because many GPUs compute
    float64 at 1/32 or 1/64 of their speed.
    """

    chunk_size, prefetch, concurrent_searches, merges_sentences = 2000, 1, 1, True

    def __init__(
        self,
        models: Sequence[Transformer],
        shortlist: Shortlist | None = None,
        n_threads: int | None = None,
        alignment_layer: int = -1,
    ) -> None:
        """Search with `n_threads` cores, by default as many as torch is set to use.

        `alignment_layer` is the decoder layer of the first model whose attention is returned, by default the last.
        """
        self.models = list(models)
        self._alignment_layer = alignment_layer
        self._shortlist = shortlist
        self._candidates: dict[torch.device, Candidates] = {}
        self._n_threads = n_threads
        self._double_precision_models: list[Transformer] = []
        self._lock = threading.Lock()  # torch's number of threads belongs to the whole process

    def search(self, segments: Sequence[Segment], config: SearchConfig, details: bool = False) -> list[SearchResult]:
        """Return the result for each segment, in order; with `details`, the best have attention and token scores."""
        with self._lock:
            results = self._search(self.models, segments, config, details)
            tied = [place for place, result in enumerate(results) if result.near_tie and not config.sample]
            if tied:
                self._double_precision_models = self._double_precision_models or [
                    copy.deepcopy(model).cpu().double() for model in self.models
                ]
                again = self._search(
                    self._double_precision_models, [segments[place] for place in tied], config, details
                )
                for place, result in zip(tied, again, strict=True):
                    results[place] = result
            return results

    def _search(
        self, models: Sequence[Transformer], segments: Sequence[Segment], config: SearchConfig, details: bool
    ) -> list[SearchResult]:
        """Search in batches, the longest first, several at a time on a CPU with several cores.

        A batch per core needs less synchronization than all cores on one batch. A single batch gets all cores only if
        the model is wide: on the small tensors of a narrow one they would wait for each other longer than they work,
        and fifty times as long where another process occupies a core.
        """
        n_threads = self._n_threads or torch.get_num_threads()
        device = next(models[0].parameters()).device
        lengths = np.array([[len(segment.ids)] * 2 for segment in segments], dtype=np.int32).reshape(-1, 2)
        n_tokens = int(lengths[:, 0].sum()) + len(segments)
        batches = [batch.tolist() for batch in length_buckets(lengths, batch_tokens(device.type, n_tokens, n_threads))][
            ::-1
        ]

        def search_batch(batch: list[int]) -> list[SearchResult]:
            ids, heads = pad([segments[place] for place in batch])
            source_ids = torch.tensor(ids).to(device, non_blocking=True)
            source_heads = None if heads is None else torch.tensor(heads).to(device, non_blocking=True)
            candidates = self._candidates_on(device)
            found = search(models, source_ids, config, shortlist=candidates, source_heads=source_heads)
            if details:
                restricted = candidates if config.shortlist and not config.sample else None
                allowed = restricted.for_batch(source_ids) if restricted else None
                add_details(models, self._alignment_layer, source_ids, source_heads, allowed, found, config.n_best)
            return found

        shares_cores = len(batches) == 1 and models[0].config.d_model >= WIDE_MODEL
        if device.type != "cpu" or n_threads == 1 or shares_cores:
            with torch_threads(n_threads):
                found = [search_batch(batch) for batch in batches]
        else:
            with torch_threads(1), ThreadPoolExecutor(n_threads) as pool:
                found = list(pool.map(search_batch, batches))
        results = {
            place: result
            for batch, batch_results in zip(batches, found, strict=True)
            for place, result in zip(batch, batch_results, strict=True)
        }
        return [results[place] for place in range(len(segments))]

    def _candidates_on(self, device: torch.device) -> Candidates | None:
        if self._shortlist and device not in self._candidates:
            self._candidates[device] = Candidates(self._shortlist, device)
        return self._candidates.get(device)


def batch_tokens(device: str, n_tokens: int, n_threads: int) -> int:
    """Return the source tokens of a batch: on a CPU so few that no core is idle, on a GPU many."""
    return min(BATCH_TOKENS, math.ceil(n_tokens / n_threads)) if device == "cpu" else GPU_BATCH_TOKENS


@contextlib.contextmanager
def torch_threads(n_threads: int) -> Iterator[None]:
    """Let torch use this many threads per operation, also in threads that are started inside."""
    before = torch.get_num_threads()
    torch.set_num_threads(n_threads)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def pad(segments: Sequence[Segment]) -> tuple[list[list[int]], list[list[int]] | None]:
    """Return the ids with the end symbol, padded to the same length; with dependency trees, also the heads."""
    longest = max(len(segment.ids) for segment in segments) + 1
    ids = [[*one.ids, EOS_ID] + [PAD_ID] * (longest - 1 - len(one.ids)) for one in segments]
    heads = [one.heads + [NO_HEAD] * (longest - len(one.heads)) for one in segments if one.heads is not None]
    return ids, heads or None
