"""The rules that drop pairs, and the report of what was dropped."""

import pytest

from multihead.config.schema import DataConfig
from multihead.data.cleaning import CleaningReport, clean_chunk, typical_ratio
from multihead.data.parallel_text import RawPair
from multihead.text.lines import MAX_LINE_BYTES
from tests import scripts


def cleaned(pairs: list[RawPair], **settings: object) -> tuple[list[tuple[str, str]], CleaningReport]:
    """The pairs that are kept of a corpus in which a side is usually as long as the other."""
    report = CleaningReport()
    kept = clean_chunk(pairs, DataConfig(**settings), ratio=1.0)  # type: ignore[arg-type]  # pydantic checks the values
    report.add(kept)
    lines = kept.text.decode().split("\n")[:-1]
    return list(zip(lines[::2], lines[1::2], strict=True)), report


GOOD: RawPair = (b"A man.", b"Ein Mann.")


@pytest.mark.parametrize(
    ("bad", "rule"),
    [
        ((b"\xff\xfe", b"x"), "bad_utf8"),
        ((b"a\0b", b"ab"), "control"),
        ((b"", b"Ein Mann."), "empty"),
        ((b"A man.", b" \t\r"), "empty"),
        ((b"x" * (MAX_LINE_BYTES + 1), b"Ein Mann."), "too_long"),
        ((b"No.", b"Das ist eine sehr lange Antwort auf eine kurze Frage."), "ratio"),
        ((b"Berlin", b"Berlin"), "copy"),
    ],
)
def test_each_rule_drops_its_pair_and_counts_it(bad: RawPair, rule: str) -> None:
    kept, report = cleaned([GOOD, bad])
    assert kept == [("A man.", "Ein Mann.")]
    assert {name: count for name, count in report.dropped.items() if count} == {rule: 1}
    assert (report.read, report.kept) == (2, 1)
    assert any(line.startswith("dropped 1: ") for line in report.lines())


def test_without_cleaning_only_what_cannot_be_trained_on_is_dropped() -> None:
    pairs: list[RawPair] = [GOOD, GOOD, (b"Berlin", b"Berlin"), (b"", b"x"), (b"No.", b"x" * 200)]
    kept, report = cleaned(pairs, clean=False)
    assert (len(kept), report.dropped["empty"]) == (4, 1)


def test_white_space_around_a_sentence_is_dropped() -> None:
    assert cleaned([(b"  A man. \r", b"\tEin Mann.")])[0] == [("A man.", "Ein Mann.")]


def encoded(pairs: list[tuple[str, str]]) -> list[RawPair]:
    return [(source.encode(), target.encode()) for source, target in pairs]


def dropped_for_length(pairs: list[tuple[str, str]]) -> int:
    raw, config = encoded(pairs), DataConfig()
    return clean_chunk(raw, config, typical_ratio(raw, config)).dropped["ratio"]


@pytest.mark.parametrize("language", scripts.TRANSLATIONS)
def test_no_script_loses_correct_pairs(language: str) -> None:
    pairs = scripts.pairs_with(language)
    assert dropped_for_length(pairs) == 0
    assert dropped_for_length([(target, source) for source, target in pairs]) == 0


@pytest.mark.parametrize("language", scripts.TRANSLATIONS)
def test_pairs_of_very_unequal_length_are_dropped_in_every_script(language: str) -> None:
    """The longest sentence beside the shortest one, in a corpus of which most is right."""
    pairs = scripts.pairs_with(language)
    wrong = [(pairs[0][0], pairs[9][1]), (pairs[9][0], pairs[0][1])]
    assert dropped_for_length(pairs + wrong) == 2


def test_copies_do_not_make_the_typical_ratio() -> None:
    pairs = encoded([*scripts.pairs_with("Chinese"), *[("An untranslated line.", "An untranslated line.")] * 100])
    assert typical_ratio(pairs, DataConfig()) < 0.4


def test_the_tree_beside_a_source_does_not_make_it_longer() -> None:
    pairs: list[RawPair] = [(b"A man rides a bike .\t2 3 0 5 3 3", b"Ein Mann rides a b.")]
    assert typical_ratio(pairs, DataConfig(tree=True)) == 1.0 - 1 / 20


# Unicode normalization

NFD = "cafe\u0301 re\u0301sume\u0301"


def test_both_sides_are_normalized_to_nfc() -> None:
    pairs = encoded([(NFD, f"Das {NFD}")])
    assert cleaned(pairs)[0] == [("café résumé", "Das café résumé")]
    assert cleaned(pairs, unicode="none")[0] == [(NFD, f"Das {NFD}")]


def test_a_line_that_grows_too_long_by_normalization_is_dropped() -> None:
    grows = "\u0958" * (MAX_LINE_BYTES // 3)  # a character of 3 bytes, which are 6 in NFC
    assert cleaned(encoded([(grows, grows + ".")]))[1].dropped["too_long"] == 1
    assert cleaned(encoded([(grows, grows[:-1] + ".")]), unicode="none")[1].kept == 1


def test_the_same_source_may_have_two_translations() -> None:
    assert len(cleaned([(b"Hello.", b"Hallo."), (b"Hello.", b"Guten Tag.")])[0]) == 2
