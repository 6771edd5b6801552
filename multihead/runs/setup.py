"""Turn a training request into a run: resolve the settings and prepare the corpus, or check that a run can be resumed.

`resolve_run` decides what a run is. `multihead train`, `plan` and `prepare` use it or its first steps, so that they
cannot disagree.
"""

import math
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from multihead.config.fit import IMPORTED_FINE_TUNING, fine_tuning_preset
from multihead.config.presets import preset
from multihead.config.resolve import RESUMABLE_FIELDS, Layer, Resolved, Source, flatten, resolve, value_of
from multihead.config.schema import RunConfig
from multihead.config.serialization import to_json
from multihead.console import Log, Table, duration, is_verbose
from multihead.data.parallel_text import ParallelText
from multihead.data.prepare import preparation_settings, prepare, requested_vocabulary
from multihead.data.shards import CorpusSummary, check_corpus, corpus_identity, read_summary
from multihead.errors import UsageError, UserError
from multihead.runs.base_model import SHORTLIST_FOLDER, BaseModel, fine_tuning_layer, is_same_model, open_base_model
from multihead.runs.limits import why_too_large, why_too_long
from multihead.runs.rehearsal import find_rehearsal
from multihead.runs.request import BASE_MODEL, MODEL_VOCAB, NEW_VOCABULARY, UNKNOWN_LANGUAGES, TrainingRequest
from multihead.runs.sizing import MIN_WARM_UPS, Corpus, Sizer
from multihead.storage.checkpoints import saved_steps
from multihead.storage.files import write_text_atomic
from multihead.storage.model_folder import Provenance, read_config, read_provenance, read_search, replace_config
from multihead.storage.shortlist import load_shortlist
from multihead.system import is_link, link_folder, remove_link
from multihead.text.lines import STANDARD_INPUT
from multihead.text.tokenizer import SubwordTokenizer

SHORT_RUN = 100  # steps; the time of a shorter run is not estimated
MAX_VALUE_WIDTH, MAX_ORIGIN_WIDTH = 24, 26  # characters of the columns of the settings table

OpenCorpus = Callable[[RunConfig, BaseModel | None], Corpus]


def setup_run(request: TrainingRequest, log: Log, n_processes: int = 1) -> tuple[RunConfig, Path]:
    """Return the configuration and the corpus of the run in `request.output`, which is created if there is none."""
    if has_run(request):
        config = _resume(request)
        check_corpus(request.output / "data")
        return config, request.output / "data"
    began = time.monotonic()
    run = resolve_run(request, lambda draft, base: _corpus_for_run(request, draft, base, log), log, n_processes)
    if refusal := why_unfit(run, time.monotonic() - began):
        raise UsageError(f"{refusal}; the text stays prepared")
    _write_run(request.output, run)
    log(settings_table(run.resolved).as_text())
    config = run.resolved.config
    if not _is_short(config):
        log(run.sizer.estimate(config))
    return config, request.output / "data"


def why_unfit(run: "NewRun", seconds_spent: float = 0.0) -> str | None:
    """Return why a run would not succeed on this machine, and what would; None if it can."""
    config = run.resolved.config
    if _is_short(config):
        return why_too_large(config)
    return (
        why_too_large(config) or why_too_short(run, seconds_spent) or why_too_long(run.resolved, run.preset, run.sizer)
    )


def why_too_short(run: "NewRun", seconds_spent: float = 0.0) -> str | None:
    """Return why no model could be trained and published within `minutes`, and how many would do; None if one can."""
    config = run.resolved.config
    if not config.train.minutes:
        return None
    training, publishing = run.sizer.training_needed(config), run.sizer.speed(config).publishing_seconds
    needed = seconds_spent + training + publishing
    if needed <= 60 * config.train.minutes:
        return None
    trained = f"{duration(training)} of training ({MIN_WARM_UPS} times its warm-up) and " if training else ""
    prepared = f"preparing the text took {duration(seconds_spent)}, and " if seconds_spent else ""
    return (
        f"--minutes {config.train.minutes:g} is too short for a trained model: {prepared}on this machine preset "
        f"{run.preset} needs about {trained}{duration(publishing)} to choose, score and write the model. "
        f"Use --minutes {math.ceil(needed / 60)} or more, or a smaller --preset"
    )


