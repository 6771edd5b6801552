"""Fine-tuning: the base model that a run starts from (`multihead train --from MODEL`).

Its shape, vocabulary and initial weights are the model's; how it is trained is up to the run. An imported model keeps
the original files of its vocabulary, so that the fine-tuned one can be exported to where it came from. With
`--new-vocabulary` the vocabulary is that of the new text.
"""

import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from multihead.config.directions import Languages
from multihead.config.fit import for_fine_tuning
from multihead.config.resolve import Layer, Source, flatten
from multihead.config.schema import RunConfig, Settings
from multihead.errors import UserError
from multihead.interop.hub import find_model, is_on_hub
from multihead.interop.marian.format import ORIGIN, read_original
from multihead.interop.marian.importer import trainable
from multihead.runs.new_vocabulary import transfer
from multihead.storage.arrays import Arrays
from multihead.storage.model_folder import ModelFolder
from multihead.text.tokenizer import SubwordTokenizer

FIXED_DATA_FIELDS = (
    "data.tokenizer",
    "data.tree",
    "data.directions",
)  # of the text, but properties of the vocabulary and the shape
VOCABULARY_FIELDS = ("model.vocab_size", "data.tokenizer", "data.directions")
IMPORTED_DATA_FIELDS = ("data.unicode",)  # an imported vocabulary has its own normalization
SHORTLIST_FOLDER = "start"  # copy of the base model's shortlist in a run, which outlives the base model


@dataclass(frozen=True, slots=True)
class BaseModel:
    """A model to fine-tune."""

    name: str
    folder: Path
    stored: ModelFolder
    tokenizer: SubwordTokenizer
    config: RunConfig
    new_vocabulary: bool = False  # only the layers are fine-tuned

    @property
    def fixed_settings(self) -> Settings:
        """The settings that a run cannot change: all of the shape but dropout, which has no weights."""
        settings = flatten(self.config)
        fixed = {name for name in settings if is_fixed(name)}
        if self.new_vocabulary:
            fixed -= set(VOCABULARY_FIELDS)
        elif self.is_imported:
            fixed |= set(IMPORTED_DATA_FIELDS)
        return {name: value for name, value in settings.items() if name in fixed}

    @property
    def has_one_direction(self) -> bool:
        """Whether its vocabulary cannot say which language to translate into."""
        return not self.new_vocabulary and not self.config.data.directions

    @property
    def languages(self) -> Languages:
        """Its languages, which are also those of text that names none; empty if there are several pairs of them."""
        data = self.config.data
        return ("", "") if data.directions or self.new_vocabulary else (data.source_lang, data.target_lang)

    @property
    def is_imported(self) -> bool:
        """Whether the model has the vocabulary of another program."""
        return self.config.data.tokenizer == "unigram"

    def initial_weights(self, tokenizer: SubwordTokenizer, seed: int) -> Arrays:
        """Return the weights that a run with this vocabulary starts with."""
        weights = self.stored.weights()
        if self.is_imported:
            weights = trainable(weights)
        return transfer(weights, self.tokenizer, tokenizer, seed) if self.new_vocabulary else weights

    def copy_vocabulary_files(self, run: Path) -> None:
        """Copy the original files of an imported vocabulary into the folder of a run."""
        if (origin := self.stored.path / ORIGIN).is_dir():
            shutil.copytree(origin, run / ORIGIN, dirs_exist_ok=True)

    def apply_to(self, layers: Iterable[Layer]) -> list[Layer]:
        """Return the layers of a run that fine-tunes this model."""
        data, name = self.config.data, f"base model {self.name}"
        languages = {"data.source_lang": data.source_lang, "data.target_lang": data.target_lang}
        return [
            Layer(Source.DEFAULT, {} if self.new_vocabulary else languages, name),
            *(self.training_layer(layer) if layer.source is Source.PRESET else layer for layer in layers),
            Layer(Source.FIXED, self.fixed_settings, name),
        ]

    def training_layer(self, preset: Layer) -> Layer:
        """Return a preset without its shape; the embeddings of a new vocabulary are not learned at a low rate."""
        return fine_tuning_layer(preset, self.new_vocabulary)

    def check_vocabulary(self, data: Path) -> None:
        """Refuse a corpus that was prepared with another vocabulary."""
        if not self.new_vocabulary and SubwordTokenizer.load(data / "tokenizer.json").files() != self.tokenizer.files():
            raise UserError(
                f"{data} was prepared with a different vocabulary than {self.name}; prepare it again with "
                f"`multihead prepare --from {self.name}`"
            )


def is_fixed(name: str) -> bool:
    """Return whether a setting is a property of the base model."""
    return name in FIXED_DATA_FIELDS or (name.startswith("model.") and name != "model.dropout")


def fine_tuning_layer(preset: Layer, new_vocabulary: bool = False) -> Layer:
    """Return a preset without its shape and, unless the vocabulary is new, with a lower rate and fewer steps."""
    settings = preset.settings if new_vocabulary else for_fine_tuning(preset.settings)
    settings = {name: value for name, value in settings.items() if not is_fixed(name)}
    return replace(preset, settings=settings, name=f"{preset.name}, fine-tuning")


def is_same_model(one: str, other: str) -> bool:
    """Return whether two values of `--from` name one model, as `m` and `./m` do."""
    return one == other or ("" not in (one, other) and location_of(one) == location_of(other))


def location_of(name: str) -> str:
    """Return a text that is the same for every way of naming a model."""
    try:
        return name if is_on_hub(name) else str(find_model(name).resolve())
    except UserError:  # a run can be resumed after its base model was removed
        return str(Path(name).resolve())


def open_base_model(name: str, new_vocabulary: bool = False) -> BaseModel:
    """Load a model to fine-tune, by its folder or name."""
    folder = find_model(name)
    stored = ModelFolder.open(folder)
    config, tokenizer = stored.config, stored.tokenizer()
    assert stored.n_parameters  # refuses damaged weights before the text is prepared
    if (folder / ORIGIN).is_dir() and not new_vocabulary:
        read_original(folder / ORIGIN, config.model, with_models=False)  # refuses damage likewise
    if not tokenizer.encodes_targets and not new_vocabulary:
        raise UserError(
            f"--from {name}: the model was imported by a version that kept no tokenizer for the target language; "
            "import it again with `multihead import`"
        )
    return BaseModel(name, folder, stored, tokenizer, config, new_vocabulary)
