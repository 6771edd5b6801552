"""What a user asks for: text, a folder to write, and settings as they were given."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from multihead.config.directions import Languages, languages_of
from multihead.config.presets import preset
from multihead.config.resolve import Layer, Source, user_layers, value_of
from multihead.config.schema import DataConfig, Settings
from multihead.data import embedded_corpus
from multihead.data.corpus_languages import among, corpus_languages
from multihead.data.directions import ways_of
from multihead.data.parallel_text import (
    Files,
    ParallelText,
    SeveralLanguages,
    as_list,
    check_corpus_not_swapped,
    check_not_swapped,
    from_files,
    guess_languages,
    in_several_directions,
)
from multihead.errors import UsageError, UserError
from multihead.tasks.task import Task
from multihead.text.file_formats import check_is_text
from multihead.text.language import name_of

MODEL_VOCAB = "model.vocab_size"
BASE_MODEL = "train.base_model"
NEW_VOCABULARY = "train.new_vocabulary"
REHEARSE = "data.rehearse"
TASK_PRESET = "tiny"  # on which the settings of tasks build
LANGUAGES = ("data.source_lang", "data.target_lang")
DIRECTIONS = "data.directions"
UNKNOWN_LANGUAGES: Languages = ("", "")


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
    valid_source: Files | None = None  # one pair of files, or one for each direction
    valid_target: Files | None = None
    both_ways: bool = False  # a model that translates in the other direction as well
    languages: Sequence[Languages] = ()  # of each corpus, or of all; empty: by options, names and headers of files
    data: Path | None = None  # a corpus made by `multihead prepare`
    task: Task | None = None  # a task in place of text
    preset: str | None = None
    run_file: Path | None = None  # TOML
    settings: Settings = field(default_factory=dict)  # of --set, by dotted name
    options: Settings = field(default_factory=dict)  # of options such as --steps, by dotted name; None: not given
    layers: list[Layer] = field(init=False, repr=False, compare=False)  # the four above

    def __post_init__(self) -> None:
        if not self.source or not self.target:
            self._check_formats()
        for one, other in (("source", "target"), ("valid_source", "valid_target")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise UsageError(f"--{one} and --{other} must be given together".replace("_", "-"))
        if self.data and (self.has_text or self.valid_source):
            raise UsageError("--data is a prepared corpus; --source, --corpus and --valid-source exclude it")
        if self.valid_source and not self.has_text:
            raise UsageError("--valid-source requires --source or --corpus")
        if self.both_ways and (self.data or self.task):
            raise UsageError("--both-ways is for text to prepare; --data and --task exclude it")
        if len(self.languages) not in (0, len(as_list(self.source)) + len(self.corpora)):
            raise UsageError("give --source-lang and --target-lang once, or once for every --source and --corpus")
        layers = user_layers(self.preset, self.run_file, self.settings, self.options)
        if self.task:
            layers = [*self._task_layers(self.task, layers), *layers]
        object.__setattr__(self, "layers", layers)

    def _check_formats(self) -> None:
        """Refuse a file such as TMX that is given as one side, and not as the corpus that it is."""
        for option, files in (("--source", self.source), ("--target", self.target)):
            for file in as_list(files or []):
                if file.is_file():
                    check_is_text(file, option, corpus_option="--corpus")

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

    def text(self, data: DataConfig | None = None) -> ParallelText:
        """Return the raw text to prepare; the settings say which languages and directions the run has."""
        data = data or DataConfig()
        if self.task:
            return self.task.text
        several = self._several(data) if data.directions else None
        if not self.has_text:
            return in_several_directions(embedded_corpus.embedded_text(), several)
        valid = (self.valid_source, self.valid_target) if self.valid_source and self.valid_target else None
        return from_files(self.source, self.target, valid, self.weights, self.corpora, data.languages, several)

    def corpus_languages(
        self, data: DataConfig | None = None, of_base: Languages = UNKNOWN_LANGUAGES
    ) -> list[Languages]:
        """Return the languages of each corpus; where nothing tells them, those of the settings or of a base model."""
        if not self.has_text:
            return [(str(embedded_corpus.LANGUAGES[LANGUAGES[0]]), str(embedded_corpus.LANGUAGES[LANGUAGES[1]]))]
        sources, targets = as_list(self.source), as_list(self.target)
        given = self.languages or [self._given_languages()]
        try:
            found = corpus_languages(sources, targets, self.corpora, given)
        except UserError:
            if not all(of_base):
                raise
            found = corpus_languages(sources, targets, self.corpora, [of_base])
        default = (data.source_lang, data.target_lang) if data else ("", "")
        return [pair if all(pair) else default for pair in found]

    def _given_languages(self) -> Languages:
        source, target = (str(value_of(self.layers, name) or "") for name in LANGUAGES)
        return source, target

    def _several(self, data: DataConfig) -> SeveralLanguages:
        """Return the languages of all corpora, as the directions of the run name them."""

        def known(pairs: Iterable[Languages]) -> list[Languages]:
            return [self._known(pair, data) for pair in pairs]

        sources, targets = as_list(self.valid_source), as_list(self.valid_target)
        given = self.corpus_languages(data)[:1] if len(sources) == 1 else []
        valid = known(corpus_languages(sources, targets, [], given)) if sources else []
        return SeveralLanguages(corpora=known(self.corpus_languages(data)), both_ways=self.both_ways, valid=valid)

    def _known(self, languages: Languages, data: DataConfig) -> Languages:
        found = [among(languages, data.pairs)]
        if self.both_ways:
            found.append(among(languages[::-1], data.pairs))
        if None in found:
            missing = languages if found[0] is None else languages[::-1]
            raise UsageError(
                f"the text is {name_of(missing[0])} to {name_of(missing[1])}, but the directions of the model are "
                f"{', '.join(data.directions)}"
            )
        return found[0] or languages

    def check_languages(self, data: DataConfig) -> None:
        """Refuse files whose languages are those of the run, but the other way round."""
        pairs = list(zip(as_list(self.source or []), as_list(self.target or []), strict=False))
        valid_pairs = list(zip(as_list(self.valid_source), as_list(self.valid_target), strict=False))
        if data.directions:
            several = self._several(data) if self.has_text else SeveralLanguages(corpora=[])
            files = [*zip(pairs, several.corpora, strict=False), *zip(valid_pairs, several.valid, strict=False)]
            of_corpora = several.corpora[len(pairs) :]
        else:
            files = [(pair, (data.source_lang, data.target_lang)) for pair in [*pairs, *valid_pairs]]
            of_corpora = [(data.source_lang, data.target_lang)] * len(self.corpora)
        for (source, target), languages in files:
            if source.is_file() and target.is_file():  # a missing file is refused when it is opened
                check_not_swapped(source, target, *languages)
        for file, languages in zip(self.corpora, of_corpora, strict=False):
            if file.is_file():
                check_corpus_not_swapped(file, languages)

    def directions(self, of_base: Languages = UNKNOWN_LANGUAGES) -> tuple[str, ...]:
        """Return the directions of a model of several languages; none for one pair of languages."""
        if self.data or self.task or not (self.both_ways or len(as_list(self.source)) + len(self.corpora) > 1):
            return ()
        if any(not file.exists() for file in [*as_list(self.source), *as_list(self.target), *self.corpora]):
            return ()  # refused when it is opened
        found = self.corpus_languages(of_base=of_base)
        if self.both_ways and not all(map(all, found)):
            raise UsageError("--both-ways needs the languages of the text: add --source-lang and --target-lang")
        if not self.both_ways and len(set(found)) == 1:
            return ()
        names = ways_of(len(found), found, self.both_ways)
        return tuple(dict.fromkeys(way.direction for way in names))

    def language_layer(self, of_base: Languages = UNKNOWN_LANGUAGES) -> Layer:
        """Return the languages that the names of the files tell; those of a prepared corpus are recorded in it.

        A table that names no languages has those of the base model.
        """
        if self.data:
            return Layer(Source.DEFAULT, {}, "corpus")
        if self.task:
            return Layer(Source.DEFAULT, {}, f"task {self.task.name}")
        if directions := self.directions(of_base):
            first = languages_of(directions[0])
            settings = dict(zip(LANGUAGES, first, strict=True)) | {DIRECTIONS: directions}
            return Layer(Source.DEFAULT, settings, "corpora")
        if not self.has_text:
            return Layer(Source.DEFAULT, embedded_corpus.LANGUAGES, "embedded corpus")
        if not self.source or not self.target:
            codes = self.corpus_languages(of_base=of_base)[0]
            return Layer(Source.DEFAULT, dict(zip(LANGUAGES, codes, strict=True)), self.corpora[0].name)
        known = {name: code for name, code in guess_languages(self.source, self.target).items() if code}
        return Layer(Source.DEFAULT, known, "file names")
