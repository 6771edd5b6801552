"""What a user asks for: text, a folder to write, and settings as they were given."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from multihead.config.presets import preset
from multihead.config.resolve import Layer, Source, user_layers, value_of
from multihead.config.schema import DataConfig, Settings
from multihead.data import embedded_corpus
from multihead.data.parallel_text import (
    Files,
    ParallelText,
    as_list,
    check_corpus_not_swapped,
    check_not_swapped,
    from_files,
    guess_languages,
)
from multihead.data.readers.corpus import find_pair_languages
from multihead.errors import UsageError
from multihead.tasks.task import Task

MODEL_VOCAB = "model.vocab_size"
BASE_MODEL = "train.base_model"
NEW_VOCABULARY = "train.new_vocabulary"
REHEARSE = "data.rehearse"
TASK_PRESET = "tiny"  # on which the settings of tasks build
LANGUAGES = ("data.source_lang", "data.target_lang")


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingRequest:
    """The input of `multihead train`, `plan` and `prepare`; without any text it is the embedded corpus.

    Settings are parsed and checked when a request is made.
    """

    output: Path
    source: Files | None = None  # one corpus, or several
    target: Files | None = None
    corpora: Sequence[Path] = ()  # files that contain both sides, such as TMX
    weights: Sequence[float] = ()  # how often the pairs of each source, then of each corpus, occur in an epoch; or 1
    valid_source: Path | None = None
    valid_target: Path | None = None
    data: Path | None = None  # a corpus made by `multihead prepare`
    task: Task | None = None  # a task in place of text
    preset: str | None = None
    run_file: Path | None = None  # TOML
    settings: Settings = field(default_factory=dict)  # of --set, by dotted name
    options: Settings = field(default_factory=dict)  # of options such as --steps, by dotted name; None: not given
    layers: list[Layer] = field(init=False, repr=False, compare=False)  # the four above

    def __post_init__(self) -> None:
        for one, other in (("source", "target"), ("valid_source", "valid_target")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise UsageError(f"--{one} and --{other} must be given together".replace("_", "-"))
        if self.data and (self.has_text or self.valid_source):
            raise UsageError("--data is a prepared corpus; --source, --corpus and --valid-source exclude it")
        if self.valid_source and not self.has_text:
            raise UsageError("--valid-source requires --source or --corpus")
        layers = user_layers(self.preset, self.run_file, self.settings, self.options)
        if self.task:
            layers = [*self._task_layers(self.task, layers), *layers]
        object.__setattr__(self, "layers", layers)

    def _task_layers(self, task: Task, layers: Sequence[Layer]) -> list[Layer]:
        """Return the settings of a task, over which a preset that the user names wins."""
        if self.source or self.corpora or self.data:
            raise UsageError("a task has its own text; --source, --corpus and --data exclude it")
        for name, option in ((MODEL_VOCAB, "--vocab-size"), (BASE_MODEL, "--from")):
            if value_of(layers, name):
                raise UsageError(f"a task has its own vocabulary, so {option} cannot be given with it")
        own = Layer(Source.PRESET, task.settings, f"task {task.name}")
        if self.preset:
            return [own]
        object.__setattr__(self, "preset", TASK_PRESET)
        return [Layer(Source.PRESET, preset(TASK_PRESET), f"preset {TASK_PRESET}"), own]

    @property
    def has_text(self) -> bool:
        """Whether the user gave text to prepare."""
        return bool(self.source or self.corpora or self.task)

    def text(self, languages: Sequence[str] = ()) -> ParallelText:
        """Return the raw text to prepare; `languages` choose the sides of corpora that contain both."""
        if self.task:
            return self.task.text
        if not self.has_text:
            return embedded_corpus.embedded_text()
        valid = (self.valid_source, self.valid_target) if self.valid_source and self.valid_target else None
        return from_files(self.source, self.target, valid, self.weights, self.corpora, languages)

    def check_languages(self, data: DataConfig) -> None:
        """Refuse files whose languages are those of the run, but the other way round."""
        pairs = list(zip(as_list(self.source or []), as_list(self.target or []), strict=False))
        if self.valid_source and self.valid_target:
            pairs.append((self.valid_source, self.valid_target))
        for source, target in pairs:
            if source.is_file() and target.is_file():  # a missing file is refused when it is opened
                check_not_swapped(source, target, data.source_lang, data.target_lang)
        for file in self.corpora:
            if file.is_file():
                check_corpus_not_swapped(file, data.languages)

    def language_layer(self) -> Layer:
        """Return the languages that the names of the files tell; those of a prepared corpus are recorded in it."""
        if self.data:
            return Layer(Source.DEFAULT, {}, "corpus")
        if self.task:
            return Layer(Source.DEFAULT, {}, f"task {self.task.name}")
        if not self.has_text:
            return Layer(Source.DEFAULT, embedded_corpus.LANGUAGES, "embedded corpus")
        if not self.source or not self.target:
            given = [str(value_of(self.layers, name) or "") for name in LANGUAGES]
            codes = find_pair_languages(self.corpora[0], given)
            return Layer(Source.DEFAULT, dict(zip(LANGUAGES, codes, strict=True)), self.corpora[0].name)
        known = {name: code for name, code in guess_languages(self.source, self.target).items() if code}
        return Layer(Source.DEFAULT, known, "file names")
