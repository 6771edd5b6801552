"""`multihead train`, `prepare`, `plan`, `backtranslate` and `average`."""

import json
import shlex
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.options import (
    BaseModelName,
    BothWays,
    CorpusFiles,
    Json,
    Minutes,
    Monolingual,
    NewVocabulary,
    Output,
    Preset,
    Quiet,
    Rehearse,
    Reverse,
    RunFile,
    SetOptions,
    Source,
    SourceLang,
    Steps,
    Target,
    TargetLang,
    TaskName,
    Teacher,
    To,
    ValidSource,
    ValidTarget,
    Verbose,
    VocabSize,
    Weight,
)
from multihead.config.resolve import parse_settings
from multihead.console import duration, say, set_verbosity
from multihead.errors import UsageError, require

PreparedCorpus = Annotated[
    Path | None, typer.Option("--data", help="A corpus made by `multihead prepare`, in place of text.")
]


def train_command(
    output: Output,
    source: Source = None,
    target: Target = None,
    corpus: CorpusFiles = None,
    weight: Weight = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    both_ways: BothWays = False,
    data: PreparedCorpus = None,
    task: TaskName = None,
    preset: Preset = None,
    vocab_size: VocabSize = None,
    base_model: BaseModelName = None,
    new_vocabulary: NewVocabulary = False,
    rehearse: Rehearse = None,
    monolingual: Monolingual = None,
    reverse: Reverse = None,
    teacher: Teacher = None,
    steps: Steps = None,
    minutes: Minutes = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    settings: SetOptions = None,
    config: RunFile = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Train a model from raw text. Without text, it learns from the embedded English-German corpus.

    Run the same command again to resume an interrupted run.
    """
    set_verbosity(quiet, verbose)
    require("torch", extra="train", purpose="training")
    from multihead.runs.request import TrainingRequest
    from multihead.runs.stages import MoreText, train_in_stages
    from multihead.tasks.task import make_task

    options = _options(vocab_size, base_model, source_lang, target_lang, steps, minutes)
    options |= _fine_tuning_options(new_vocabulary, rehearse)
    more = MoreText(monolingual=monolingual or (), reverse=reverse, teacher=teacher)
    chosen = make_task(task) if task else None
    request = TrainingRequest(
        output=output,
        source=source or None,
        target=target or None,
        corpora=corpus or (),
        weights=weight or (),
        valid_source=valid_source or None,
        valid_target=valid_target or None,
        both_ways=both_ways,
        languages=_languages(source_lang, target_lang),
        data=data,
        task=chosen,
        preset=preset,
        run_file=config,
        settings=parse_settings(settings or []),
        options=options,
    )
    train_in_stages(request, more)
    if chosen:
        from multihead.evaluation.accuracy import test_task

        print(test_task(output, chosen))


def plan_command(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder that the run would write.")] = Path("run"),
    source: Source = None,
    target: Target = None,
    corpus: CorpusFiles = None,
    weight: Weight = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    both_ways: BothWays = False,
    data: PreparedCorpus = None,
    task: TaskName = None,
    preset: Preset = None,
    vocab_size: VocabSize = None,
    base_model: BaseModelName = None,
    new_vocabulary: NewVocabulary = False,
    rehearse: Rehearse = None,
    monolingual: Monolingual = None,
    reverse: Reverse = None,
    teacher: Teacher = None,
    steps: Steps = None,
    minutes: Minutes = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    settings: SetOptions = None,
    config: RunFile = None,
    measure_steps: Annotated[int, typer.Option(min=1, help="Steps that are measured.")] = 5,
    as_json: Json = False,
) -> None:
    """Estimate hours, memory and disk of a run before it starts. Takes the options of `multihead train`."""
    require("torch", extra="train", purpose="planning a run")
    from multihead.runs.estimate import estimate_run
    from multihead.runs.request import TrainingRequest
    from multihead.runs.stages import MoreText, refuse_to_plan
    from multihead.tasks.task import make_task

    refuse_to_plan(MoreText(monolingual=monolingual or (), reverse=reverse, teacher=teacher))
    options = _options(vocab_size, base_model, source_lang, target_lang, steps, minutes)
    options |= _fine_tuning_options(new_vocabulary, rehearse)
    request = TrainingRequest(
        output=output,
        source=source or None,
        target=target or None,
        corpora=corpus or (),
        weights=weight or (),
        valid_source=valid_source or None,
        valid_target=valid_target or None,
        both_ways=both_ways,
        languages=_languages(source_lang, target_lang),
        data=data,
        task=make_task(task) if task else None,
        preset=preset,
        run_file=config,
        settings=parse_settings(settings or []),
        options=options,
    )
    estimate = estimate_run(request, measure_steps)
    print(json.dumps(estimate.figures(), indent=2) if as_json else estimate.as_text())


def prepare_command(
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write; `multihead train --data` takes it.")],
    source: Source = None,
    target: Target = None,
    corpus: CorpusFiles = None,
    weight: Weight = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    both_ways: BothWays = False,
    vocab_size: VocabSize = None,
    base_model: BaseModelName = None,
    rehearse: Rehearse = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    settings: SetOptions = None,
    config: RunFile = None,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Clean a corpus and write token shards to train on. Also learns the tokenizer, and says what was dropped."""
    set_verbosity(quiet, verbose)
    from multihead.runs.request import TrainingRequest
    from multihead.runs.setup import prepare_corpus

    request = TrainingRequest(
        output=output,
        source=source or None,
        target=target or None,
        corpora=corpus or (),
        weights=weight or (),
        valid_source=valid_source or None,
        valid_target=valid_target or None,
        both_ways=both_ways,
        languages=_languages(source_lang, target_lang),
        run_file=config,
        settings=parse_settings(settings or []),
        options=_options(vocab_size, base_model, source_lang, target_lang) | _fine_tuning_options(False, rehearse),
    )
    prepare_corpus(request, say)


def backtranslate_command(
    reverse: Annotated[
        str, typer.Argument(metavar="REVERSE", help="A model that translates in the opposite direction.")
    ],
    input_file: Annotated[
        Path, typer.Option("--input", "-i", help="Text in the language that the new model is to translate into.")
    ],
    output: Annotated[
        Path,
        typer.Option("--output", "-o", help="Table of pairs, .tsv or .tsv.gz; `multihead train --corpus` takes it."),
    ],
    to: To = None,
    beam: Annotated[int, typer.Option(min=1, help="Beam size; 1 is greedy.")] = 1,
    quiet: Quiet = False,
) -> None:
    """Make training pairs of text in one language.

    The sources are translations of a model that works in the opposite direction, and are marked as such.
    """
    set_verbosity(quiet)
    from multihead.runs.synthetic import text_to_translate_back, write_pairs

    if str(output) == "-":
        raise UsageError("--output takes a file, .tsv or .tsv.gz: pairs are written when all of them are complete")
    seconds = write_pairs(text_to_translate_back(reverse, input_file, to, beam), reverse, output, say)
    say(f"written to {output} in {duration(seconds)}; train on it with --corpus {shlex.quote(str(output))}")


def average_command(
    run: Annotated[Path, typer.Argument(help="Folder of a training run.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    last: Annotated[int, typer.Option(min=1, help="Number of newest checkpoints.")] = 5,
) -> None:
    """Average the last checkpoints of a run into a model (§6.1)."""
    require("torch", extra="train", purpose="averaging checkpoints")
    from multihead.runs.publish import publish_average

    steps = publish_average(run, output, last)
    say(f"averaged {len(steps)} checkpoints, steps {steps[0]:,} to {steps[-1]:,}, into {output}")


def _options(
    vocab_size: int | None,
    base_model: str | None,
    source_lang: list[str] | None,
    target_lang: list[str] | None,
    steps: int | None = None,
    minutes: float | None = None,
) -> dict[str, object]:
    """Return the settings of options; None where an option was not given."""
    return {
        "model.vocab_size": vocab_size,
        "train.base_model": base_model,
        "data.source_lang": _only(source_lang),
        "data.target_lang": _only(target_lang),
        "train.steps": steps,
        "train.minutes": minutes,
    }


def _only(languages: list[str] | None) -> str | None:
    """Return the language of all corpora, if the user named one."""
    return languages[0] if languages and len(languages) == 1 else None


def _languages(source_lang: list[str] | None, target_lang: list[str] | None) -> list[tuple[str, str]]:
    """Return the languages of each corpus, if the user named them."""
    sources, targets = source_lang or [], target_lang or []
    if max(len(sources), len(targets)) < 2:
        return []
    if len(sources) != len(targets):
        raise UsageError("every --source-lang needs a --target-lang if there are several")
    return list(zip(sources, targets, strict=True))


def _fine_tuning_options(new_vocabulary: bool, rehearse: float | None) -> dict[str, object]:
    return {"train.new_vocabulary": new_vocabulary or None, "data.rehearse": rehearse}
