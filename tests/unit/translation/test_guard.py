"""The guard with an engine that returns prepared translations."""

from collections.abc import Sequence

import pytest

from multihead.config.schema import DataConfig, SearchConfig
from multihead.text.numerals import numbers
from multihead.text.tokenizer import SubwordTokenizer
from multihead.translation.engine import Hypothesis, SearchResult, Segment
from multihead.translation.guard import Guard, GuardedResult, has_loop

TEXTS = ["Ein Mann fährt mit dem Fahrrad zum Bahnhof.", "A man rides his bike to the station, doesn't he?"] * 5
TOKENIZER = SubwordTokenizer.learn(TEXTS, 400)
SOURCE = "A man rides his bike."


class ScriptedEngine:
    """An engine that returns `first`, and `again` from the second call on. It records the settings of each call."""

    chunk_size, prefetch, concurrent_searches, merges_sentences = 10, 1, 1, True

    def __init__(self, first: str, again: str = "") -> None:
        self.first, self.again = first, again
        self.calls: list[SearchConfig] = []
        self.details: list[bool] = []

    def search(self, segments: Sequence[Segment], config: SearchConfig, details: bool = False) -> list[SearchResult]:
        self.calls.append(config)
        self.details.append(details)
        text = self.first if len(self.calls) == 1 else self.again
        hypothesis = Hypothesis(tokens=TOKENIZER.encode(text) if text else [], log_prob=-1.0, score=-1.0)
        return [SearchResult(finished=[hypothesis]) for _ in segments]


ENGLISH_TO_GERMAN = DataConfig(source_lang="en", target_lang="de")


def guarded(
    engine: ScriptedEngine, source: str, data: DataConfig = ENGLISH_TO_GERMAN, **settings: object
) -> GuardedResult:
    guard = Guard(engine, TOKENIZER, data)
    (result,) = guard.search([Segment(TOKENIZER.encode(source))], SearchConfig(**settings))  # type: ignore[arg-type]
    return result


@pytest.mark.parametrize(
    ("first", "fault", "setting"),
    [
        ("Mann Mann Mann Mann Mann", "loop", "no_repeat"),
        ("", "empty", "min_length"),
        (SOURCE, "copy", "n_best"),
    ],
)
def test_a_faulty_translation_is_searched_again_with_a_setting_against_the_fault(
    first: str, fault: str, setting: str
) -> None:
    engine = ScriptedEngine(first, "Ein Mann")
    result = guarded(engine, SOURCE)
    assert result.candidates[0].text == "Ein Mann"
    assert result.warnings == [f"{fault}: searched again"]
    assert getattr(engine.calls[1], setting) > getattr(engine.calls[0], setting)


@pytest.mark.parametrize(("first", "fault"), [("Mann Mann Mann Mann", "loop"), ("", "empty"), (SOURCE, "copy")])
def test_a_fault_that_remains_is_kept_and_flagged(first: str, fault: str) -> None:
    result = guarded(ScriptedEngine(first, first), SOURCE)
    assert result.candidates[0].text == first
    assert result.warnings[0].startswith(f"{fault}: the ")


@pytest.mark.parametrize("details", [False, True])
@pytest.mark.parametrize("beam", [1, 4])
def test_a_second_search_returns_details_of_every_candidate_that_may_be_chosen(details: bool, beam: int) -> None:
    engine = ScriptedEngine("", "Ein Mann")
    guard = Guard(engine, TOKENIZER, DataConfig(source_lang="en", target_lang="de"))
    guard.search([Segment(TOKENIZER.encode(SOURCE))], SearchConfig(beam=beam), details)
    assert engine.details == [details, details]
    assert [config.n_best for config in engine.calls] == [1, min(2, beam)]


def test_without_the_guard_nothing_is_searched_again() -> None:
    engine = ScriptedEngine("25 Männer fahren", "250 Männer fahren")
    assert guarded(engine, "250 men ride", guard=False).candidates[0].text == "25 Männer fahren"
    assert len(engine.calls) == 1


def test_a_sample_is_flagged_but_not_drawn_again() -> None:
    engine = ScriptedEngine("", "Ein Mann")
    result = guarded(engine, SOURCE, sample=True)
    assert result.warnings == ["empty: the model gave no translation"]
    assert len(engine.calls) == 1


def test_segments_with_the_same_fault_are_searched_together_and_stay_in_order() -> None:
    engine = ScriptedEngine("", "Ein Mann")
    guard = Guard(engine, TOKENIZER, DataConfig(source_lang="en", target_lang="de"))
    results = guard.search(
        [Segment(TOKENIZER.encode(text)) for text in (SOURCE, "A man", "The station")], SearchConfig()
    )
    assert [result.candidates[0].text for result in results] == ["Ein Mann"] * 3
    assert len(engine.calls) == 2


def test_a_source_that_repeats_itself_may_have_such_a_translation() -> None:
    assert guarded(ScriptedEngine("Mann Mann Mann Mann Mann"), "man man man man man").warnings == []


def test_a_name_may_be_copied() -> None:
    assert guarded(ScriptedEngine("Bahnhof"), "Bahnhof").warnings == []


