"""The sentence pairs that come with the package."""

import gzip
import hashlib
import re
from collections import Counter
from pathlib import Path

import pytest

from multihead.data import embedded_corpus
from multihead.data.embedded_corpus import DESCRIPTION, embedded_pairs
from multihead.errors import UserError

TRAIN, VALID, TEST = embedded_pairs("train"), embedded_pairs("valid"), embedded_pairs("test")


def words(sentence: str) -> list[str]:
    return re.findall(r"[\w'-]+", sentence.lower())


@pytest.mark.parametrize(("pairs", "size"), [(TRAIN, 40_000), (VALID, 500), (TEST, 500)])
def test_each_split_has_its_size(pairs: list[tuple[str, str]], size: int) -> None:
    assert len(pairs) == size


def test_the_corpus_is_the_same_everywhere_and_does_not_change_unnoticed() -> None:
    text = "\n".join(f"{english}\t{german}" for english, german in TRAIN + VALID + TEST)
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert digest == "26e3a6161777b3ed06b2eeea1deb9185b06dde65a3733c5b1b6ea67e22bd0d2f"


def test_no_english_sentence_occurs_twice() -> None:
    assert len({english for english, _ in TRAIN + VALID + TEST}) == 41_000


def test_no_german_sentence_occurs_twice() -> None:
    assert len({german for _, german in TRAIN + VALID + TEST}) == 41_000


@pytest.mark.parametrize("side", [0, 1], ids=["English", "German"])
def test_no_split_has_a_sentence_of_another(side: int) -> None:
    train, valid, test = ({pair[side] for pair in pairs} for pairs in (TRAIN, VALID, TEST))
    assert not (train & valid or train & test or valid & test)


@pytest.mark.parametrize("side", [0, 1], ids=["English", "German"])
def test_every_word_to_validate_or_test_occurs_several_times_in_training(side: int) -> None:
    known = Counter(word for pair in TRAIN for word in words(pair[side]))
    assert min(known[word] for pair in VALID + TEST for word in words(pair[side])) >= 4


def test_every_sentence_begins_with_a_capital_and_ends_with_a_full_stop_or_question_mark() -> None:
    sentence = re.compile(r"[A-ZÄÖÜ][\w ,'-]*\w[.?]")
    assert [text for pair in TRAIN + VALID + TEST for text in pair if not sentence.fullmatch(text)] == []


def test_both_sentences_of_a_pair_are_questions_or_neither_is() -> None:
    assert [pair for pair in TRAIN if pair[0].endswith("?") != pair[1].endswith("?")] == []


def test_no_words_are_missing_between_spaces_or_before_commas() -> None:
    assert [pair for pair in TRAIN if re.search(r"  | [,.?]", " ".join(pair))] == []


def test_sentences_are_short() -> None:
    assert max(len(words(text)) for pair in TRAIN for text in pair) <= 20


def test_the_description_says_what_the_corpus_is_not() -> None:
    assert "not collected text" in DESCRIPTION


@pytest.mark.parametrize(
    "pattern",
    [
        "^(Heute|Gestern|Morgen) [a-zä]+ ",
        "^Wenn .*, (wird|werde|wirst|werden|kann|kannst|können) ",
        ", dass .*[a-zß]t\\.$",
        ", weil .* (muss|musst|müssen)\\.$",
        ", ob ",
        " (ist|bin|bist|sind) .*ge[a-z]+en\\.$",
        " zu [a-z]+en\\.$",
        ", (der|die) .*, (ist|sind) ",
        " um halb ",
        "undzwanzig ",
        " kein(e|en)? ",
        " nicht ",
        " als dies",
    ],
)
def test_the_corpus_exercises_every_construction_often(pattern: str) -> None:
    assert sum(bool(re.search(pattern, german)) for _, german in TRAIN) > 100


@pytest.mark.parametrize("content", [b"not gzip", gzip.compress(b"Hello.\tHallo.\n")], ids=["damaged", "changed"])
def test_a_damaged_or_changed_file_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes
) -> None:
    monkeypatch.setattr(embedded_corpus, "FOLDER", tmp_path)
    (tmp_path / "test.tsv.gz").write_bytes(content)
    with pytest.raises(UserError, match=r"test\.tsv\.gz.*install multihead again"):
        embedded_pairs("test")
