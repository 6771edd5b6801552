# ruff: noqa: RUF001  # marks of many scripts are meant
"""Sentence boundaries in any script, and translations put together as their language does."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multihead.text.sentences import as_one_sentence, join_sentences, join_translations, split_sentences, split_to_fit


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("", []),
        (" \n\t", []),
        ("One", ["One"]),
        ("One. Two? Three!", ["One.", "Two?", "Three!"]),
        ("  One.\n\n  Two.  ", ["One.", "Two."]),
        ("no full stop\nanother line", ["no full stop", "another line"]),
        ("ends in lower case.\nletters go on", ["ends in lower case.", "letters go on"]),
        ("one line\u2028another\x85and another\v.", ["one line", "another", "and another", "."]),
        ("Dr. Smith came at 3 p.m. yesterday. He left.", ["Dr. Smith came at 3 p.m. yesterday.", "He left."]),
        ("Ms. Marois spoke. He left.", ["Ms. Marois spoke.", "He left."]),
        ("See Sec. 4.2 of the U.S. Army report. Good.", ["See Sec. 4.2 of the U.S. Army report.", "Good."]),
        ("She was born in 1987. He was not.", ["She was born in 1987.", "He was not."]),
        ("J. R. R. Tolkien wrote it. So did I. Good.", ["J. R. R. Tolkien wrote it.", "So did I.", "Good."]),
        ('"Really?" he asked. (Yes.) Fine.', ['"Really?" he asked.', "(Yes.)", "Fine."]),
        ('He said "Yes." Then he left.', ['He said "Yes."', "Then he left."]),
        ('"I ran. She ran. We ran!" he said. Ok.', ['"I ran.', "She ran.", 'We ran!" he said.', "Ok."]),
        ("(He left. She stayed.) Good.", ["(He left.", "She stayed.)", "Good."]),
        ("« Oui. » Bien.", ["« Oui. »", "Bien."]),
        ('Never (...) ", he said. Good.', ['Never (...) ", he said.', "Good."]),
        ("It costs 3.50 today...  Really?", ["It costs 3.50 today...", "Really?"]),
        ("Well… Yes. Well… no", ["Well…", "Yes.", "Well… no"]),
        ("where is it? i lost it! help", ["where is it?", "i lost it!", "help"]),
        ("i have a dog. he is old.", ["i have a dog.", "he is old."]),
        ("Version 2.0. is out. Good.", ["Version 2.0. is out.", "Good."]),
        ("Visit Example.Com now. Good.", ["Visit Example.Com now.", "Good."]),
        ("1. First. 2. Second.", ["1. First.", "2. Second."]),
        ("The end. ***", ["The end. ***"]),
        ("Wait... What?!  No.", ["Wait...", "What?!", "No."]),
        ("Half \ud800 a pair. Good.", ["Half \ud800 a pair.", "Good."]),
    ],
)
def test_sentences_end_where_people_end_them(text: str, sentences: list[str]) -> None:
    assert split_sentences(text, "en")[0] == sentences


@pytest.mark.parametrize(
    ("language", "text", "sentences"),
    [
        ("de", "Am 3. Oktober ist Feiertag. Gut.", ["Am 3. Oktober ist Feiertag.", "Gut."]),
        ("de-AT", "Im 18. Jahrhundert, z. B. in Wien. Gut.", ["Im 18. Jahrhundert, z. B. in Wien.", "Gut."]),
        ("fr", "M. Dupont est là. Mme. Dupont aussi.", ["M. Dupont est là.", "Mme. Dupont aussi."]),
        ("es", "¿Qué tal? ¡Bien! Vale.", ["¿Qué tal?", "¡Bien!", "Vale."]),
        ("el", "Τι κάνεις; Καλά.", ["Τι κάνεις;", "Καλά."]),
        ("ru", "Это хорошо. Он пришёл.", ["Это хорошо.", "Он пришёл."]),
        ("hy", "Սա լավ է։ Նա եկավ։", ["Սա լավ է։", "Նա եկավ։"]),
        ("ka", "ეს კარგია. ის მოვიდა.", ["ეს კარგია.", "ის მოვიდა."]),
        ("he", "זה טוב. הוא בא.", ["זה טוב.", "הוא בא."]),
        ("ar", "هل أنت بخير؟ نعم. أنا هنا!", ["هل أنت بخير؟", "نعم.", "أنا هنا!"]),
        ("ur", "یہ اچھا ہے۔ کیا تم آؤ گے؟", ["یہ اچھا ہے۔", "کیا تم آؤ گے؟"]),
        ("hi", "यह अच्छा है। वह आया।", ["यह अच्छा है।", "वह आया।"]),
        ("bn", "এটা ভালো। সে এসেছে।", ["এটা ভালো।", "সে এসেছে।"]),
        ("ta", "இது நல்லது. அவர் வந்தார்.", ["இது நல்லது.", "அவர் வந்தார்."]),
        ("my", "ဒါကောင်းတယ်။ သူလာတယ်။", ["ဒါကောင်းတယ်။", "သူလာတယ်။"]),
        ("km", "នេះល្អ។ គាត់មក។", ["នេះល្អ។", "គាត់មក។"]),
        ("am", "ይህ ጥሩ ነው። መጣ።", ["ይህ ጥሩ ነው።", "መጣ።"]),
        ("mn", "ᠡᠨᠡ᠃ ᠲᠡᠷᠡ᠃", ["ᠡᠨᠡ᠃", "ᠲᠡᠷᠡ᠃"]),
        ("ko", "안녕하세요. 잘 지내요?", ["안녕하세요.", "잘 지내요?"]),
        ("zh-Hans", "你好。我很好！你呢？", ["你好。", "我很好！", "你呢？"]),
        ("ja", "これは．それは．", ["これは．", "それは．"]),
        ("", "你好。我很好", ["你好。", "我很好"]),
        ("unknown", "यह अच्छा है। वह आया।", ["यह अच्छा है।", "वह आया।"]),
    ],
)
def test_sentences_are_told_apart_in_every_script(language: str, text: str, sentences: list[str]) -> None:
    assert split_sentences(text, language)[0] == sentences


MARKS = st.text(alphabet=st.sampled_from("aB1 .!?…。।\n\t\"'«(“)"), max_size=60)


@given(MARKS | st.text(max_size=60))
def test_a_cut_text_can_be_joined_to_the_letter(text: str) -> None:
    for sentences, gaps in (split_sentences(text, "en"), as_one_sentence(text)):
        assert join_sentences(sentences, gaps) == text
        assert len(gaps) == len(sentences) + 1
        assert all(sentence == sentence.strip() and sentence for sentence in sentences)
        assert not any(gap.strip() for gap in gaps)


def test_lines_are_never_joined() -> None:
    assert not any("\n" in sentence for sentence in split_sentences("a b\nc.\n\nd e.\nf")[0])


@pytest.mark.parametrize("unit", [".", "!?", "a. ", "A.) ", '. "', ". -", "。", " ", '?"', "a.b", "Mr. ", "\n", "x, "])
def test_time_grows_with_the_length_of_a_text_and_no_faster(unit: str) -> None:
    """A quadratic rule took 10 seconds for 20,000 full stops; now 200,000 take a fraction of one."""
    text = unit * (200_000 // len(unit)) + "x"
    began = time.process_time()
    split_sentences(text, "en")
    list(split_to_fit(text, len, 256, "en"))
    assert time.process_time() - began < 10


# Translations put together


@pytest.mark.parametrize(
    ("text", "translations", "expected"),
    [
        ("你好。你好吗？", ["Hello.", "How are you?"], "Hello. How are you?"),
        ("Hello. How are you?", ["你好。", "你好吗？"], "你好。你好吗？"),
        ("Hello.\nHow are you?", ["你好。", "你好吗？"], "你好。\n你好吗？"),
        ("One.  Two.", ["Eins.", "Zwei."], "Eins.  Zwei."),
        ("One. Two.", ["หนึ่ง", "สอง"], "หนึ่ง สอง"),
        (" One. ", ["Eins."], " Eins. "),
        (" ", [], " "),
    ],
)
def test_translations_are_joined_as_their_language_does(text: str, translations: list[str], expected: str) -> None:
    assert join_translations(translations, split_sentences(text)[1]) == expected


# Sentences that are too long


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("One two. Three four.", ["One two. ", "Three four."]),
        ("one two, three four; five", ["one two, ", "three four; ", "five"]),
        ("一二三四五、六七八九十，百千万", ["一二三四五、六七八九十，", "百千万"]),
        ("one two three four", ["one two ", "three four"]),
        ("1,234,567,890,123", ["1,234,56", "7,890,123"]),
        ("abcdefghijklmnop", ["abcdefgh", "ijklmnop"]),
    ],
)
def test_a_long_text_is_cut_where_it_hurts_least(text: str, pieces: list[str]) -> None:
    assert list(split_to_fit(text, len, 12, "en")) == pieces


@given(MARKS | st.text(max_size=60))
def test_nothing_of_a_long_text_is_left_out(text: str) -> None:
    pieces = list(split_to_fit(text, len, 7, "en"))
    assert "".join(pieces) == text
    assert all(len(piece) <= 7 for piece in pieces)
