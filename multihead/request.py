"""What a user asks for, and what it is settled as: text, preset, vocabulary, dropout; a run is a function of that."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from multihead import checkpoint, config, corpus, presets, shortlist, sizing
from multihead.config import ConfigError, Overrides, RunConfig, UserError, configure
from multihead.corpus import Files, ParallelText, Summary, Talk
from multihead.files import replace_text
from multihead.sizing import Speed
from multihead.start import SHORTLIST, Start, is_kept, is_same_model, start_from
from multihead.tokenizer import SubwordTokenizer
from multihead.trainer import learning_rate, training_seconds

SHORT_RUN = 100  # steps; the time of a shorter run is not estimated
MODEL_VOCAB = "model.vocab_size"
START_FROM = "train.start_from"
CORPUS_SUM = "corpus_sha256"  # in the provenance of a run: which prepared corpus it is trained on


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What a user asks for. Without `source` and `data` the embedded corpus is taken."""

    output: Path
    source: Files | None = None  # one corpus, or several
    target: Files | None = None
    weights: Sequence[float] = ()  # how often the pairs of each corpus come in an epoch; once, if nothing is said
    valid_source: Path | None = None
    valid_target: Path | None = None
    data: Path | None = None  # a corpus that `multihead prepare` made
    preset: str | None = None
    settings: Overrides = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one, other in (("source", "target"), ("valid_source", "valid_target")):
            if (getattr(self, one) is None) != (getattr(self, other) is None):
                raise ConfigError(f"--{one} and --{other} go together".replace("_", "-"))
        if self.data and (self.source or self.valid_source):
            raise ConfigError("--data is a corpus that is prepared already: it takes no --source or --valid-source")
        if self.valid_source and not self.source:
            raise ConfigError("--valid-source needs --source")

    def text(self) -> ParallelText:
        if self.source and self.target:
            valid = (self.valid_source, self.valid_target) if self.valid_source and self.valid_target else None
            return corpus.from_files(self.source, self.target, valid, self.weights)
        return corpus.embedded()

    def languages(self) -> Overrides:
        if self.data:
            return {}
        if not self.source or not self.target:
            return corpus.EMBEDDED_LANGUAGES
        return corpus.languages_of(self.source, self.target)


def settled(request: Request, talk: Talk, n_processes: int) -> tuple[RunConfig, Path]:
    """Return the configuration and the corpus of the run in `request.output`, which may have to be begun."""
    return _resume(request) or _begin(request, talk, n_processes)


# A run that exists


def _resume(request: Request) -> tuple[RunConfig, Path] | None:
    """Return the configuration and corpus of an existing run; what would make it a different run is refused."""
    if not (request.output / "config.json").exists():
        return None
    stored = checkpoint.read_config(request.output)
    asked = configure(_preset_of(request, stored), _settings_of(request, stored), start=stored)
    was, now = config.flatten(stored), config.flatten(asked)
    for name in was:
        if was[name] != now[name] and name not in config.CHANGEABLE:
            raise ConfigError(
                f"the run in {request.output} has {name}={was[name]}, not {now[name]}: choose another --output"
            )
    _check_text(request, stored)
    if asked != stored:
        published = checkpoint.read_provenance(request.output), checkpoint.read_search(request.output)
        replace_text(request.output / "config.json", config.to_json(asked, *published))
    return asked, request.output / "data"


def _preset_of(request: Request, stored: RunConfig) -> Overrides:
    """Return what the preset contributed when the run began: fine-tuning takes only how to train from it."""
    if not request.preset:
        return {}
    preset = presets.preset(request.preset)
    if not stored.train.start_from:
        return preset
    return {name: value for name, value in presets.gentler(preset).items() if not is_kept(name)}


def _settings_of(request: Request, stored: RunConfig) -> Overrides:
    """Return the settings, with the model to start from under the name by which the run knows it."""
    name = stored.train.start_from
    is_same = is_same_model(str(request.settings.get(START_FROM, "")), name)
    return {**request.settings, START_FROM: name} if is_same else request.settings


def _check_text(request: Request, stored: RunConfig) -> None:
    """Refuse text other than the run's; a prepared corpus that was moved is linked again."""
    data = request.output / "data"
    folder = request.data or data
    if not request.data and not data.exists():
        raise UserError(f"the text of the run in {request.output} is missing: name its prepared corpus with --data")
    summary = corpus.read_summary(folder)
    known = checkpoint.read_provenance(request.output).get(CORPUS_SUM)
    if not known and (data / "corpus.json").exists():  # a run of an older version
        known = corpus.identity(data)
    same = corpus.identity(folder) == known if known else _has_vocabulary(request.output, stored, folder)
    if not same or (request.source and not summary.is_of(request.text())):
        raise UserError(f"the run in {request.output} was begun with other text: choose another --output")
    if request.data and (data.is_symlink() or not data.exists()):
        _link(data, request.data)


