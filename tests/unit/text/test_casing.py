"""The case of a text, and how languages change it."""

import pytest

from multihead.text.casing import is_in_capitals, is_in_title_case, sentence_case, title_case, upper


@pytest.mark.parametrize(
    "text",
    [
        "TOM IS AT HOME",
        "DON'T GO!",
        "\u0422\u041e\u041c \u0414\u041e\u041c\u0410.",
        "ICH MUSS 20 ÄPFEL ESSEN",
        "GO HOME",
    ],
)
def test_several_words_of_capital_letters_are_text_in_capitals(text: str) -> None:
    assert is_in_capitals(text)


@pytest.mark.parametrize(
    "text",
    [
        "NATO",
        "BMW AG",
        "NATO!",
        "I AM",
        "TOM is AT HOME",
        "日本 NATO 大阪 USA",
        "WARNING",
        "",
        "12 34 56",
        "ABC-123 456",
    ],
)
def test_acronyms_and_mixed_text_are_not(text: str) -> None:
    assert not is_in_capitals(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("The Old Man", True), ("Tom's Big Dog", True), ("The old Man", False), ("Tom", False), ("A B", True)],
)
def test_in_title_case_every_word_begins_with_a_capital(text: str, expected: bool) -> None:
    assert is_in_title_case(text) is expected


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("en", "TOM AND I ARE AT HOME", "Tom and I are at home"),
        ("de", "ICH BIN ZU HAUSE", "Ich bin zu hause"),
        ("tr", "İSTANBUL IŞIK İÇİNDE", "İstanbul \u0131ş\u0131k içinde"),
        ("es", "¿DÓNDE ESTÁ?", "¿Dónde está?"),
    ],
)
def test_sentence_case_keeps_the_first_capital(language: str, text: str, expected: str) -> None:
    assert sentence_case(text, language) == expected


@pytest.mark.parametrize(
    ("language", "text", "expected"),
    [
        ("de", "Tom ist groß.", "TOM IST GROSS."),
        ("tr", "iki \u0131ş\u0131k", "İKİ IŞIK"),
        ("az-Latn", "iki", "İKİ"),
        ("", "iki", "IKI"),
    ],
)
def test_capitals_follow_the_language(language: str, text: str, expected: str) -> None:
    assert upper(text, language) == expected


def test_title_case_keeps_apostrophes_and_later_letters() -> None:
    assert title_case("tom's iPhone ist alt", "de") == "Tom's IPhone Ist Alt"
    assert title_case("iki \u0131ş\u0131k", "tr") == "İki Iş\u0131k"