def _is_short(config: RunConfig) -> bool:
    """Return whether a run has so few steps that its time is not worth estimating."""
    return 0 < config.train.steps <= SHORT_RUN


def prepare_corpus(request: TrainingRequest, log: Log) -> CorpusSummary:
    """Prepare the text of a request into `request.output`, as `multihead train` with the same options would."""
    if not request.has_text:
        raise UsageError("--source and --target, or --corpus, are required: the text to prepare, and its translation")
    base, layers = _initial_layers(request)
    draft = resolve(layers).config
    request.check_languages(draft.data)
    text, rehearsal = request.text(draft.data), find_rehearsal(request, base, draft.data, log)
    return prepare(text, request.output, draft.data, vocabulary_of(request, base), log, rehearsal)


# A new run


@dataclass(frozen=True, slots=True, kw_only=True)
class NewRun:
    """What a run will be."""

    resolved: Resolved
    preset: str
    base: BaseModel | None
    corpus: Corpus
    sizer: Sizer


def resolve_run(request: TrainingRequest, open_corpus: OpenCorpus, log: Log, n_processes: int = 1) -> NewRun:
    """Decide what a new run will be; `open_corpus` provides its text, prepared."""
    base, layers = _initial_layers(request)
    draft = resolve(layers).config  # refuses wrong settings before hours are spent on preparing the text
    request.check_languages(draft.data)
    corpus = open_corpus(draft, base)
    if base:
        base.check_vocabulary(corpus.folder)
    layers = [*layers, corpus.layer]
    sizer = Sizer(layers, corpus, n_processes)
    name, fitting = _fit(request, base, sizer, log)
    resolved = resolve([*layers, *fitting])
    if resolved.config.model.system == "memory-network":
        resolved = resolve([*layers, *fitting, _fact_layer(corpus)])
    return NewRun(resolved=resolved, preset=name, base=base, corpus=corpus, sizer=sizer)


def _fact_layer(corpus: Corpus) -> Layer:
    """Return which piece of the vocabulary ends a fact: a full stop after a space."""
    *_, stop = SubwordTokenizer.load(corpus.folder / "tokenizer.json").encode("a .")
    return Layer(Source.FIXED, {"model.fact_end_id": stop}, f"corpus {corpus.folder}")


def _initial_layers(request: TrainingRequest) -> tuple[BaseModel | None, list[Layer]]:
    """Return the base model, and the layers that are known before the text is prepared."""
    name = value_of(request.layers, BASE_MODEL)
    base = open_base_model(str(name), bool(value_of(request.layers, NEW_VOCABULARY))) if name else None
    layers = base.apply_to(request.layers) if base else request.layers
    of_base = base.languages if base else UNKNOWN_LANGUAGES
    if base and base.has_one_direction and request.directions(of_base):
        raise UsageError(
            f"{base.name} translates one pair of languages: its vocabulary has no pieces that name the others. Add "
            "--new-vocabulary, or leave out --from"
        )
    if request.data:
        if base:
            base.check_vocabulary(request.data)
        return base, [*layers, Corpus(request.data, read_summary(request.data)).layer]
    return base, [*layers, request.language_layer(of_base)]


