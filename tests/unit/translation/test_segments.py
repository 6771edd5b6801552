"""A text becomes segments that fit the model."""

import pytest

from multihead.config.schema import DataConfig
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation import segments
from multihead.translation.engine import Segment
from multihead.translation.segments import Segmenter

TEXTS = ["Ein Mann fährt mit dem Fahrrad zum Bahnhof.", "A man rides his bike to the station, doesn't he?"] * 5
TOKENIZER = SubwordTokenizer.learn(TEXTS, 400)


def segmenter(max_tokens: int = 64, **data: object) -> Segmenter:
    return Segmenter(TOKENIZER, DataConfig(source_lang="en", target_lang="de", **data), max_tokens)  # type: ignore[arg-type]


def test_a_text_is_split_into_sentences() -> None:
    line = segmenter().read("A man rides. His bike.", split=True)
    assert [TOKENIZER.decode(segment.ids) for segment in line.segments] == ["A man rides.", "His bike."]
    assert line.gaps == ["", " "]


def test_without_splitting_a_text_is_a_single_segment() -> None:
    text = "A man rides. His bike."
    assert segmenter().read(text, split=False).segments == [Segment(TOKENIZER.encode(text))]


@pytest.mark.parametrize("split", [True, False])
def test_a_sentence_that_is_too_long_is_split_and_loses_no_word(split: bool) -> None:
    text = ", ".join("A man rides his bike to the station" for _ in range(60))
    line = segmenter(max_tokens=20).read(text, split)
    assert max(len(segment.ids) for segment in line.segments) <= 20
    assert " ".join(TOKENIZER.decode(segment.ids) for segment in line.segments).count("station") == 60
    assert line.warnings == [
        f"split: a sentence longer than 20 tokens was translated in {len(line.segments)} parts",
    ]


def test_a_text_beyond_the_limit_is_cut_with_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MAX_CHARACTERS", 100)
    line = segmenter(max_tokens=20).read("x" * 1_000_000, split=True)
    assert line.warnings[0] == "cut: the text has 1,000,000 characters; the first 100 were read"


@pytest.mark.parametrize("text", ["", "   ", "\0\0 \x07"])
def test_a_text_without_visible_characters_has_no_segments(text: str) -> None:
    assert segmenter().read(text, split=True).segments == []


def test_a_lone_surrogate_is_replaced() -> None:
    assert segmenter().read("half \ud800 a pair", split=True).segments == [Segment(TOKENIZER.encode("half ? a pair"))]


def test_a_model_trained_on_lower_cased_text_reads_capitals_in_lower_case() -> None:
    """Text in capitals would be split into single letters. A single word may be a name and stays as it is."""
    with_noise = segmenter(casing_noise=0.2)
    shouted = with_noise.read("A MAN RIDES HIS BIKE, DOESN'T HE?", split=True)
    assert shouted.segments == with_noise.read("a man rides his bike, doesn't he?", split=True).segments
    assert shouted.warnings == ["capitals: the text was read in lower case"]
    assert with_noise.read("NATO", split=True).warnings == []
    assert segmenter().read("A MAN", split=True).segments == [Segment(TOKENIZER.encode("A MAN"))]
