"""A text cut into sentences, and put together again to the letter."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.sentences import cut, join


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        (" \n\t", []),
        ("One", ["One"]),
        ("One. Two? Three!", ["One.", "Two?", "Three!"]),
        ("  One.\n\n  Two.  ", ["One.", "Two."]),
        ("no full stop\nanother line", ["no full stop", "another line"]),
        ("ends in small.\nletters go on in another line", ["ends in small.", "letters go on in another line"]),
        ("Dr. Smith came at 3 p.m. yesterday. He left.", ["Dr. Smith came at 3 p.m. yesterday.", "He left."]),
        ("She was born in 1987. He was not.", ["She was born in 1987.", "He was not."]),
        ("Am 3. Oktober ist Feiertag. Gut.", ["Am 3. Oktober ist Feiertag.", "Gut."]),
        ("J. R. R. Tolkien wrote it. So did I. Good.", ["J. R. R. Tolkien wrote it.", "So did I.", "Good."]),
        ('"Really?" he asked. (Yes.) Fine.', ['"Really?" he asked.', "(Yes.)", "Fine."]),
        ('He said "Yes." Then he left.', ['He said "Yes."', "Then he left."]),
        ("It costs 3.50 today...  Really?", ["It costs 3.50 today...", "Really?"]),
        ("where is it? i lost it! help", ["where is it?", "i lost it!", "help"]),
        ("Wait... What?!  No.", ["Wait...", "What?!", "No."]),
        ("你好。我很好", ["你好。", "我很好"]),
    ],
)
def test_sentences_end_where_people_end_them(text: str, sentences: list[str]) -> None:
    assert cut(text)[0] == sentences


@given(st.text(alphabet=st.sampled_from("aB1 .!?…。\n\t\"')"), max_size=60) | st.text(max_size=60))
def test_a_cut_text_can_be_joined_to_the_letter(text: str) -> None:
    sentences, gaps = cut(text)
    assert join(sentences, gaps) == text
    assert len(gaps) == len(sentences) + 1
    assert all(sentence == sentence.strip() and sentence for sentence in sentences)
    assert not any(gap.strip() for gap in gaps)


def test_lines_are_never_joined() -> None:
    assert not any("\n" in sentence for sentence in cut("a b\nc.\n\nd e.\nf")[0])
