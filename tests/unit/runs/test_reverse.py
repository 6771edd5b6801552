"""The run of the opposite direction, whose model translates back."""

from dataclasses import replace
from pathlib import Path

import pytest

from multihead.config.resolve import resolve, value_of
from multihead.runs.request import TrainingRequest
from multihead.runs.reverse import find_reverse, reverse_request

REQUEST = TrainingRequest(output=Path("run"), source=Path("a.en"), target=Path("a.de"))


def reverse_of(**changes: object) -> TrainingRequest:
    request = replace(REQUEST, **changes)  # type: ignore[arg-type]
    return reverse_request(request, Path("run/reverse"), ("en", "de"))


def test_both_sides_and_the_languages_change_places() -> None:
    reverse = reverse_of(valid_source=Path("v.en"), valid_target=Path("v.de"), settings={"data.source_lang": "en"})
    assert (reverse.source, reverse.target) == (Path("a.de"), Path("a.en"))
    assert (reverse.valid_source, reverse.valid_target) == (Path("v.de"), Path("v.en"))
    assert resolve(reverse.layers).config.data.languages == ["de", "en"]


@pytest.mark.parametrize(
    ("options", "steps", "minutes"),
    [
        ({"options": {"train.steps": 2000}}, 500, None),
        ({"settings": {"train.steps": 2}}, 1, None),
        ({"preset": "base"}, 25_000, None),
        ({}, 5000, None),
        ({"options": {"train.minutes": 20.0}}, 0, 5.0),
        ({"options": {"train.minutes": 20.0, "train.steps": 400}}, 100, 5.0),
    ],
)
def test_it_has_a_quarter_of_the_steps_and_of_the_time(
    options: dict[str, object], steps: int, minutes: float | None
) -> None:
    layers = reverse_of(**options).layers
    assert value_of(layers, "train.steps") == steps
    assert value_of(layers, "train.minutes") == minutes


def test_a_corpus_with_both_sides_is_read_in_the_other_direction() -> None:
    table = Path("a.tsv")
    reverse = reverse_of(source=None, target=None, corpora=[table], languages=[("en", "de")])
    assert list(reverse.languages) == [("de", "en")]


def test_validation_text_of_several_directions_is_not_turned_around() -> None:
    assert reverse_of(both_ways=True, valid_source=Path("v.en"), valid_target=Path("v.de")).valid_source is None


def test_a_base_model_of_one_direction_does_not_translate_back() -> None:
    request = replace(REQUEST, options={"train.base_model": "en-de"})
    assert find_reverse(request, ("en", "de")) is None
    assert find_reverse(REQUEST, ("en", "de")) is None
    assert value_of(reverse_request(request, Path("run/reverse"), ("en", "de")).layers, "train.base_model") == "en-de"
