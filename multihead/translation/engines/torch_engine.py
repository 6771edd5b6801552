"""TODO."""

import copy
import math
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from multihead.config.schema import SearchConfig
from multihead.data.bucketing import length_buckets
from multihead.model.transformer import Transformer
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import EOS_ID, PAD_ID
from multihead.translation.engine import SearchResult, Segment
from multihead.translation.search.beam import search
from multihead.translation.search.candidates import Candidates

BATCH_TOKENS = 2048  # source tokens searched at a time, padding counted
WIDE = 512  # d_model from which several cores gain from working on one sentence together


class TorchEngine:
    """One model, or several of one vocabulary that vote, in batches of like length."""

    chunk_size, prefetch = 2000, 1

    def __init__(self, models: Sequence[Transformer], shortlist: Shortlist | None = None) -> None:
        self.models = list(models)
        self.device = next(self.models[0].parameters()).device
        self.shortlist = Candidates(shortlist, self.device) if shortlist else None
        self._double_precision_models: list[Transformer] = []
        self._busy = threading.Lock()  # the number of threads is torch's, not ours alone

    def search(self, segments: Sequence[Segment], config: SearchConfig) -> list[SearchResult]:
        with self._busy:
            return self._search(segments, config)

    def _search(self, segments: Sequence[Segment], config: SearchConfig) -> list[SearchResult]:
        found = self._search_with(self.models, segments, config)
        close = [at for at, one in enumerate(found) if one.near_tie and not config.sample]
        if close:
            self._double_precision_models = self._double_precision_models or [
                copy.deepcopy(model).double() for model in self.models
            ]
            decided = self._search_with(self._double_precision_models, [segments[at] for at in close], config)
            for at, one in zip(close, decided, strict=True):
                found[at] = one
        return found

    def _search_with(
        self, models: Sequence[Transformer], segments: Sequence[Segment], config: SearchConfig
    ) -> list[SearchResult]:
        """Batches of like length, the longest first, shared out to as many threads as there are cores."""
        lengths = np.array([[len(ids), len(ids)] for ids in segments], dtype=np.int32).reshape(-1, 2)
        share = math.ceil((lengths[:, 0].sum() + len(segments)) / torch.get_num_threads())  # so that no core is idle
        batches = [batch.tolist() for batch in length_buckets(lengths, min(BATCH_TOKENS, share))][::-1]

        def search_batch(batch: list[int]) -> list[SearchResult]:
            source_ids = torch.tensor(pad([segments[at] for at in batch]), device=self.device)
            return search(models, source_ids, config, shortlist=self.shortlist)

        is_wide = models[0].config.d_model >= WIDE
        results = _search_in_threads(search_batch, batches, self.device, is_wide)
        found = {at: one for batch, of in zip(batches, results, strict=True) for at, one in zip(batch, of, strict=True)}
        return [found[at] for at in range(len(segments))]


def _search_in_threads(
    search_batch: Callable[[list[int]], list[SearchResult]],
    batches: list[list[int]],
    device: torch.device,
    is_wide: bool,
) -> list[list[SearchResult]]:
    """Each core works on a batch of its own, which takes less waiting than all of them on one.

    A batch that comes alone has all of them only if the model is wide. On the small tensors of a small one they would
    wait for each other longer than they work, and fifty times as long where another process has taken a core.
    """
    n_threads = torch.get_num_threads()
    if device.type != "cpu" or n_threads == 1 or (len(batches) == 1 and is_wide):
        return [search_batch(batch) for batch in batches]
    torch.set_num_threads(1)
    try:
        with ThreadPoolExecutor(n_threads) as pool:
            return list(pool.map(search_batch, batches))
    finally:
        torch.set_num_threads(n_threads)


def pad(segments: Sequence[Segment]) -> list[list[int]]:
    longest = max(map(len, segments)) + 1
    return [[*ids, EOS_ID] + [PAD_ID] * (longest - 1 - len(ids)) for ids in segments]