def _fit(request: TrainingRequest, base: BaseModel | None, sizer: Sizer, log: Log) -> tuple[str, list[Layer]]:
    """Return the name of the preset, and layers with what fits the text where the user left the preset open."""
    if request.preset and not base:
        return request.preset, []
    if not base:
        return sizer.choose(log)
    kept = "architecture, but a new vocabulary" if base.new_vocabulary else "architecture and vocabulary"
    if base.is_imported and not request.preset:
        log(f"Fine-tuning {base.name}, an imported model: same {kept}; Adam with a low rate.")
        return "fine-tuning", [Layer(Source.FIT, IMPORTED_FINE_TUNING, "an imported model")]
    name = request.preset or fine_tuning_preset(sizer.corpus.train_pairs)
    rate = "" if base.new_vocabulary else " with a lower learning rate"
    log(f"Fine-tuning {base.name}: same {kept}; training settings of preset {name}{rate}.")
    layers = [] if request.preset else [base.training_layer(Layer(Source.FIT, preset(name), f"preset {name}"))]
    return name, [*layers, *(sizer.fit_dropout(layers, log) if base.new_vocabulary else [])]


def vocabulary_of(request: TrainingRequest, base: BaseModel | None) -> int | SubwordTokenizer | None:
    """Return the tokenizer of the base model or of the task, or the vocabulary size that the user set, if any."""
    if base and not base.new_vocabulary:
        return base.tokenizer
    if request.task:
        return request.task.tokenizer
    size = value_of(request.layers, MODEL_VOCAB)
    assert size is None or isinstance(size, int)
    return size


def _corpus_for_run(request: TrainingRequest, draft: RunConfig, base: BaseModel | None, log: Log) -> Corpus:
    """Return the corpus that the user prepared, or prepare the text into the run's folder."""
    data, rehearsal = request.output / "data", find_rehearsal(request, base, draft.data, log)
    if request.data:
        folder = _prepared_folder(request.data, data)
        check_corpus(folder)
        return Corpus(folder, read_summary(folder))
    text, vocabulary = request.text(draft.data), vocabulary_of(request, base)
    if text.description:
        log(text.description)
    remove_link(data)  # an interrupted command linked a prepared corpus
    if (data / "corpus.json").exists():
        found = read_summary(data)
        if _is_prepared(found, text, draft, vocabulary) and found.rehearsal == (
            rehearsal.identity if rehearsal else ""
        ):
            check_corpus(data)
            return Corpus(data, found)
        log(f"preparing the text again: {data} was made from different text or with different settings")
        shutil.rmtree(data)
    return Corpus(data, prepare(text, data, draft.data, vocabulary, log, rehearsal))


def _prepared_folder(prepared: Path, data: Path) -> Path:
    """Return the folder of the prepared corpus; a folder `data` that holds another corpus is not removed."""
    if data.resolve() == prepared.resolve() and not is_link(data):
        return data
    if data.exists() and not is_link(data):
        raise UserError(f"{data} holds a different corpus than {prepared}; delete it or choose another --output")
    return prepared


def _is_prepared(
    found: CorpusSummary, text: ParallelText, draft: RunConfig, vocabulary: int | SubwordTokenizer | None
) -> bool:
    """Return whether preparing the text would make the corpus that was found."""
    if not found.matches(text) or STANDARD_INPUT in text.sums:
        return False
    if found.settings != preparation_settings(draft.data):
        return False
    return found.asked_vocabulary == requested_vocabulary(vocabulary)


def _write_run(output: Path, run: NewRun) -> None:
    """Write what makes a folder a run; config.json comes last, since the run exists as soon as it does."""
    output.mkdir(parents=True, exist_ok=True)
    if run.base and not run.base.new_vocabulary:
        run.base.copy_vocabulary_files(output)
        if shortlist := load_shortlist(run.base.folder):
            (output / SHORTLIST_FOLDER).mkdir(exist_ok=True)
            shortlist.save(output / SHORTLIST_FOLDER)
    folder = run.corpus.folder
    if folder != output / "data":
        link_folder(output / "data", folder)
    provenance = Provenance(corpus_sha256=corpus_identity(folder))
    write_text_atomic(output / "config.json", to_json(run.resolved.config, provenance.to_json()))


