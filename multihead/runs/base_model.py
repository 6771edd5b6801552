"""A run that starts from a trained model and has other text, also called fine-tuning: `multihead train --from MODEL`.

What the model is stays: its shape, its vocabulary and, at first, its weights. How it is trained is for the run to say.
"""

from dataclasses import dataclass
from pathlib import Path

from multihead.config.resolve import configure, flatten
from multihead.config.schema import RunConfig, Settings
from multihead.errors import UsageError, UserError
from multihead.interop.hub import find_model, is_on_hub
from multihead.model.transformer import Transformer
from multihead.model.weights import load_model
from multihead.text.tokenizer import SubwordTokenizer

KEPT_DATA = ("data.tokenizer", "data.tree")  # what a vocabulary and a shape say of the text
SHORTLIST_FOLDER = "start"  # folder of a run that keeps the model's shortlist, since the model itself may be removed


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A model to start from."""

    name: str
    folder: Path
    model: Transformer
    tokenizer: SubwordTokenizer
    config: RunConfig

    @property
    def kept(self) -> Settings:
        """What a run cannot change; dropout has no weights."""
        return {name: value for name, value in flatten(self.config).items() if is_fixed(name)}

    def kept_in(self, asked: RunConfig, settings: Settings) -> RunConfig:
        """What was asked for, with the model as it is.

        A preset's shape is passed over; a setting that would make it another model is refused.
        """
        wanted = flatten(asked)
        for name, value in self.kept.items():
            if name in settings and wanted[name] != value:
                raise UsageError(f"--from {self.name}: that model has {name}={value}, not {wanted[name]}")
        languages = {name: wanted[name] or value for name, value in self._languages().items()}
        return configure(self.kept, languages, start=asked)

    def _languages(self) -> Settings:
        return {"data.source_lang": self.config.data.source_lang, "data.target_lang": self.config.data.target_lang}

    def check_vocabulary(self, data: Path) -> None:
        """Refuse a corpus that was prepared for another model."""
        if SubwordTokenizer.load(data / "tokenizer.json").to_json() != self.tokenizer.to_json():
            raise UserError(
                f"the text in {data} was prepared with another vocabulary than that of {self.name}: "
                f"`multihead prepare --from {self.name}` takes the model's"
            )


def is_fixed(name: str) -> bool:
    """Return whether a setting is the model's own."""
    return name in KEPT_DATA or (name.startswith("model.") and name != "model.dropout")


def is_same_model(one: str, other: str) -> bool:
    """Return whether two values of `--from` name one model, as `m` and `./m` do."""
    return one == other or ("" not in (one, other) and _place(one) == _place(other))


def _place(name: str) -> str:
    try:
        return name if is_on_hub(name) else str(find_model(name).resolve())
    except UserError:  # a run resumes without the model that it started from
        return str(Path(name).resolve())


def open_base_model(name: str) -> BaseModel:
    """The model of that name, if it can be trained on."""
    folder = find_model(name)
    model, tokenizer, its_config = load_model(folder)
    if its_config.data.tokenizer == "unigram":
        raise UserError(
            f"--from {name}: an imported model translates, but cannot be trained on: "
            "its vocabulary reads a source and does not cut a target into pieces"
        )
    return BaseModel(name, folder, model, tokenizer, its_config)
