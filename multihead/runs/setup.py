"""TODO."""

import shutil
from pathlib import Path

from multihead.config import presets
from multihead.config.fit import fine_tuning_preset, for_fine_tuning
from multihead.config.resolve import RESUMABLE_FIELDS, configure, flatten
from multihead.config.schema import RunConfig, Settings
from multihead.config.serialization import to_json
from multihead.console import Log
from multihead.data.parallel_text import STANDARD_INPUT, ParallelText
from multihead.data.prepare import preparation_settings, prepare, requested_vocabulary
from multihead.data.shards import CorpusSummary, corpus_identity, read_summary
from multihead.errors import UsageError, UserError
from multihead.runs.base_model import SHORTLIST_FOLDER, BaseModel, is_fixed, is_same_model, open_base_model
from multihead.runs.request import MODEL_VOCAB, START_FROM, TrainingRequest
from multihead.runs.sizing import Sizer
from multihead.storage.checkpoints import saved_steps
from multihead.storage.files import write_text_atomic
from multihead.storage.model_folder import Provenance, read_config, read_provenance, read_search
from multihead.storage.shortlist import load_shortlist
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.schedule import learning_rate

SHORT_RUN = 100  # steps; the time of a shorter run is not estimated


def setup_run(request: TrainingRequest, log: Log, n_processes: int) -> tuple[RunConfig, Path]:
    """Return the configuration and the corpus of the run in `request.output`, which may have to be begun."""
    return _resume(request) or _start_new(request, log, n_processes)


# A run that exists


def _resume(request: TrainingRequest) -> tuple[RunConfig, Path] | None:
    """Return the configuration and corpus of an existing run; what would make it a different run is refused."""
    if not (request.output / "config.json").exists():
        return None
    stored = read_config(request.output)
    asked = configure(_preset_of(request, stored), _settings_of(request, stored), start=stored)
    was, now = flatten(stored), flatten(asked)
    for name in was:
        if was[name] != now[name] and name not in RESUMABLE_FIELDS:
            raise UsageError(
                f"the run in {request.output} has {name}={was[name]}, not {now[name]}: choose another --output"
            )
    _check_text(request, stored)
    if asked != stored:
        published = read_provenance(request.output).to_json(), read_search(request.output)
        write_text_atomic(request.output / "config.json", to_json(asked, *published))
    return asked, request.output / "data"


def _preset_of(request: TrainingRequest, stored: RunConfig) -> Settings:
    """Return what the preset contributed when the run began: fine-tuning takes only how to train from it."""
    if not request.preset:
        return {}
    preset = presets.preset(request.preset)
    if not stored.train.base_model:
        return preset
    return {name: value for name, value in for_fine_tuning(preset).items() if not is_fixed(name)}


def _settings_of(request: TrainingRequest, stored: RunConfig) -> Settings:
    """Return the settings, with the model to start from under the name by which the run knows it."""
    name = stored.train.base_model
    is_same = is_same_model(str(request.settings.get(START_FROM, "")), name)
    return {**request.settings, START_FROM: name} if is_same else request.settings


def _check_text(request: TrainingRequest, stored: RunConfig) -> None:
    """Refuse text other than the run's; a prepared corpus that was moved is linked again."""
    data = request.output / "data"
    folder = request.data or data
    if not request.data and not data.exists():
        raise UserError(f"the text of the run in {request.output} is missing: name its prepared corpus with --data")
    summary = read_summary(folder)
    known = read_provenance(request.output).corpus_sha256
    if not known and (data / "corpus.json").exists():  # a run of an older version
        known = corpus_identity(data)
    same = corpus_identity(folder) == known if known else _has_vocabulary(request.output, stored, folder)
    if not same or (request.source and not summary.matches(request.text())):
        raise UserError(f"the run in {request.output} was begun with other text: choose another --output")
    if request.data and (data.is_symlink() or not data.exists()):
        _link(data, request.data)


def _has_vocabulary(output: Path, stored: RunConfig, folder: Path) -> bool:
    """Return whether a corpus has the vocabulary of a run whose own corpus is gone and was never recorded."""
    places = [output, *(output / "checkpoints" / f"step-{n}" for n in saved_steps(output / "checkpoints"))]
    found = [place / "tokenizer.json" for place in places if (place / "tokenizer.json").exists()]
    same_size = read_summary(folder).vocab_size == stored.model.vocab_size
    return same_size and all(file.read_bytes() == (folder / "tokenizer.json").read_bytes() for file in found)


def _link(data: Path, folder: Path) -> None:
    """Make `data` a link to a prepared corpus, in place of any other link."""
    aside = data.with_name(".data.link.partial")
    aside.unlink(missing_ok=True)
    aside.symlink_to(folder.resolve(), target_is_directory=True)
    aside.replace(data)


# A new run