def settings_table(resolved: Resolved) -> Table:
    """Return a table of the settings that differ from the defaults (with --verbose, of all), and their origin."""
    rows = [
        [name, _shorten(str(value), MAX_VALUE_WIDTH), _shorten(origin, MAX_ORIGIN_WIDTH)]
        for name, value, origin in resolved.changes(with_defaults=is_verbose())
    ]
    return Table(header=["setting", "value", "from"], rows=rows)


def _shorten(text: str, width: int) -> str:
    """Keep the end of a long text, which names the file of a path."""
    return text if len(text) <= width else f"…{text[1 - width :]}"


# A run that exists


def has_run(request: TrainingRequest) -> bool:
    """Return whether there is a run in the output folder."""
    return (request.output / "config.json").exists()


def would_resume(request: TrainingRequest) -> bool:
    """Return whether the output folder holds exactly the requested run; a different run is refused with an error."""
    return has_run(request) and resumed_config(request) == read_config(request.output)


def resumed_config(request: TrainingRequest) -> RunConfig:
    """Return the configuration with which an existing run would be resumed; refuse a different run."""
    stored = read_config(request.output)
    resolved = resolve(_resuming_layers(request, stored))
    before, after = flatten(stored), flatten(resolved.config)
    for name, value in before.items():
        if after[name] != value and name not in RESUMABLE_FIELDS:
            raise UsageError(
                f"the run in {request.output} has {name}={value}, but {resolved.origin[name].name} sets "
                f"{name}={after[name]}; choose another --output"
            )
    _check_corpus(request, stored)
    return resolved.config


def _resuming_layers(request: TrainingRequest, stored: RunConfig) -> list[Layer]:
    """Return the stored settings and the requested ones, in which the base model has the name that the run knows."""
    layers: Sequence[Layer] = request.layers
    if base := stored.train.base_model:
        new = stored.train.new_vocabulary
        layers = [fine_tuning_layer(layer, new) if layer.source is Source.PRESET else layer for layer in layers]
        if is_same_model(str(value_of(layers, BASE_MODEL) or ""), base):
            layers = [*layers, Layer(Source.FLAG, {BASE_MODEL: base}, "--from")]
    return [Layer(Source.DEFAULT, flatten(stored), "the run"), *layers]


def _resume(request: TrainingRequest) -> RunConfig:
    """Update the folder of a run: changed settings, and the link to a prepared corpus that was moved."""
    config, data = resumed_config(request), request.output / "data"
    if request.data and (is_link(data) or not data.exists()):
        link_folder(data, request.data)
    if config != read_config(request.output):
        published = read_provenance(request.output).to_json(), read_search(request.output)
        replace_config(request.output, to_json(config, *published))
    return config


def _check_corpus(request: TrainingRequest, stored: RunConfig) -> None:
    """Refuse text that is not the text of the run."""
    data = request.output / "data"
    folder = request.data or data
    if not request.data and not data.exists():
        raise UserError(f"the corpus of the run in {request.output} is missing; give its prepared corpus with --data")
    summary = read_summary(folder)
    known = read_provenance(request.output).corpus_sha256
    if not known and (data / "corpus.json").exists():  # a run of an older version
        known = corpus_identity(data)
    is_same = corpus_identity(folder) == known if known else _has_vocabulary(request.output, stored, folder)
    is_same &= not request.both_ways or stored.data.has_several_directions
    if not is_same or (request.has_text and not summary.matches(request.text(stored.data))):
        raise UserError(f"{request.output} contains a run on different data; use another --output")


def _has_vocabulary(output: Path, stored: RunConfig, folder: Path) -> bool:
    """Return whether a corpus has the vocabulary of a run whose own corpus is gone and was never recorded."""
    places = [output, *(output / "checkpoints" / f"step-{n}" for n in saved_steps(output / "checkpoints"))]
    files = [place / "tokenizer.json" for place in places if (place / "tokenizer.json").exists()]
    same_size = read_summary(folder).vocab_size == stored.model.vocab_size
    return same_size and all(file.read_bytes() == (folder / "tokenizer.json").read_bytes() for file in files)
