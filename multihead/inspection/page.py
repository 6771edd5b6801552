"""A self-contained HTML page that shows the attention of every head."""

import json
import re
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from multihead.storage.files import write_text_atomic
from multihead.text.pieces import join_pieces, word_texts

if TYPE_CHECKING:
    from multihead.inspection.attention_maps import Array, AttentionMaps

SCALE = 10_000  # weights are written as integers, in units of 1/10,000, to keep the page small
FRAME_HEIGHT = 720  # pixels, in a notebook
MODULES = ("dom.js", "colors.js", "map.js", "head.js", "attention.js")  # of the viewer, in the order of their imports
_IMPORT = re.compile(r'^import \{[^}]*\} from "\./[\w-]+\.js";\n', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:\{[^}]*\};\n|(?=\w))", re.MULTILINE)


def write_page(maps: "AttentionMaps", path: Path, *, source: str, translation: str, model_name: str) -> None:
    """Write an HTML file that needs no other file and no network."""
    write_text_atomic(path, render_page(maps, source=source, translation=translation, model_name=model_name))


def render_page(maps: "AttentionMaps", *, source: str, translation: str, model_name: str) -> str:
    """Return the page."""
    page = asset("attention.html")
    parts = {"__STYLE__": asset("attention.css"), "__VIEWER__": asset("viewer.html"), "__SCRIPT__": _one_script()}
    for mark, text in parts.items():
        page = page.replace(mark, text.strip())
    names = {"source": source, "translation": translation, "model": model_name}
    return page.replace("__DATA__", _inert_json(names | page_data(maps)))


def render_frame(maps: "AttentionMaps") -> str:
    """Return the page as a frame for a notebook, which its scripts cannot reach."""
    source, target = join_pieces(maps.source_tokens[:-1]), join_pieces(maps.target_tokens[1:])
    page = render_page(maps, source=source, translation=target, model_name="")
    style = f"width: 100%; height: {FRAME_HEIGHT}px; border: 0"
    return f'<iframe sandbox="allow-scripts" srcdoc="{escape(page)}" style="{style}"></iframe>'


def asset(name: str) -> str:
    """Return the content of a file in assets/; the web page of the server uses the same files."""
    return files("multihead.inspection").joinpath("assets", name).read_text(encoding="utf-8")


def _one_script() -> str:
    """Return the modules of the viewer as one script; no two of them define the same name."""
    return "\n".join(_EXPORT.sub("", _IMPORT.sub("", asset(name))) for name in MODULES)


def page_data(maps: "AttentionMaps") -> dict[str, Any]:
    """Return the data that the viewer draws."""
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
            "layer": maps.alignment_layer,
            "weights": _to_integers(maps.alignment()),
        },
        "probabilities": {
            "tokens": _rounded(maps.probabilities.tolist()),
            "words": _rounded(maps.word_probabilities()),
        },
    }


def _rounded(probabilities: list[float]) -> list[float]:
    return [float(f"{probability:.4g}") for probability in probabilities]


def _to_integers(weights: "Array") -> list[Any]:
    numbers: list[Any] = (weights * SCALE).round().astype(int).tolist()
    return numbers


def _inert_json(data: dict[str, Any]) -> str:
    """Return JSON in ASCII without `<`, `>` and `&`, so that no text can end the element that contains it."""
    text = json.dumps(data, separators=(",", ":"))
    for character in "<>&":  # they occur in strings only, never in the syntax of JSON
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text
