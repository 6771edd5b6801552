"""How settings are combined: layers of user input, presets and fitted values become one configuration.

Each layer has a source, and the order of the sources decides which setting wins.
"""

import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any

from multihead.config.fields import check_names, conforms, convert
from multihead.config.presets import preset as preset_settings
from multihead.config.schema import DataConfig, ModelConfig, RunConfig, SearchConfig, Settings, TrainConfig
from multihead.console import Log, say
from multihead.errors import UsageError, did_you_mean

# Settings that may change when a run is resumed; all others are part of its identity.
RESUMABLE_FIELDS = frozenset(
    {
        *("train.steps", "train.minutes", "train.patience"),
        *("train.alpha", "train.log_every", "train.validate_every", "train.bleu_sentences"),
        *("train.save_every", "train.save_minutes", "train.keep_checkpoints", "train.average_checkpoints"),
        *("train.precision", "train.compile", "train.parallel", "train.rank_timeout"),
    }
)

# Settings that were renamed, by their name in format 1 of config.json.
OLD_NAMES = {
    "data.haste": "data.casing_noise",
    "data.licence": "data.license",
    "model.score": "model.attention_score",
    "model.tie": "model.tie_embeddings",
    "train.average": "train.average_checkpoints",
    "train.decay": "train.lr_decay",
    "train.keep": "train.keep_checkpoints",
    "train.start_from": "train.base_model",
}

# Options of the command line that set a field.
OPTIONS = {
    "model.vocab_size": "--vocab-size",
    "train.base_model": "--from",
    "train.new_vocabulary": "--new-vocabulary",
    "data.rehearse": "--rehearse",
    "train.steps": "--steps",
    "train.minutes": "--minutes",
    "data.source_lang": "--source-lang",
    "data.target_lang": "--target-lang",
}

_SECTIONS: Mapping[str, Any] = {"model": ModelConfig, "data": DataConfig, "train": TrainConfig}
_TYPES: Mapping[str, Any] = {
    f"{section}.{field.name}": field.type
    for section, config in _SECTIONS.items()
    for field in dataclasses.fields(config)
}


# Layers


class Source(IntEnum):
    """Where settings come from, lowest priority first."""

    DEFAULT = 0  # of a file's name, of a base model, of the run that is resumed
    PRESET = 1  # a preset that the user named
    FIT = 2  # chosen for the text and the time, where the user named no preset
    FILE = 3  # --config run.toml
    FLAG = 4  # options, --set and the arguments of multihead.train
    FIXED = 5  # a base model's shape, a prepared corpus's vocabulary: a FILE or FLAG must not contradict it


@dataclasses.dataclass(frozen=True, slots=True)
class Layer:
    """Settings from one source."""

    source: Source
    settings: Settings
    name: str  # shown to the user: "preset tiny", "run.toml", "--set"


@dataclasses.dataclass(frozen=True, slots=True)
class Resolved:
    """A configuration, and the layer that set each field that a layer set."""

    config: RunConfig
    origin: Mapping[str, Layer]

    def changes(self, with_defaults: bool = False) -> list[tuple[str, object, str]]:
        """Return (name, value, origin) of every setting that is not the default, or of all settings."""
        defaults = flatten(RunConfig())
        return [
            (name, value, self.origin[name].name if name in self.origin else "default")
            for name, value in flatten(self.config).items()
            if with_defaults or value != defaults[name]
        ]


def resolve(layers: Iterable[Layer]) -> Resolved:
    """Combine layers in the order of their sources; of equal sources the later layer wins."""
    values: dict[str, object] = {}
    origin: dict[str, Layer] = {}
    for layer in sorted(layers, key=lambda layer: layer.source):
        for name, value in layer.settings.items():
            new = parse_value(name, value)
            if layer.source is Source.FIXED and name in origin:
                if values[name] == new:
                    continue  # the layer that the value came from remains its origin
                _refuse_contradiction(name, values[name], origin[name], new, layer)
            values[name], origin[name] = new, layer
    return Resolved(configure(values), origin)


def _refuse_contradiction(name: str, value: object, layer: Layer, fixed: object, fixed_by: Layer) -> None:
    if layer.source in (Source.FILE, Source.FLAG, Source.FIXED):
        raise UsageError(
            f"{fixed_by.name} has {name}={fixed}, but {layer.name} sets {name}={value}; leave that setting out"
        )


def value_of(layers: Iterable[Layer], name: str) -> object | None:
    """Return the value that the layers give a setting, or None if they leave it open."""
    by_priority = sorted(layers, key=lambda layer: layer.source)
    values = [layer.settings[name] for layer in by_priority if name in layer.settings]
    return parse_value(name, values[-1]) if values else None


