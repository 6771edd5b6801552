"""Layers of settings: which one wins, where a value comes from, and what is refused."""

from pathlib import Path

import pytest

from multihead.config.resolve import OLD_NAMES, Layer, Source, flatten, resolve, user_layers, value_of
from multihead.config.schema import RunConfig
from multihead.config.serialization import from_json
from multihead.errors import UsageError


def layer(source: Source, **settings: object) -> Layer:
    return Layer(source, {f"train.{name}": value for name, value in settings.items()}, source.name.lower())


def test_a_later_source_wins_in_whatever_order_the_layers_come() -> None:
    layers = [layer(source, warmup=source.value + 1) for source in Source if source < Source.FIXED]
    for shuffled in (layers, layers[::-1]):
        resolved = resolve(shuffled)
        assert resolved.config.train.warmup == Source.FLAG + 1
        assert resolved.origin["train.warmup"].source is Source.FLAG


def test_of_layers_with_the_same_source_the_last_one_wins() -> None:
    assert resolve([layer(Source.FLAG, steps=1), layer(Source.FLAG, steps=2)]).config.train.steps == 2


def test_only_settings_that_are_not_the_default_are_listed_with_their_origin() -> None:
    resolved = resolve([layer(Source.PRESET, warmup=100, steps=100_000), layer(Source.FLAG, seed="7")])
    assert resolved.changes() == [("train.warmup", 100, "preset"), ("train.seed", 7, "flag")]


@pytest.mark.parametrize("source", [Source.FILE, Source.FLAG])
def test_what_the_user_sets_must_not_contradict_what_is_fixed(source: Source) -> None:
    fixed = Layer(Source.FIXED, {"train.warmup": 5}, "the base model en-de")
    with pytest.raises(UsageError, match=r"en-de has train\.warmup=5, but \w+ sets train\.warmup=6"):
        resolve([fixed, layer(source, warmup="6")])
    assert resolve([fixed, layer(source, warmup="5")]).origin["train.warmup"].source is source


@pytest.mark.parametrize("source", [Source.DEFAULT, Source.PRESET, Source.FIT])
def test_what_is_fixed_replaces_what_nobody_asked_for(source: Source) -> None:
    resolved = resolve([layer(source, warmup=6), layer(Source.FIXED, warmup=5)])
    assert resolved.config.train.warmup == 5
    assert resolved.origin["train.warmup"].source is Source.FIXED


def test_the_value_that_wins_is_parsed_and_an_open_one_is_none() -> None:
    layers = [layer(Source.FLAG, steps="12"), layer(Source.PRESET, steps=3)]
    assert value_of(layers, "train.steps") == 12
    assert value_of(layers, "train.minutes") is None


def test_user_input_is_read_in_one_place(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[train]\nsteps = 1\nseed = 3\nwarmup = 9\n", encoding="utf-8")
    options = {"train.steps": 5, "train.minutes": None}
    resolved = resolve(user_layers("tiny", file, {"train.steps": "2", "train.seed": "4"}, options))
    assert (resolved.config.train.steps, resolved.config.train.seed, resolved.config.train.warmup) == (5, 4, 9)
    names = {name: layer.name for name, layer in resolved.origin.items()}
    assert names["train.steps"] == "--steps"
    assert names["train.seed"] == "--set"
    assert names["train.warmup"] == str(file)
    assert names["model.d_model"] == "preset tiny"


@pytest.mark.parametrize("old", sorted(OLD_NAMES))
def test_an_old_name_is_accepted_with_a_hint(old: str) -> None:
    hints: list[str] = []
    value = flatten(RunConfig())[OLD_NAMES[old]]
    (given,) = user_layers(settings={old: value}, log=hints.append)
    assert given.settings == {OLD_NAMES[old]: value}
    assert hints == [f"{old} is now {OLD_NAMES[old]}"]


def test_an_old_name_in_a_run_file_is_accepted(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[train]\nkeep = 7\n", encoding="utf-8")
    assert resolve(user_layers(run_file=file, log=lambda line: None)).config.train.keep_checkpoints == 7


def test_old_names_in_config_json_are_read_without_a_hint(capsys: pytest.CaptureFixture[str]) -> None:
    text = '{"format": 1, "train": {"keep": 7, "decay": "linear"}, "model": {"score": "dot"}, "data": {"haste": 0.1}}'
    config = from_json(text, Path("config.json"))
    assert (config.train.keep_checkpoints, config.train.lr_decay) == (7, "linear")
    assert (config.model.attention_score, config.data.casing_noise) == ("dot", 0.1)
    assert not "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"train.warmpu": 1}, "did you mean 'train.warmup'"),
        ({"train.warmup": "soon"}, "train.warmup=soon must be a whole number"),
        ({"warmup": 1}, "there is no setting 'warmup'"),
    ],
)
def test_a_wrong_setting_is_refused_as_soon_as_it_is_read(settings: dict[str, object], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        user_layers(settings=settings)
