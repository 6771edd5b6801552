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


def test_capitals_are_read_as_a_sentence_in_lower_case() -> None:
    """Models see little text in capitals, and split it into single letters."""
    shouted = segmenter().read("A MAN RIDES HIS BIKE, DOESN'T HE?", split=True)
    assert shouted.segments == segmenter().read("A man rides his bike, doesn't he?", split=True).segments
    assert [segment.in_capitals for segment in shouted.segments] == [True]
    assert shouted.warnings == ["capitals: the text was read in lower case"]


@pytest.mark.parametrize("text", ["NATO", "BMW AG", "A MAN", "WASHINGTON", "A MAN rides his bike", "3 MEN"])
def test_single_words_and_short_names_in_capitals_stay_as_they_are(text: str) -> None:
    line = segmenter().read(text, split=True)
    assert line.segments == [Segment(TOKENIZER.encode(text))]
    assert not line.segments[0].in_capitals
    assert line.warnings == []


def test_every_part_of_a_long_sentence_in_capitals_is_read_in_lower_case() -> None:
    line = segmenter(max_tokens=20).read(", ".join(["A MAN RIDES HIS BIKE"] * 20), split=True)
    assert len(line.segments) > 1
    assert all(segment.in_capitals for segment in line.segments)


@pytest.mark.parametrize("separator", ["\v", "\f", "\x1c", "\x1d", "\x1e", "\x85", "\u2028", "\u2029", "\n", "\r"])
def test_odd_line_separators_end_a_sentence(separator: str) -> None:
    line = segmenter().read(f"A man{separator}his bike", split=True)
    assert line.segments == [Segment(TOKENIZER.encode(text)) for text in ("A man", "his bike")]


@pytest.mark.parametrize("separator", ["\0", "\x1f", "\x80", "\x9f", "\v", "\x85", "\u2028", "\ufeff", "\n"])
def test_without_splitting_control_characters_and_separators_are_spaces(separator: str) -> None:
    line = segmenter().read(f"A man{separator}rides", split=False)
    assert line.segments == [Segment(TOKENIZER.encode("A man rides"))]