def _start_new(request: TrainingRequest, log: Log, n_processes: int) -> tuple[RunConfig, Path]:
    """Prepare the text, and choose what the user left open: the preset and the size of the vocabulary."""
    data = request.output / "data"
    prepared = read_summary(request.data).known_settings() if request.data else {}
    # A wrong setting is refused before an hour is spent on the text.
    preset = presets.preset(request.preset) if request.preset else {}
    asked = configure(preset, prepared, request.languages(), request.settings)
    _refuse_contradictions(request, asked, prepared)
    start = open_base_model(asked.train.base_model) if asked.train.base_model else None
    if start:
        asked = start.kept_in(asked, request.settings)
    folder = _corpus_in(request, data) if request.data else data
    summary = read_summary(folder) if request.data else _prepare(request, asked, start, data, log)
    if start:
        start.check_vocabulary(folder)
    languages = {"data.source_lang": asked.data.source_lang, "data.target_lang": asked.data.target_lang}
    sizer = Sizer(request, summary, folder, n_processes)
    fitting = _training_of(request, start, summary, log) if request.preset or start else sizer.choose(log)
    # What config.json says of the text is what the corpus was made with.
    final = configure(fitting, languages, request.settings, summary.known_settings())
    _write_run(request.output, final, start, folder)
    log(_summarize(final))
    if final.train.steps > SHORT_RUN:
        log(sizer.estimate(final))
    return final, data


def _write_run(output: Path, final: RunConfig, start: BaseModel | None, folder: Path) -> None:
    """Write what makes a folder a run; config.json comes last, since the run exists as soon as it does."""
    if start and (words := load_shortlist(start.folder)):
        (output / SHORTLIST_FOLDER).mkdir(exist_ok=True)
        words.save(output / SHORTLIST_FOLDER)
    if folder != output / "data":
        _link(output / "data", folder)
    provenance = Provenance(corpus_sha256=corpus_identity(folder))
    write_text_atomic(output / "config.json", to_json(final, provenance.to_json()))


def _refuse_contradictions(request: TrainingRequest, asked: RunConfig, prepared: Settings) -> None:
    wanted = flatten(asked)
    for name, value in prepared.items():
        if name in request.settings and wanted[name] != value:
            raise UsageError(
                f"the corpus in {request.data} was prepared with {name}={value}, not {wanted[name]}: "
                "leave that setting out, or prepare the text again"
            )


def _corpus_in(request: TrainingRequest, data: Path) -> Path:
    """Return the folder of the prepared corpus; whatever an interrupted command left in its place must give way."""
    assert request.data
    if data.resolve() == request.data.resolve() and not data.is_symlink():
        return data
    if data.exists() and not data.is_symlink():
        raise UserError(f"{data} holds another corpus than {request.data}: remove it, or choose another --output")
    return request.data


def _training_of(request: TrainingRequest, start: BaseModel | None, summary: CorpusSummary, log: Log) -> Settings:
    """Return the preset that was asked for; for fine-tuning only how it trains, with smaller steps."""
    name = request.preset or fine_tuning_preset(summary.train_pairs)
    if not start:
        return presets.preset(name)
    log(f"Starting from {start.name}: its shape and vocabulary, trained as preset {name} at a lower rate.")
    return {**for_fine_tuning(presets.preset(name)), **start.kept}


def _summarize(final: RunConfig) -> str:
    """What was settled, and what sets it otherwise."""
    model, train = final.model, final.train
    peak = learning_rate(train.warmup, model.d_model, train)
    return (
        f"{model.encoder_layers}+{model.decoder_layers} layers of {model.d_model}, dropout {model.dropout:g}, "
        f"{model.vocab_size:,} pieces, batches of {final.data.batch_tokens:,} tokens, a rate of up to {peak:.1e} "
        f"after {train.warmup:,} steps"
    )


def _prepare(
    request: TrainingRequest, asked: RunConfig, start: BaseModel | None, data: Path, log: Log
) -> CorpusSummary:
    """Prepare the text, unless an interrupted command has prepared the same text in the same way."""
    text = request.text()
    if text.description:
        log(text.description)
    chosen = asked.model.vocab_size if MODEL_VOCAB in request.settings else None
    vocabulary = start.tokenizer if start else chosen
    if data.is_symlink():  # an interrupted command linked a prepared corpus
        data.unlink()
    elif (data / "corpus.json").exists():
        found = read_summary(data)
        if _is_prepared(found, text, asked, vocabulary):
            return found
        log(f"preparing the text again: {data} was made from other text or with other settings")
        shutil.rmtree(data)
    return prepare(text, data, asked.data, vocabulary, log)


def _is_prepared(
    found: CorpusSummary, text: ParallelText, asked: RunConfig, vocabulary: int | SubwordTokenizer | None
) -> bool:
    """Return whether preparing the text would make the corpus that was found."""
    if not found.matches(text) or STANDARD_INPUT in text.sums:
        return False
    if found.settings != preparation_settings(asked.data):
        return False
    return found.asked_vocabulary == requested_vocabulary(vocabulary)
