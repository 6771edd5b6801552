"""Multihead: the Transformer of "Attention Is All You Need" as software that people use."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from multihead.translation.translator import Translator


__all__ = ["__version__", "load", "train"]
__version__ = "0.2.0"

# torch takes seconds to import and `multihead --help` does without, so the functions import what they need.


def load(name: str | Path, *more: str | Path, engine: str = "auto", threads: int | None = None) -> "Translator":
    """Load a model by its folder, by the name of a bundled one or as hf:owner/name; several are an ensemble.

    `engine` is auto, torch, ctranslate2 (int8) or ctranslate2:float32. `threads` is the number of cores to use; by
    default OMP_NUM_THREADS, or else all cores that this process may use.
    """
    from multihead.translation.translator import load as load_translator

    return load_translator(name, *more, engine=engine, threads=threads)


def train(
    *,
    output: str | Path,
    source: "str | Path | Sequence[str | Path] | None" = None,
    target: "str | Path | Sequence[str | Path] | None" = None,
    corpus: "str | Path | Sequence[str | Path]" = (),
    weights: Sequence[float] = (),
    valid_source: str | Path | None = None,
    valid_target: str | Path | None = None,
    data: str | Path | None = None,
    preset: str | None = None,
    start_from: str | Path | None = None,
    new_vocabulary: bool = False,
    rehearse: float | None = None,
    monolingual: "str | Path | Sequence[str | Path]" = (),
    reverse: str | Path | None = None,
    teacher: str | Path | None = None,
    settings: Mapping[str, object] | None = None,
) -> Path:
    """Train a translation model into the folder `output`; called again, it resumes where it stopped.

    The text is `source` and `target`, files in which line n of one translates line n of the other; and `corpus`, a file
    with both sides (TMX, TSV, CSV, XLIFF, PO, JSONL, Parquet, OPUS zip). Each may be a list, with `weights` for the
    sources and then the corpora, which say how often their pairs come in an epoch. Or it is `data`, a corpus made by
    `multihead prepare`; or, without any of them, the embedded one. `start_from` is a trained model to begin with, by
    its folder or name: its shape, vocabulary and weights; with `new_vocabulary` only its layers. If its folder has the
    text that it was trained on, `rehearse` pairs of it are mixed in for each new pair, by default 1. `settings` are
    fields by their dotted names: `{"train.steps": 5000}`.

    `monolingual` is more text in the target language, which the model `reverse` translates back, or one that is trained
    first in a quarter of the time. `teacher` is a model whose translations of the sources are learned as well;
    `monolingual` is then more text in the source language.

    Ctrl-C and SIGTERM end the run after the step; once it is saved, KeyboardInterrupt or SystemExit(143) is raised.
    """
    from multihead.errors import require
    from multihead.runs.request import TrainingRequest

    require("torch", extra="train", purpose="training")
    from multihead.runs.stages import MoreText, train_in_stages

    def path(name: str | Path | None) -> Path | None:
        return Path(name) if name is not None else None

    def paths(names: "str | Path | Sequence[str | Path] | None") -> "Path | list[Path] | None":
        return path(names) if names is None or isinstance(names, str | Path) else [Path(name) for name in names]

    request = TrainingRequest(
        output=Path(output),
        source=paths(source),
        target=paths(target),
        corpora=[Path(name) for name in ([corpus] if isinstance(corpus, str | Path) else corpus)],
        weights=weights,
        valid_source=path(valid_source),
        valid_target=path(valid_target),
        data=path(data),
        preset=preset,
        settings=settings or {},
        options={
            "train.base_model": str(start_from) if start_from else None,
            "train.new_vocabulary": new_vocabulary or None,
            "data.rehearse": rehearse,
        },
    )
    more = MoreText(
        monolingual=[Path(name) for name in ([monolingual] if isinstance(monolingual, str | Path) else monolingual)],
        reverse=str(reverse) if reverse else None,
        teacher=str(teacher) if teacher else None,
    )
    return train_in_stages(request, more)
