"""Numbers in digits and in words."""

import pytest

from multihead.text.numerals import is_spelled_out


@pytest.mark.parametrize(
    ("digits", "text", "language"),
    [
        ("80", "Achtzig Leute kamen.", "de"),
        ("48", "Er ist achtundvierzig.", "de-AT"),
        ("21", "einundzwanzig", "de"),
        ("300", "die dreihundert Dollar", "de"),
        ("2000", "zweitausend Jahre", "de"),
        ("100000", "hunderttausend Yen", "de"),
        ("21", "Twenty-one men", "en"),
        ("1000", "a thousand men", "en"),
        ("81", "quatre-vingt-un", "fr"),
        ("90", "quatre-vingt-dix hommes", "fr"),
        ("28", "veintiocho", "es"),
        ("45", "cuarenta y cinco", "es"),
        ("80", "ottanta", "it"),
        ("23", "drieëntwintig", "nl"),
    ],
)
def test_a_number_in_words_is_found(digits: str, text: str, language: str) -> None:
    assert is_spelled_out(digits, text, language)


@pytest.mark.parametrize(
    ("digits", "text", "language"),
    [
        ("2000", "zwanzig Dollar", "de"),
        ("50", "fünfhundert Dollar", "de"),
        ("80", "achtzigtausend", "de"),
        ("80", "eighty thousand", "en"),
        ("100", "hunderttausend", "de"),
        ("20", "vingt-cinq", "fr"),
        ("130", "hundertdreißig", "de"),  # not in the table
        ("80", "achtzig", "sv"),
        ("80", "achtzig", ""),
        ("00", "null", "de"),
    ],
)
def test_another_number_is_not(digits: str, text: str, language: str) -> None:
    assert not is_spelled_out(digits, text, language)
