"""TODO."""

from collections.abc import Sequence
from pathlib import Path

from multihead.config.schema import SearchConfig
from multihead.errors import UserError
from multihead.hardware.device import pick_device
from multihead.interop.ctranslate2_export import has_ctranslate2, unsupported_by_ctranslate2
from multihead.interop.export_cache import cached_export
from multihead.model.transformer import Transformer
from multihead.storage.shortlist import Shortlist, load_shortlist
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.engine import Engine, SearchResult
from multihead.translation.engines.ctranslate2_engine import CTranslate2Engine
from multihead.translation.engines.torch_engine import TorchEngine


class AutoEngine:
    """What `auto` means: CTranslate2, each sentence alone, so that it is the same whatever its neighbours; and torch
    for what CTranslate2 cannot do."""

    chunk_size, prefetch = CTranslate2Engine.chunk_size, CTranslate2Engine.prefetch

    def __init__(self, fast: CTranslate2Engine, other: TorchEngine) -> None:
        self._fast, self._other = fast, other

    def search(self, segments: Sequence[list[int]], config: SearchConfig) -> list[SearchResult]:
        engine = self._other if self._fast.unsupported_reason(config) else self._fast
        return engine.search(segments, config)


NARROW_MODEL = 256  # d_model up to which CTranslate2 is as fast as torch without a shortlist


def choose_engine(name: str, models: list[Transformer], tokenizer: SubwordTokenizer, folder: Path) -> Engine:
    kind, _, quantization = name.partition(":")
    model, words = models[0], load_shortlist(folder)
    torch_engine = TorchEngine(models, words)
    if kind == "torch" or (kind == "auto" and not ctranslate2_is_faster(models, words)):
        return torch_engine
    if len(models) > 1:
        raise UserError("CTranslate2 searches with one model: an ensemble needs --engine torch")
    export = cached_export(model, tokenizer, folder, quantization or "int8", words)
    fast = CTranslate2Engine(export, model.config, one_sentence_per_batch=kind == "auto")
    return AutoEngine(fast, torch_engine) if kind == "auto" else fast


def ctranslate2_is_faster(models: list[Transformer], words: Shortlist | None) -> bool:
    """Whether CTranslate2 is the faster one: on CPUs, with a shortlist or for a narrow model.

    `auto` makes every sentence a batch of its own, so a large output layer is read from memory for each of them; torch
    searches many sentences at a time, which is faster for a base model of 37,000 pieces.
    """
    able = len(models) == 1 and not unsupported_by_ctranslate2(models[0].config)
    quick = words is not None or models[0].config.d_model <= NARROW_MODEL
    return able and quick and has_ctranslate2() and pick_device().type == "cpu"