def _has_vocabulary(output: Path, stored: RunConfig, folder: Path) -> bool:
    """Return whether a corpus has the vocabulary of a run whose own corpus is gone and was never recorded."""
    places = [output, *(output / "checkpoints" / f"step-{n}" for n in checkpoint.saved_steps(output / "checkpoints"))]
    found = [place / "tokenizer.json" for place in places if (place / "tokenizer.json").exists()]
    same_size = corpus.read_summary(folder).vocab_size == stored.model.vocab_size
    return same_size and all(file.read_bytes() == (folder / "tokenizer.json").read_bytes() for file in found)


def _link(data: Path, folder: Path) -> None:
    """Make `data` a link to a prepared corpus, in place of any other link."""
    aside = data.with_name(".data.link.partial")
    aside.unlink(missing_ok=True)
    aside.symlink_to(folder.resolve(), target_is_directory=True)
    aside.replace(data)


# A new run


def _begin(request: Request, talk: Talk, n_processes: int) -> tuple[RunConfig, Path]:
    """Prepare the text, and choose what the user left open: the preset and the size of the vocabulary."""
    data = request.output / "data"
    prepared = corpus.read_summary(request.data).prepared_with() if request.data else {}
    # A wrong setting is refused before an hour is spent on the text.
    preset = presets.preset(request.preset) if request.preset else {}
    asked = configure(preset, prepared, request.languages(), request.settings)
    _refuse_contradictions(request, asked, prepared)
    start = start_from(asked.train.start_from) if asked.train.start_from else None
    if start:
        asked = start.kept_in(asked, request.settings)
    folder = _corpus_in(request, data) if request.data else data
    summary = corpus.read_summary(folder) if request.data else _prepare(request, asked, start, data, talk)
    if start:
        start.check_vocabulary(folder)
    languages = {"data.source_lang": asked.data.source_lang, "data.target_lang": asked.data.target_lang}
    sizer = Sizer(request, summary, folder, n_processes)
    fitting = _training_of(request, start, summary, talk) if request.preset or start else sizer.choose(talk)
    # What config.json says of the text is what the corpus was made with.
    final = configure(fitting, languages, request.settings, summary.prepared_with())
    _write_run(request.output, final, start, folder)
    talk(_in_words(final))
    if final.train.steps > SHORT_RUN:
        talk(sizer.estimate(final))
    return final, data


def _write_run(output: Path, final: RunConfig, start: Start | None, folder: Path) -> None:
    """Write what makes a folder a run; config.json comes last, since the run exists as soon as it does."""
    if start and (words := shortlist.load(start.folder)):
        (output / SHORTLIST).mkdir(exist_ok=True)
        words.save(output / SHORTLIST)
    if folder != output / "data":
        _link(output / "data", folder)
    replace_text(output / "config.json", config.to_json(final, {CORPUS_SUM: corpus.identity(folder)}))


def _refuse_contradictions(request: Request, asked: RunConfig, prepared: Overrides) -> None:
    wanted = config.flatten(asked)
    for name, value in prepared.items():
        if name in request.settings and wanted[name] != value:
            raise ConfigError(
                f"the corpus in {request.data} was prepared with {name}={value}, not {wanted[name]}: "
                "leave that setting out, or prepare the text again"
            )


def _corpus_in(request: Request, data: Path) -> Path:
    """Return the folder of the prepared corpus; whatever an interrupted command left in its place must give way."""
    assert request.data
    if data.resolve() == request.data.resolve() and not data.is_symlink():
        return data
    if data.exists() and not data.is_symlink():
        raise UserError(f"{data} holds another corpus than {request.data}: remove it, or choose another --output")
    return request.data


