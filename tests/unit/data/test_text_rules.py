"""Rules about the characters of a pair: each finds its fault, can be turned off, and keeps correct pairs."""

from typing import Any

import pytest

from multihead.config.schema import DataConfig
from multihead.data.cleaning import CleaningReport, clean_chunk, scripts_of
from multihead.data.parallel_text import RawPair
from tests import scripts

GOOD = ("Where is the station?", "Wo ist denn der Bahnhof?")
FAULTS = [
    ("letters", {"min_letters": 0.0}, ("Where is the station?", "*** --- 1 --- 4 --- ***")),
    ("long_word", {"max_word": 0}, ("x " * 60, f"{'Donau' * 21}")),
    ("mojibake", {"drop_mojibake": False}, ("The beautiful girl.", "Das schÃ¶ne MÃ¤dchen.")),
    ("mojibake", {"drop_mojibake": False}, ("It is good.", "Es ist â€žgutâ€œ.")),
    ("mojibake", {"drop_mojibake": False}, ("The beautiful girl.", "Das sch\ufffdne M\ufffddchen.")),
    ("script", {"drop_script": False}, ("Where is the station?", "Где находится вокзал?")),
    ("numbers", {"drop_numbers": False}, ("It was in 1987.", "Das war im Jahr 1978.")),
]


def dropped(pairs: list[tuple[str, str]], **settings: Any) -> dict[str, int]:
    raw: list[RawPair] = [(one.encode(), other.encode()) for one, other in pairs]
    config = DataConfig(**{"drop_numbers": True, **settings})
    usual = scripts_of([(one.encode(), other.encode()) for one, other in [GOOD] * 50], config)
    found = clean_chunk(raw, config, ratio=1.0, scripts=usual)
    return {name: n for name, n in found.dropped.items() if n}


@pytest.mark.parametrize(("rule", "off", "pair"), FAULTS)
def test_each_rule_drops_its_fault_unless_it_is_off(rule: str, off: dict[str, Any], pair: tuple[str, str]) -> None:
    assert dropped([GOOD, pair]) == {rule: 1}
    assert dropped([GOOD, pair], **off) == {}
    assert dropped([GOOD, pair], clean=False) == {}


@pytest.mark.parametrize(
    "pair",
    [
        ("1 2 3", "3 2 1"),  # text without letters on both sides
        ("On 24/12/2024 at 10:30.", "Am 24.12.2024 um 10.30 Uhr."),
        ("It costs 1,000,000 dollars.", "Das kostet 1.000.000 Dollar."),
        ("SÃO PAULO is a town.", "SÃO PAULO ist eine Stadt."),
        ("The letter Ω is Greek.", "Der Buchstabe Ω ist griechisch."),
        ("See https://example.org/a-path/that-is/quite-long.", "Siehe https://example.org/a-path/that-is/quite-long!"),
        ("It is 25°C, “warm”…", "Es ist 25 °C, „warm“…"),
    ],
)
def test_correct_pairs_are_kept(pair: tuple[str, str]) -> None:
    assert dropped([pair]) == {}


@pytest.mark.parametrize("language", scripts.TRANSLATIONS)
def test_no_script_loses_correct_pairs(language: str) -> None:
    raw: list[RawPair] = [(one.encode(), other.encode()) for one, other in scripts.pairs_with(language)]
    config = DataConfig(max_ratio=50.0)
    assert not clean_chunk(raw, config, ratio=1.0, scripts=scripts_of(raw, config)).dropped


def test_examples_of_each_rule_are_kept_up_to_a_limit() -> None:
    report = CleaningReport()
    for _ in range(3):
        raw: list[RawPair] = [(b"Girl\there", "Das MÃ¤dchen hier".encode())] * 15 + [(b"", b"x")]
        report.add(clean_chunk(raw, DataConfig(), ratio=1.0))
    rows = report.examples_table().splitlines()
    assert rows[0] == "reason\tsource\ttarget"
    assert [row.split("\t")[0] for row in rows[1:]] == ["empty"] * 3 + ["mojibake"] * 20
    assert rows[-1] == "mojibake\tGirl here\tDas MÃ¤dchen hier"
