"""Attention to look at: one self-contained page, and one picture for a paper."""

import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from torch import Tensor

from multihead.inspection.attention_maps import AttentionMaps, alignment_layer, alignment_matrix
from multihead.storage.files import write_text_atomic
from multihead.text.pieces import word_texts

SCALE = 10_000  # weights are written as whole ten-thousandths, which keeps a page small
_PARTS = {"__STYLE__": "attention.css", "__VIEWER__": "viewer.html", "__SCRIPT__": "attention.js"}  # of the template


# The page


def write_page(maps: AttentionMaps, path: Path, *, source: str, translation: str, model_name: str) -> None:
    """Write one HTML file that needs no other, and asks no other machine for anything."""
    page = asset("attention.html")
    for mark, name in _PARTS.items():
        page = page.replace(mark, asset(name).strip())
    names = {"source": source, "translation": translation, "model": model_name}
    write_text_atomic(path, page.replace("__DATA__", _inert_json(names | page_data(maps))))


def asset(name: str) -> str:
    """A file that the page is made of; the server's page shares them."""
    return files("multihead.inspection").joinpath("assets", name).read_text(encoding="utf-8")


def page_data(maps: AttentionMaps) -> dict[str, Any]:
    """What the viewer draws."""
    return {
        "scale": SCALE,
        "tokens": {"source": maps.source_tokens, "target": maps.target_tokens},
        "maps": {
            "encoder": _to_integers(maps.encoder),
            "decoder": _to_integers(maps.decoder),
            "cross": _to_integers(maps.cross),
        },
        "alignment": {
            "source": word_texts(maps.source_tokens[:-1]),
            "target": word_texts(maps.target_tokens[1:]),
            "layer": alignment_layer(maps),
            "weights": _to_integers(alignment_matrix(maps)),
        },
    }


def _to_integers(weights: Tensor) -> list[Any]:
    numbers: list[Any] = (weights * SCALE).round().int().tolist()
    return numbers


def _inert_json(data: dict[str, Any]) -> str:
    """JSON in ASCII without `<`, `>` and `&`: no text of a user can end the element that it is in."""
    text = json.dumps(data, separators=(",", ":"))
    for character in "<>&":  # inside strings only: JSON itself has none of them
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