def user_layers(
    preset: str | None = None,
    run_file: Path | None = None,
    settings: Settings | None = None,
    options: Settings | None = None,
    log: Log = say,
) -> list[Layer]:
    """Return what the user asked for: a preset, a run file, `--set`, and options such as `--steps` by setting.

    This is the only reader of user input: the command line and `multihead.train` both call it. Settings under an old
    name are accepted with a hint. Options that are None were not given.
    """
    given = [(name, value) for name, value in (options or {}).items() if value is not None]
    layers = [
        *([Layer(Source.PRESET, preset_settings(preset), f"preset {preset}")] if preset else []),
        *([Layer(Source.FILE, read_toml(run_file), str(run_file))] if run_file else []),
        Layer(Source.FLAG, settings or {}, "--set"),
        *(Layer(Source.FLAG, {name: value}, OPTIONS[name]) for name, value in given),
    ]
    checked = [_checked(layer, log) for layer in layers if layer.settings]
    return [*checked, *_only_time_limit(checked)]


def _only_time_limit(layers: Sequence[Layer]) -> list[Layer]:
    """If the user limits time but not steps, the steps of a preset do not end the run."""
    asked = [layer for layer in layers if layer.source in (Source.FILE, Source.FLAG)]
    if not value_of(asked, "train.minutes") or value_of(asked, "train.steps") is not None:
        return []
    return [Layer(Source.FLAG, {"train.steps": 0}, "--minutes")]


def _checked(layer: Layer, log: Log) -> Layer:
    """Return a layer with current names and parsed values; what does not exist or has the wrong type is refused."""
    for name in layer.settings:
        if name in OLD_NAMES:
            log(f"{name} is now {OLD_NAMES[name]}")
    settings = {name: parse_value(name, value) for name, value in current_names(layer.settings).items()}
    return dataclasses.replace(layer, settings=settings)


def current_names(settings: Settings) -> Settings:
    """Return settings under their current names."""
    return {OLD_NAMES.get(name, name): value for name, value in settings.items()}


def parse_settings(settings: Iterable[str]) -> Settings:
    """Parse `--set` options: `["train.warmup=8000"]`."""
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not equals:
            raise UsageError(f"--set takes field=value, for example train.warmup=8000; got '{name}'")
    return {name.strip(): value.strip() for name, _, value in pairs}


def read_toml(path: Path) -> Settings:
    """Read a run file (`[train]`, `warmup = 8000`)."""
    import tomllib

    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read the run file {path}: {error}") from None
    loose = [name for name, fields in sections.items() if not isinstance(fields, dict)]
    if loose:
        raise UsageError(f"{path}: '{loose[0]}' must be inside a section such as [model] or [train]")
    return dotted(sections)


# Values


def configure(*layers: Settings, start: RunConfig | None = None) -> RunConfig:
    """Return `start` (by default the paper's base model) with fields replaced, later layers over earlier ones.

    Values may be strings, as on a command line; they are parsed as the field's type.
    """
    values = flatten(start or RunConfig())
    for layer in layers:
        for name, value in layer.items():
            if name not in values:
                raise _unknown(name)
            values[name] = value
    sections = nest({name: parse_value(name, value) for name, value in values.items()})
    return RunConfig(**{section: _SECTIONS[section](**fields) for section, fields in sections.items()})


def search_config(**options: object) -> SearchConfig:
    """Return the search settings that the options describe; those that are None were not given."""
    check_names(options, SearchConfig)
    given = {name: value for name, value in options.items() if value is not None}
    return SearchConfig(**given)  # type: ignore[arg-type]  # checked when it is created


def parse_value(name: str, value: object) -> Any:
    """Return a value as the type of its setting."""
    if name not in _TYPES:
        raise _unknown(name)
    return value if conforms(value, _TYPES[name]) else convert(name, _TYPES[name], value)


def _unknown(name: str) -> UsageError:
    return UsageError(f"there is no setting '{name}'{did_you_mean(name, list(_TYPES))}")


def flatten(config: RunConfig) -> dict[str, Any]:
    """Return every field by its dotted name."""
    return dotted(dataclasses.asdict(config))


def dotted(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return fields of sections by their dotted names."""
    return {f"{section}.{name}": value for section, fields in sections.items() for name, value in fields.items()}


def nest(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the sections of fields that have dotted names."""
    sections: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, field = name.partition(".")
        sections.setdefault(section, {})[field] = value
    return sections