def test_a_missing_number_is_searched_for() -> None:
    engine = ScriptedEngine("25 Männer fahren", "250 Männer fahren")
    result = guarded(engine, "250 men ride")
    assert result.candidates[0].text == "250 Männer fahren"
    assert result.warnings == ["number: searched again"]
    assert engine.calls[1].beam > engine.calls[0].beam


def test_a_number_that_stays_missing_is_flagged() -> None:
    result = guarded(ScriptedEngine("25 Männer fahren", "2500 Männer fahren"), "250 men ride")
    assert result.candidates[0].text == "25 Männer fahren"
    assert result.warnings == ["number: a number of the source is not in the translation"]


def test_a_text_of_numbers_is_flagged_but_not_searched_again() -> None:
    """A model that loses several numbers of a text cannot copy numbers, and a wider search takes four times as long."""
    engine = ScriptedEngine("25 Schrauben", "250 Schrauben zu 12,50")
    result = guarded(engine, "250 bolts at 12.50")
    assert result.warnings == ["number: a number of the source is not in the translation"]
    assert len(engine.calls) == 1


def test_a_number_that_is_spelled_out_is_not_missing() -> None:
    engine = ScriptedEngine("dreihundert Männer und achtundvierzig Frauen")
    assert guarded(engine, "300 men and 48 women").warnings == []
    assert len(engine.calls) == 1


def test_a_copy_is_noticed_if_the_languages_are_not_known() -> None:
    assert guarded(ScriptedEngine(SOURCE, "Ein Mann"), SOURCE, DataConfig()).warnings == ["copy: searched again"]


def test_a_copy_in_one_language_is_no_fault() -> None:
    data = DataConfig(source_lang="en", target_lang="en")
    assert guarded(ScriptedEngine(SOURCE, "Ein Mann"), SOURCE, data).warnings == []


def test_a_copied_sentence_is_noticed_in_a_script_without_spaces() -> None:
    assert guarded(ScriptedEngine("我们在家。", "Ein Mann"), "我们在家。").candidates[0].text == "Ein Mann"


def test_a_copied_text_in_title_case_is_searched_again_in_lower_case() -> None:
    engine = ScriptedEngine("The Man Rides His Bike", "Der Mann fährt Rad")
    result = guarded(engine, "The Man Rides His Bike")
    assert TOKENIZER.decode(result.segment.ids) == "The man rides his bike"
    assert result.candidates[0].text == "Der Mann Fährt Rad"
    assert result.warnings == ["copy: searched again"]


def test_the_translation_of_a_text_in_capitals_is_in_capitals() -> None:
    guard = Guard(ScriptedEngine("Ein Mann fährt groß"), TOKENIZER, ENGLISH_TO_GERMAN)
    (result,) = guard.search([Segment(TOKENIZER.encode("A man rides big"), in_capitals=True)], SearchConfig())
    assert [candidate.text for candidate in result.candidates] == ["EIN MANN FÄHRT GROSS"]


def test_a_retry_is_accepted_if_its_only_fault_is_a_number_and_both_faults_are_flagged() -> None:
    result = guarded(ScriptedEngine("Mann Mann Mann Mann Mann", "Ein Mann"), "250 men ride")
    assert result.candidates[0].text == "Ein Mann"
    assert result.warnings == ["loop: searched again", "number: a number of the source is not in the translation"]


def test_a_translation_with_too_few_tokens_is_flagged() -> None:
    source = "A man rides his bike to the station, doesn't he, and a man rides to the station"
    assert guarded(ScriptedEngine("Ein Mann"), source).warnings == [
        "short: the translation is much shorter than the text"
    ]


def test_a_translation_with_too_few_sentences_is_flagged() -> None:
    engine = ScriptedEngine("Ein Mann fährt mit dem Fahrrad zum Bahnhof und zum Bahnhof.")
    result = guarded(engine, "A man rides. He rides. The bike rides. The station.")
    assert result.warnings == ["short: the translation is much shorter than the text"]


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ([5, 5, 5, 5], True),
        ([1, 2, 1, 2, 1, 2, 1, 2], True),
        ([9, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 7], True),
        ([5, 5, 5], False),
        ([1, 2, 1, 2, 1, 2], False),
        (list(range(50)), False),
        ([], False),
    ],
)
def test_a_loop_is_a_sequence_that_occurs_four_times_in_a_row(tokens: list[int], expected: bool) -> None:
    assert has_loop(tokens) is expected


@pytest.mark.parametrize(
    ("source", "translation"),
    [
        ("It costs 10,000 euros", "Es kostet 10.000 Euro"),
        ("It costs 10,000 euros", "Es kostet 10 000 Euro"),
        ("1.75 meters", "1,75 Meter"),
        ("at 7:45 p.m.", "um 19.45 Uhr"),
        ("3 men", "drei Männer"),
        ("250 men", "٢٥٠ رجلا"),
        ("1987 and 1988", "1988 und 1987"),
    ],
)
def test_a_number_may_be_written_differently(source: str, translation: str) -> None:
    assert numbers(source) <= numbers(translation)


@pytest.mark.parametrize(
    ("source", "translation"), [("250 men", "25 Männer"), ("1987", "1978"), ("20 men", "2 Männer")]
)
def test_a_different_number_is_noticed(source: str, translation: str) -> None:
    assert numbers(source) - numbers(translation)
