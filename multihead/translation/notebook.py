"""Translations and models as they are shown: in one line, and as HTML in a notebook. Every text is escaped."""

import math
from html import escape
from itertools import pairwise
from typing import TYPE_CHECKING

from multihead.config.schema import RunConfig
from multihead.text.pieces import group_words, word_spans, word_texts
from multihead.text.tokenizer import SENTENCEPIECE_SPACE, readable_pieces

if TYPE_CHECKING:
    from multihead.translation.translator import Translation, Translator

MAX_CHARACTERS = 60  # of a text in one line
DARKEST = 0.75  # opacity behind a word of probability 0


def describe_translation(translation: "Translation") -> str:
    """Return a translation in one line."""
    parts = [repr(_shorten(translation.text)), f"score={translation.score:.3f}"]
    if translation.confidence is not None:
        parts.append(f"confidence={translation.confidence:.2f}")
    for name in ("alternatives", "warnings"):
        if count := len(getattr(translation, name)):
            parts.append(f"{name}: {count}")
    return f"Translation({', '.join(parts)})"


def describe_translator(translator: "Translator") -> str:
    """Return a model in one line."""
    facts = "; ".join(f"{name} {value}" for name, value in _facts(translator).items())
    return f"Translator({translator.name!r}; {facts})"


def translation_html(translation: "Translation") -> str:
    """Return a translation with words shaded by their probability, its alternatives and its warnings."""
    words = word_probabilities(translation)
    text = _shaded_words(translation.text, words) or escape(translation.text)
    others = "".join(f"<li>{escape(other.text)} ({other.score:.3f})</li>" for other in translation.alternatives)
    parts = [
        f'<p dir="auto">{text}</p>',
        f"<p><small>{_measures(translation)}{'; darker words are less probable' if words else ''}</small></p>",
        f'<ol dir="auto" start="2">{others}</ol>' if others else "",
        *(f"<p><small>{escape(warning)}</small></p>" for warning in translation.warnings),
    ]
    return f"<div>{''.join(parts)}</div>"


def _measures(translation: "Translation") -> str:
    confidence = "" if translation.confidence is None else f", confidence {translation.confidence:.2f}"
    return f"score {translation.score:.3f}{confidence}"


def word_probabilities(translation: "Translation") -> list[tuple[str, float]]:
    """Return the words of a translation and the probability that the model gave each; none if it is not known."""
    if not translation.tokens or len(translation.piece_scores) != len(translation.tokens):
        return []
    is_byte_level = not any(SENTENCEPIECE_SPACE in piece for piece in translation.tokens)
    pieces = readable_pieces(translation.tokens, is_byte_level)
    sums = [math.fsum(translation.piece_scores[place] for place in word) for word in group_words(pieces)]
    return list(zip(word_texts(pieces), map(math.exp, sums), strict=True))


def translator_html(translator: "Translator") -> str:
    """Return a table of what a model is."""
    rows = {"model": translator.name, **_facts(translator)}
    cells = (f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in rows.items())
    return f"<table>{''.join(cells)}</table>"


def _facts(translator: "Translator") -> dict[str, str]:
    config: RunConfig = translator.config
    model = config.model
    return {
        "translates": ", ".join(f"{source or '?'} to {target or '?'}" for source, target in translator.targets.pairs),
        "layers": f"{model.encoder_layers}+{model.decoder_layers}",
        "d_model": str(model.d_model),
        "vocabulary": f"{model.vocab_size:,} pieces",
        "engine": type(translator.engine).__name__,
    }


def _shaded_words(text: str, words: list[tuple[str, float]]) -> str:
    """Return words shaded by their probability, as they are written in the text if it has the same words."""
    spans = word_spans(text)
    if len(spans) != len(words):
        return " ".join(_shaded(word, probability) for word, probability in words)
    gaps = [text[end:start] for (_, end), (start, _) in pairwise([(0, 0), *spans])]
    shaded = [_shaded(text[slice(*span)], probability) for span, (_, probability) in zip(spans, words, strict=True)]
    return "".join(gap + word for gap, word in zip(gaps, shaded, strict=True))


def _shaded(word: str, probability: float) -> str:
    opacity = DARKEST * (1 - min(1.0, probability))
    style = f"background: rgba(230, 120, 0, {opacity:.2f}); border-radius: 3px"
    return f'<span style="{style}" title="probability {probability:.2f}">{escape(word)}</span>'


def _shorten(text: str) -> str:
    return text if len(text) <= MAX_CHARACTERS else f"{text[: MAX_CHARACTERS - 1]}…"
