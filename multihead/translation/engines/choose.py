"""Choose the engine for a model. The torch models are loaded only when something needs them."""

import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from multihead.config.schema import SearchConfig
from multihead.errors import UserError, is_installed, require
from multihead.interop.ctranslate2_export import unsupported_by_ctranslate2
from multihead.interop.export_cache import cached_export
from multihead.storage.model_folder import ModelFolder
from multihead.translation.engine import Engine, SearchResult, Segment
from multihead.translation.engines.ctranslate2_engine import CTranslate2Engine

if TYPE_CHECKING:
    from multihead.model.transformer import Transformer

NARROW_MODEL = 256  # d_model up to which CTranslate2 is as fast as torch without a shortlist


class LazyModels:
    """The torch models of some folders, loaded by the first call and kept. Thread-safe."""

    def __init__(self, folders: Sequence[ModelFolder]) -> None:
        self._folders = folders
        self._models: list[Transformer] = []
        self._lock = threading.Lock()

    def __call__(self) -> "list[Transformer]":
        with self._lock:
            if not self._models:
                hardware = require("multihead.hardware.device", extra="train")
                device = hardware.pick_device()
                hardware.use_tensor_cores(device)
                load_model = require("multihead.model.weights", extra="train").load_model
                self._models = [load_model(folder.path)[0].to(device) for folder in self._folders]
            return self._models


class FastEngine(Engine, Protocol):
    """An engine that does not support every search."""

    def unsupported_reason(self, config: SearchConfig) -> str | None: ...


class AutoEngine:
    """`--engine auto`: CTranslate2, and torch for searches that CTranslate2 does not support."""

    def __init__(self, fast: FastEngine, make_fallback: Callable[[], Engine]) -> None:
        """`make_fallback` is called by the first search that CTranslate2 does not support."""
        self._fast, self._make_fallback = fast, make_fallback
        self._fallback: Engine | None = None
        self._lock = threading.Lock()
        self.chunk_size, self.prefetch = fast.chunk_size, fast.prefetch
        self.concurrent_searches, self.merges_sentences = fast.concurrent_searches, fast.merges_sentences

    def search(self, segments: Sequence[Segment], config: SearchConfig, details: bool = False) -> list[SearchResult]:
        if self._fast.unsupported_reason(config) is None:
            return self._fast.search(segments, config, details)
        with self._lock:
            self._fallback = self._fallback or self._make_fallback()
        return self._fallback.search(segments, config, details)


def choose_engine(
    name: str,
    folders: Sequence[ModelFolder],
    models: LazyModels,
    n_threads: int | None,
    concurrent_searches: int = 1,
) -> Engine:
    """Return the engine of this name for a model, or for an ensemble if there are several folders.

    torch searches one call after the other, whatever `concurrent_searches` says.
    """
    kind, _, quantization = name.partition(":")
    folder = folders[0]

    def make_torch_engine(purpose: str) -> Engine:
        module = require("multihead.translation.engines.torch_engine", extra="train", purpose=purpose)
        engine: Engine = module.TorchEngine(models(), folder.shortlist(), n_threads, folder.alignment_layer)
        return engine

    purpose = "the torch engine" if kind == "torch" else use_of_torch(folders) if kind == "auto" else None
    if purpose:
        return make_torch_engine(purpose)
    if len(folders) > 1:
        raise UserError("CTranslate2 searches with a single model: use --engine torch for an ensemble")
    export = cached_export(folder, quantization or "int8")
    fast = CTranslate2Engine(
        export,
        folder.config.model,
        n_threads,
        one_sentence_per_batch=kind == "auto",
        concurrent_searches=concurrent_searches,
    )
    return AutoEngine(fast, partial(make_torch_engine, "sampling")) if kind == "auto" else fast


def name_engine(name: str, folders: Sequence[ModelFolder]) -> str:
    """Return what an engine searches with on this machine: "torch", or CTranslate2 and its quantization."""
    kind, _, quantization = name.partition(":")
    if kind == "torch" or (kind == "auto" and use_of_torch(folders)):
        return "torch"
    return f"ctranslate2:{quantization or 'int8'}"


def name_batch_engine(folder: ModelFolder) -> str:
    """Return the name of the engine that translates a large text fastest; a translation may depend on its batch."""
    return "auto" if unsupported_by_ctranslate2(folder.config.model) or _has_gpu() else "ctranslate2"


def use_of_torch(folders: Sequence[ModelFolder]) -> str | None:
    """Return what `auto` uses torch for, or None where it uses CTranslate2.

    `auto` puts every sentence in its own batch, so that a large output projection is read from memory for each
    sentence. torch searches many sentences at a time, which is faster for a base model with 37,000 pieces.
    """
    if len(folders) > 1:
        return "an ensemble"
    if reason := unsupported_by_ctranslate2(folders[0].config.model):
        return f"this model ({reason})"
    if not is_installed("torch"):
        return None
    is_small = folders[0].config.model.d_model <= NARROW_MODEL or folders[0].shortlist() is not None
    return None if is_small and not _has_gpu() else "the fastest search"


def _has_gpu() -> bool:
    import ctranslate2

    if not ctranslate2.get_cuda_device_count():
        return False
    from multihead.hardware.device import pick_device  # torch may be a build for CPUs only

    return pick_device().type != "cpu"
