"""A model without some of its heads, as a model folder.

The shape stays as it is, since every engine and export expects as many heads in each layer: the weights of a removed
head are zero. Fine-tuning does not bring it back: the gradient of W^V passes through W^O, that of W^O through the
head's output, and both are zero.
"""

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from multihead.config.schema import ModelConfig
from multihead.inspection.head_roles import Head
from multihead.interop.marian.format import ORIGIN
from multihead.storage.arrays import Arrays
from multihead.storage.files import atomic_directory, check_writable, write_text_atomic
from multihead.storage.language_detector import load_detector, save_detector
from multihead.storage.model_folder import ModelFolder, read_vocabulary_files, save_model


def write_pruned(stored: ModelFolder, heads: Iterable[Head], output: Path, note: str) -> None:
    """Write a model without these heads to a new folder; `note` is the first paragraph of its card.

    Scores and confidence are not copied: they are those of the whole model.
    """
    check_writable(output, None, "an empty folder")
    card = stored.path / "README.md"
    text = card.read_text(encoding="utf-8") if card.exists() else ""
    with atomic_directory(output) as folder:
        if shortlist := stored.shortlist():
            shortlist.save(folder)
        if detector := load_detector(stored.path):
            save_detector(detector, folder)
        if (stored.path / ORIGIN).is_dir():  # the vocabulary of an imported model
            shutil.copytree(stored.path / ORIGIN, folder / ORIGIN)
        write_text_atomic(folder / "README.md", f"# {output.name}\n\n{note}\n\n{text}")
        save_model(
            folder,
            remove_heads(stored.weights(), stored.config.model, heads),
            stored.config,
            read_vocabulary_files(stored.path),
            replace(stored.provenance, published=note, scores=(), validation={}),
            replace(stored.search, confidence_levels=(), confidence=()),
        )


def remove_heads(weights: Arrays, config: ModelConfig, heads: Iterable[Head]) -> Arrays:
    """Return the weights with zeros for these heads: in their rows of W^Q, W^K and W^V, and their columns of W^O."""
    pruned = {name: array.copy() for name, array in weights.items()}
    widths = {"w_q": config.d_k, "w_k": config.d_k, "w_v": config.d_v, "w_o": config.d_v}
    for head in heads:
        stack = "encoder" if head.side == "encoder" else "decoder"
        attention = f"{stack}.{head.layer}.{'cross' if head.side == 'cross' else 'self'}_attention."
        for name, array in pruned.items():
            *_, projection, kind = name.split(".")
            if not name.startswith(attention) or projection not in widths:
                continue
            of_head = slice(head.number * widths[projection], (head.number + 1) * widths[projection])
            if projection != "w_o":
                array[of_head] = 0
            elif kind == "weight":  # its bias belongs to all heads
                array[:, of_head] = 0
    return pruned