class Sizer:
    """Chooses the model that fits text and time, by timing presets on the text."""

    def __init__(self, request: Request, summary: Summary, data: Path, n_processes: int) -> None:
        self._request, self._summary, self._data, self._n_processes = request, summary, data, n_processes
        self._target_tokens = corpus.Shards(data, "train").target_tokens()
        self._speeds: dict[RunConfig, Speed] = {}

    def choose(self, talk: Talk) -> Overrides:
        """Return the preset that fits, with the dropout that fits it."""
        asked = configure(self._request.settings)
        minutes, limited = asked.train.minutes, "train.steps" in self._request.settings
        budget = sizing.Budget(
            target_tokens=self._target_tokens,
            seconds=training_seconds(asked.train) if minutes else 3600 * sizing.DEFAULT_HOURS,
            steps=asked.train.steps if limited else None,
            is_set=bool(minutes),
        )
        sized = sizing.fitting_preset(budget, self._shape, lambda name: self._speed(self._shape(name)))
        talk(
            f"Using preset {sized.preset} for {self._summary.train_pairs:,} sentence pairs "
            f"({self._target_tokens:,} target tokens): {sized.reason}. Override with --preset."
        )
        preset = presets.preset(sized.preset)
        if "model.dropout" in preset or sized.preset == "base":  # the paper's has the paper's dropout
            return preset
        epochs = self._tokens(self._shape(sized.preset)) / self._target_tokens
        dropout = presets.dropout_for(epochs, sizing.is_small(budget, self._shape))
        talk(f"Using dropout {dropout:g} for about {epochs:.2g} epochs. Override with --set model.dropout=0.2.")
        return {**preset, "model.dropout": dropout}

    def estimate(self, final: RunConfig) -> str:
        """Say how long a run will take, before it begins."""
        speed, train = self._speed(final), final.train
        tokens = self._tokens(final)
        hours = tokens / speed.tokens_a_second / 3600
        duration = f"{hours:.1f} hours" if hours >= 2 else f"{60 * hours:.0f} minutes"
        limit = "" if train.minutes else " Set a limit with --minutes."
        return (
            f"Estimated training time: {duration} for {tokens / speed.tokens_a_step:,.0f} steps "
            f"({tokens / self._target_tokens:.2g} epochs) at {speed.tokens_a_second:,.0f} target tokens/s.{limit}"
        )

    def _shape(self, name: str) -> RunConfig:
        return configure(presets.preset(name), self._request.settings, self._summary.prepared_with())

    def _speed(self, shape: RunConfig) -> Speed:
        if shape not in self._speeds:
            self._speeds[shape] = sizing.measured_speed(shape, self._data, self._n_processes)
        return self._speeds[shape]

    def _tokens(self, planned: RunConfig) -> float:
        """Target tokens that a run sees, by whichever limit is nearer."""
        speed, train = self._speed(planned), planned.train
        by_steps = train.steps * speed.tokens_a_step
        return min(by_steps, training_seconds(train) * speed.tokens_a_second) if train.minutes else by_steps


def _training_of(request: Request, start: Start | None, summary: Summary, talk: Talk) -> Overrides:
    """Return the preset that was asked for; for fine-tuning only how it trains, with smaller steps."""
    name = request.preset or presets.fine_tuning_preset(summary.train_pairs)
    if not start:
        return presets.preset(name)
    talk(f"Starting from {start.name}: its shape and vocabulary, trained as preset {name} at a lower rate.")
    return {**presets.gentler(presets.preset(name)), **start.kept}


def _in_words(final: RunConfig) -> str:
    """What was settled, and what sets it otherwise."""
    model, train = final.model, final.train
    peak = learning_rate(train.warmup, model.d_model, train)
    return (
        f"{model.encoder_layers}+{model.decoder_layers} layers of {model.d_model}, dropout {model.dropout:g}, "
        f"{model.vocab_size:,} pieces, batches of {final.data.batch_tokens:,} tokens, a rate of up to {peak:.1e} "
        f"after {train.warmup:,} steps"
    )


def _prepare(request: Request, asked: RunConfig, start: Start | None, data: Path, talk: Talk) -> Summary:
    """Prepare the text, unless an interrupted command has prepared the same text in the same way."""
    text = request.text()
    if text.description:
        talk(text.description)
    chosen = asked.model.vocab_size if MODEL_VOCAB in request.settings else None
    vocabulary = start.tokenizer if start else chosen
    if data.is_symlink():  # an interrupted command linked a prepared corpus
        data.unlink()
    elif (data / "corpus.json").exists():
        found = corpus.read_summary(data)
        if _is_prepared(found, text, asked, vocabulary):
            return found
        talk(f"preparing the text again: {data} was made from other text or with other settings")
        shutil.rmtree(data)
    return corpus.prepare(text, data, asked.data, vocabulary, talk)


def _is_prepared(
    found: Summary, text: ParallelText, asked: RunConfig, vocabulary: int | SubwordTokenizer | None
) -> bool:
    """Return whether preparing the text would make the corpus that was found."""
    if not found.is_of(text) or corpus.STANDARD_INPUT in text.sums:
        return False
    if found.settings != corpus.preparation_settings(asked.data):
        return False
    return found.asked_vocabulary == corpus.asked_vocabulary(vocabulary)
