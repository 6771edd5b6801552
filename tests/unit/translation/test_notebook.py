"""Models and translations in one line and as HTML: words shaded by probability, every text inert."""

import math
from html.parser import HTMLParser

import numpy as np
import pytest

import multihead
from multihead.inspection.attention_maps import AttentionMaps
from multihead.translation.notebook import word_probabilities
from multihead.translation.translator import Alternative, Translation, Translator

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\"'&"


class Tags(HTMLParser):
    """The tags and attributes of a page, and the texts between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.fixture(scope="module")
def en_de() -> Translator:
    return multihead.load("en-de", threads=1)


def test_a_translation_is_one_line(en_de: Translator) -> None:
    line = repr(en_de.translate("Where is the station?", n_best=2))
    assert line.startswith("Translation('Wo ist der Bahnhof?', score=-")
    assert line.endswith("alternatives: 1)")
    assert ", confidence=0." in line
    assert "\n" not in repr(Translation(text="a\nb" * 100))
    assert len(repr(Translation(text="a" * 1000))) < 100


def test_a_model_says_its_name_languages_and_size(en_de: Translator) -> None:
    assert repr(en_de).startswith("Translator('en-de'; translates en to de; layers 4+2; d_model 192; vocabulary 8,000")
    texts = Tags(en_de._repr_html_()).texts
    assert {"en-de", "en to de", "8,000 pieces"} <= set(texts)


def test_words_have_the_probability_that_the_model_gave_them(en_de: Translator) -> None:
    found = en_de.translate("Where is the station? I am fine.")
    words = word_probabilities(found)
    assert [word for word, _ in words] == found.text.split()
    product = math.prod(probability for _, probability in words)
    assert product == pytest.approx(math.exp(math.fsum(found.piece_scores)), rel=1e-6)
    assert all(0 <= probability <= 1 for _, probability in words)


def test_less_probable_words_are_darker() -> None:
    shown = Translation(text="sicher kaum", tokens=["\u0120sicher", "\u0120kaum"], piece_scores=[-0.01, -3.0])
    spans = [attributes["style"] or "" for tag, attributes in Tags(shown._repr_html_()).found if tag == "span"]
    opacities = [float(style.split(",")[3].split(")")[0]) for style in spans]
    assert opacities[0] < 0.05 < 0.6 < opacities[1]


def test_a_confidence_is_shown_where_there_is_one() -> None:
    assert "score -1.000, confidence 0.75" in Translation(text="a", score=-1.0, confidence=0.75)._repr_html_()
    assert "confidence" not in Translation(text="a", score=-1.0)._repr_html_()


def test_without_probabilities_the_text_is_shown() -> None:
    assert "Guten Tag" in Translation(text="Guten Tag")._repr_html_()


def test_hostile_texts_are_inert() -> None:
    shown = Translation(
        text=HOSTILE,
        tokens=["\u2581" + HOSTILE],
        piece_scores=[-1.0],
        alternatives=[Alternative(text=HOSTILE, score=-2.0)],
        warnings=[HOSTILE],
    )
    page = Tags(shown._repr_html_())
    assert {tag for tag, _ in page.found} == {"div", "p", "span", "small", "ol", "li"}
    assert not any(name.startswith("on") for _, attributes in page.found for name in attributes)
    assert sum(HOSTILE in text for text in page.texts) == 3


def test_attention_maps_are_a_sandboxed_frame_that_texts_cannot_leave() -> None:
    square = np.full((1, 1, 2, 2), 0.5, dtype=np.float32)
    maps = AttentionMaps(
        source_tokens=[" " + HOSTILE, "</s>"],
        target_tokens=["<s>", " " + HOSTILE],
        encoder=square,
        decoder=square,
        cross=square,
        alignment_layer=0,
    )
    assert repr(maps) == "AttentionMaps(2 source tokens, 2 target tokens, 1 decoder layers, 1 heads)"
    ((tag, attributes),) = Tags(maps._repr_html_()).found
    assert (tag, attributes["sandbox"]) == ("iframe", "allow-scripts")
    inner = Tags(attributes["srcdoc"] or "")
    assert not any(tag == "img" for tag, _ in inner.found)
    assert [tag for tag, _ in inner.found].count("script") == 2
