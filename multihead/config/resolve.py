"""TODO."""

import dataclasses
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from multihead.config.schema import RunConfig, SearchConfig, Settings
from multihead.errors import UsageError, did_you_mean

# What may change when a run goes on; everything else is part of its identity.
RESUMABLE_FIELDS = frozenset(
    {
        *("train.steps", "train.minutes", "train.patience"),
        *("train.alpha", "train.log_every", "train.validate_every", "train.bleu_sentences"),
        *("train.save_every", "train.save_minutes", "train.keep_checkpoints", "train.average_checkpoints"),
        *("train.precision", "train.compile", "train.parallel"),
    }
)


# Settings that were renamed: what format 1 of config.json calls them, and what they are called now.
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


def configure(*layers: Settings, start: RunConfig | None = None) -> RunConfig:
    """`start` (by default the paper's base model) with fields replaced, later layers over earlier ones.

    Values may be strings, as they come from a command line: they are read as the field's type.
    """
    values = flatten(start or RunConfig())
    for layer in layers:
        for name, value in layer.items():
            if name not in values:
                raise UsageError(f"there is no setting '{name}'{did_you_mean(name, list(values))}")
            values[name] = value
    try:
        return TypeAdapter(RunConfig).validate_python(nest(values))
    except ValidationError as error:
        raise UsageError(format_validation_error(error)) from None


def search_config(**options: object) -> SearchConfig:
    """Options of a search, as a command line or a caller gives them."""
    try:
        return SearchConfig(**options)  # type: ignore[arg-type]  # pydantic checks names and values, and says which
    except ValidationError as error:
        raise UsageError(format_validation_error(error)) from None


def format_validation_error(error: ValidationError) -> str:
    """What is wrong with a setting, in a sentence that begins with its name."""
    first = error.errors()[0]
    name = ".".join(map(str, first["loc"]))
    return f"{name} is missing" if first["type"] == "missing" else f"{name}={first['input']}: {first['msg']}"


def flatten(config: RunConfig) -> dict[str, Any]:
    """Every field by its dotted name."""
    return dotted(dataclasses.asdict(config))


def parse_settings(settings: list[str]) -> Settings:
    """`["train.warmup=8000"]` as overrides."""
    pairs = [setting.partition("=") for setting in settings]
    for name, equals, _ in pairs:
        if not equals:
            raise UsageError(f"--set takes field=value, for example train.warmup=8000; got '{name}'")
    return {name.strip(): value.strip() for name, _, value in pairs}


def read_toml(path: Path) -> Settings:
    """A run file (`[train]`, `warmup = 8000`) as overrides."""
    try:
        sections = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"cannot read the run file {path}: {error}") from None
    loose = [name for name, fields in sections.items() if not isinstance(fields, dict)]
    if loose:
        raise UsageError(f"{path}: '{loose[0]}' stands outside of a section such as [model] or [train]")
    return dotted(sections)


def dotted(sections: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {f"{section}.{name}": value for section, fields in sections.items() for name, value in fields.items()}


def nest(values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {}
    for dotted, value in values.items():
        section, _, name = dotted.partition(".")
        sections.setdefault(section, {})[name] = value
    return sections
