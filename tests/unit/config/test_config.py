"""Settings: the paper's defaults, presets, and every way to get one wrong."""

import json
from pathlib import Path

import pytest

from multihead.config.fit import dropout_for
from multihead.config.presets import PRESETS, preset
from multihead.config.resolve import configure, flatten, parse_settings, read_toml
from multihead.config.schema import DataConfig, ModelConfig, RunConfig, TrainConfig
from multihead.config.serialization import from_json, to_json
from multihead.errors import UsageError, UserError


def test_the_defaults_are_the_papers_base_model() -> None:
    model, train = ModelConfig(), TrainConfig()
    assert (model.encoder_layers, model.decoder_layers, model.d_model, model.d_ff) == (6, 6, 512, 2048)
    assert (model.n_heads, model.d_k, model.d_v, model.dropout, model.norm) == (8, 64, 64, 0.1, "post")
    assert (train.beta1, train.beta2, train.eps, train.warmup, train.label_smoothing) == (0.9, 0.98, 1e-9, 4000, 0.1)
    assert (train.steps, DataConfig().batch_tokens, train.average_checkpoints) == (100_000, 25_000, 5)


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_every_preset_is_a_valid_configuration(name: str) -> None:
    assert isinstance(configure(preset(name)), RunConfig)


def test_big_is_the_papers_big_model() -> None:
    big = configure(preset("big"))
    assert (big.model.d_model, big.model.d_ff, big.model.n_heads, big.model.dropout) == (1024, 4096, 16, 0.3)
    assert (big.train.steps, big.train.average_checkpoints) == (300_000, 20)


def test_small_and_tiny_have_the_promised_shapes() -> None:
    small, tiny = configure(preset("small")).model, configure(preset("tiny")).model
    assert (small.encoder_layers, small.decoder_layers, small.d_model, small.d_ff, small.n_heads) == (
        3,
        3,
        256,
        1024,
        4,
    )
    assert (tiny.encoder_layers, tiny.decoder_layers, tiny.d_model, tiny.d_ff, tiny.n_heads) == (4, 4, 128, 256, 4)


def test_later_layers_of_settings_win() -> None:
    assert configure(preset("big"), {"model.dropout": 0.1}).model.dropout == 0.1


def test_strings_are_read_as_the_type_of_the_field() -> None:
    config = configure({"train.warmup": "8000", "model.dropout": "0.3", "data.clean": "false"})
    assert (config.train.warmup, config.model.dropout, config.data.clean) == (8000, 0.3, False)


def test_a_mistyped_setting_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"no setting 'train.warmpu'; did you mean 'train.warmup'\?"):
        configure({"train.warmpu": 1})


def test_a_mistyped_preset_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(UsageError, match=r"no preset 'smal'; did you mean 'small'\?"):
        preset("smal")


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"train.warmup": "soon"}, "train.warmup=soon"),
        ({"model.dropout": 1.0}, "model.dropout=1.0"),
        ({"model.norm": "middle"}, "model.norm=middle"),
        ({"train.steps": 0}, "train.steps=0"),
        ({"train.lr_scale": "nan"}, "train.lr_scale"),
        ({"data.batch_tokens": 100}, "data.max_length"),
        ({"data.max_length": 1024}, "model.max_len"),
        ({"train.average_checkpoints": 9}, "train.keep_checkpoints"),
        ({"data.tokenizer": "wordpiece", "data.bpe_dropout": 0.1}, "bpe_dropout"),
        ({"model.pad_id": 40_000}, "pad_id"),
    ],
)
def test_an_impossible_value_is_refused_by_name(settings: dict[str, object], word: str) -> None:
    with pytest.raises(UsageError, match=word.replace(".", r"\.")):
        configure(settings)


def test_settings_on_the_command_line_are_field_equals_value() -> None:
    assert parse_settings(["train.warmup=8000", "data.source_lang = en"]) == {
        "train.warmup": "8000",
        "data.source_lang": "en",
    }
    with pytest.raises(UsageError, match="field=value"):
        parse_settings(["train.warmup"])


def test_a_run_file_is_toml(tmp_path: Path) -> None:
    file = tmp_path / "run.toml"
    file.write_text("[train]\nwarmup = 8000\n", encoding="utf-8")
    assert configure(read_toml(file)).train.warmup == 8000
    for broken in ("warmup = 8000", "[train\n"):
        file.write_text(broken, encoding="utf-8")
        with pytest.raises(UsageError, match=r"run\.toml"):
            read_toml(file)
    with pytest.raises(UsageError, match="missing"):
        read_toml(tmp_path / "missing.toml")


@pytest.mark.parametrize("name", ["en-de", "multi30k-fr", "multi30k-fr-second"])
def test_every_recipe_is_a_valid_run_file(name: str) -> None:
    recipe = read_toml(Path(__file__).parents[3] / "benchmarks" / "recipes" / f"{name}.toml")
    assert recipe.items() <= flatten(configure(recipe)).items()


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_configuration_survives_its_json(name: str) -> None:
    config = configure(preset(name))
    assert from_json(to_json(config), Path("config.json")) == config


def test_a_config_json_from_before_normalization_means_none() -> None:
    document = json.loads(to_json(RunConfig()))
    assert document["data"].pop("unicode") == "nfc"
    assert from_json(json.dumps(document), Path("config.json")).data.unicode == "none"


def test_config_json_of_a_newer_format_is_refused_by_name() -> None:
    document = json.loads(to_json(RunConfig())) | {"format": 99}
    with pytest.raises(UserError, match="format 99"):
        from_json(json.dumps(document), Path("config.json"))


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"format": 1, "model": {"d_mode": 1}}', '{"format": 1, "x": {"y": 1}}']
)
def test_a_broken_config_json_is_refused_by_name(text: str) -> None:
    with pytest.raises(UserError, match=r"here/config\.json"):
        from_json(text, Path("here/config.json"))


def test_the_preset_for_small_texts_is_larger_and_soon_reads_each_pair_twice() -> None:
    thorough, tiny = configure(preset("thorough")), configure(preset("tiny"))
    assert thorough.model.d_model > tiny.model.d_model
    assert (thorough.train.r_drop, tiny.train.r_drop) == (3.0, 0.0)
    assert 0 < thorough.train.r_drop_from < 0.5  # each pair is read plainly at first


def test_dropout_grows_with_how_often_a_small_text_is_seen() -> None:
    """Nothing is memorized in three epochs."""
    assert [dropout_for(epochs, is_small=True) for epochs in (3, 6, 10, 40, 100)] == [0.0, 0.1, 0.15, 0.2, 0.3]
    assert [dropout_for(epochs, is_small=False) for epochs in (3, 6, 40, 100)] == [0.0, 0.1, 0.2, 0.2]


def test_every_field_has_a_dotted_name() -> None:
    names = flatten(RunConfig())
    assert names["train.warmup"] == 4000
    assert all(name.split(".")[0] in ("model", "data", "train") for name in names)
