"""Words of texts and of pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.text.pieces import group_words, join_pieces, owners, word_spans, word_texts
from multihead.text.tokenizer import CLOSE, OPEN, SubwordTokenizer

TOKENIZER = SubwordTokenizer.learn(["我们在家。我们在一起。 Hello world, iPhone手机 ที่นี่"] * 5, 290)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello  big world.", ["Hello", "big", "world."]),
        ("我们在家。", ["我", "们", "在", "家", "。"]),
        ("iPhone手机 ok", ["iPhone", "手", "机", "ok"]),
        ("ที่นี่ เก้าอี้", ["ที่", "นี่", "เก้า", "อี้"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("", []),
    ],
)
def test_a_character_is_a_word_in_scripts_without_spaces(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in word_spans(text)] == words


@given(st.lists(st.text("我们在家。นี่ที่乐aé.", min_size=1, max_size=6), max_size=5))
def test_pieces_make_up_the_words_of_the_text(runs: list[str]) -> None:
    text = " ".join(runs)
    pieces = TOKENIZER.readable(TOKENIZER.encode(text))
    assert word_texts(pieces) == [text[start:end] for start, end in word_spans(text)]
    assert join_pieces(pieces) == text
    assert {index for word in group_words(pieces) for index in word} == set(range(len(pieces)))


def test_a_piece_of_several_characters_belongs_to_several_words() -> None:
    assert group_words([" 我们", "在", "\u2039E4\u203a\u2039B9\u203a", "\u203990\u203a", " a"]) == [
        [0],
        [0],
        [1],
        [2, 3],
        [4],
    ]


def test_each_piece_begins_in_a_word() -> None:
    assert owners([" A", " bi", "ke", "."], ["A", "bike", "."]) == [0, 1, 1, 2]
    assert owners([" Größ", "er,"], ["größer", ","]) == [0, 0]  # case does not count; a piece may end in the next word


def test_pieces_of_a_character_in_bytes_belong_to_its_word() -> None:
    assert owners([" a", f" {OPEN}E4{CLOSE}", f"{OPEN}BD{CLOSE}{OPEN}A0{CLOSE}"], ["a", "你"]) == [0, 1, 1]


def test_pieces_of_a_sentence_that_was_cut_belong_to_its_first_words() -> None:
    assert owners([" A", " bi"], ["A", "bike", "."]) == [0, 1]


def test_pieces_that_do_not_spell_the_words_belong_to_none() -> None:
    assert owners([" A", " bike"], ["A", "car"]) is None
    assert owners([" A", " bike", "s"], ["A", "bike"]) is None
