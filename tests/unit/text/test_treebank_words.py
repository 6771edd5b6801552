"""Words as a treebank has them, and signatures of rare words."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.text.treebank_words import replace_rare, signatures, split_words, vocabulary_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The cat sat on the mat.", "The cat sat on the mat ."),
        ("It didn't, she's sure!", "It did n't , she 's sure !"),
        ("Mr. Smith paid $1,873.50 in the U.S. in 2010.", "Mr. Smith paid $ 1,873.50 in the U.S. in 2010 ."),
        ("a well-known (small) dog...", "a well - known ( small ) dog ..."),
        ("", ""),
    ],
)
def test_sentences_are_split_as_in_treebanks(text: str, words: str) -> None:
    assert split_words(text) == words.split()


@given(st.text())
def test_splitting_loses_nothing_but_spaces(text: str) -> None:
    assert "".join(split_words(text)) == "".join(text.split())


def test_split_words_stay_as_they_are() -> None:
    words = split_words("It didn't (really) rain in well-known L2 places, 3.5 times.")
    assert split_words(" ".join(words)) == words


def test_a_signature_tells_case_digits_and_ending() -> None:
    assert signatures("Singing")[0] == "\u2039Xx·ing\u203a"
    assert signatures("NATO")[0] == "\u2039XX·to\u203a"
    assert signatures("1,873") == ["\u20390·\u203a"]
    assert signatures("L2") == ["\u2039XX0·\u203a"]


@given(st.text(min_size=1).filter(lambda text: text.split() == [text]))
def test_every_word_has_a_signature_without_spaces(word: str) -> None:
    assert all(one.split() == [one] for one in signatures(word))


def test_rare_words_are_replaced_by_the_first_known_signature() -> None:
    sentences = [["the", f"r{'a' * n}ing"] for n in range(20)]
    known = vocabulary_of(sentences)
    assert "the" in known and "raing" not in known
    assert replace_rare(["the", "swimming"], known.__contains__) == ["the", "\u2039x·ing\u203a"]
    assert replace_rare(["7"], known.__contains__) == ["7"]
