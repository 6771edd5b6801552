"""TODO."""

import json
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.options import (
    PRESET_HELP,
    BaseModelName,
    Json,
    Output,
    RunFile,
    SetOptions,
    Source,
    SourceLang,
    Target,
    TargetLang,
    ValidSource,
    ValidTarget,
    VocabSize,
    Weight,
    user_settings,
)
from multihead.console import say
from multihead.errors import UsageError, UserError


def train_command(
    output: Output,
    source: Source = None,
    target: Target = None,
    weight: Weight = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    data: Annotated[Path | None, typer.Option(help="A corpus made by `multihead prepare`, instead of text.")] = None,
    preset_name: Annotated[str | None, typer.Option("--preset", help=PRESET_HELP)] = None,
    vocab_size: VocabSize = None,
    start: BaseModelName = None,
    steps: Annotated[int | None, typer.Option(help="Stop after this many steps.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after this much time, everything included.")] = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    settings: SetOptions = None,
    config: RunFile = None,
) -> None:
    """Train a model from raw text in one command; without text, on the embedded English-German corpus."""
    from multihead.runs.request import TrainingRequest
    from multihead.runs.train import train

    options = {
        "model.vocab_size": vocab_size,
        "train.base_model": start,
        "train.steps": steps,
        "train.minutes": minutes,
        "data.source_lang": source_lang,
        "data.target_lang": target_lang,
    }
    request = TrainingRequest(
        output=output,
        source=source or None,
        target=target or None,
        weights=weight or (),
        valid_source=valid_source,
        valid_target=valid_target,
        data=data,
        preset=preset_name,
        settings=user_settings(config, settings, options),
    )
    train(request)


def prepare_command(
    output: Annotated[Path, typer.Option(help="Folder to write; `multihead train --data` takes it.")],
    source: Source = None,
    target: Target = None,
    weight: Weight = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    vocab_size: VocabSize = None,
    start: BaseModelName = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    settings: SetOptions = None,
    config: RunFile = None,
) -> None:
    """Clean a corpus, learn its tokenizer and write token shards; says what was dropped and why."""
    from rich.console import Console

    from multihead.config.resolve import configure
    from multihead.console import log_to
    from multihead.data.parallel_text import from_files, guess_languages
    from multihead.data.prepare import prepare
    from multihead.runs.base_model import open_base_model

    languages = {"data.source_lang": source_lang, "data.target_lang": target_lang}
    given = user_settings(config, settings, {"model.vocab_size": vocab_size, "train.base_model": start, **languages})
    if not source or not target:
        raise UsageError("--source and --target are needed: the text to prepare, and its translation")
    run_config = configure(guess_languages(source, target), given)
    model = open_base_model(run_config.train.base_model) if run_config.train.base_model else None
    if model:
        run_config = model.kept_in(run_config, given)
    valid = (valid_source, valid_target) if valid_source and valid_target else None
    if bool(valid_source) != bool(valid_target):
        raise UsageError("--valid-source and --valid-target go together")
    text = from_files(source, target, valid, weight or ())
    vocabulary = model.tokenizer if model else vocab_size
    prepare(text, output, run_config.data, vocabulary, log_to(Console(stderr=True)))


def average_command(
    run: Annotated[Path, typer.Argument(help="The folder of a training run.")],
    output: Annotated[Path, typer.Option(help="Model folder to write.")],
    last: Annotated[int, typer.Option(min=1, help="How many of the newest checkpoints.")] = 5,
) -> None:
    """Average the last checkpoints of a run into a model (§6.1)."""
    from multihead.model.weights import to_arrays
    from multihead.storage.checkpoints import saved_steps
    from multihead.storage.model_folder import Provenance, read_search, save_model
    from multihead.storage.shortlist import load_shortlist
    from multihead.training.checkpoint import average_checkpoints, load_checkpoint

    steps = saved_steps(run / "checkpoints")[-last:]
    if not steps:
        raise UserError(f"there are no checkpoints in {run}")
    folders = [run / "checkpoints" / f"step-{step}" for step in steps]
    newest = load_checkpoint(folders[-1])
    provenance = Provenance(steps=steps[-1], published=f"the average of steps {', '.join(map(str, steps))}")
    weights = average_checkpoints(folders)
    output.mkdir(parents=True, exist_ok=True)
    if words := load_shortlist(run):
        words.save(output)
    search = read_search(run)
    save_model(output, to_arrays(weights), newest.config, newest.tokenizer_json, provenance, search)
    say(f"averaged {len(steps)} checkpoints, steps {steps[0]:,} to {steps[-1]:,}, into {output}")


def plan_command(
    source: Annotated[list[Path], typer.Option(help="Text to train on; plain or .gz. May be repeated.")],
    target: Annotated[list[Path], typer.Option(help="Its translation, line by line; one for each --source.")],
    output: Annotated[Path, typer.Option(help="Where the run would write.")] = Path("."),
    preset_name: Annotated[str | None, typer.Option("--preset", help=PRESET_HELP)] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps that are measured.")] = 5,
    settings: SetOptions = None,
    config: RunFile = None,
    as_json: Json = False,
) -> None:
    """Say what a training run will need, before it: hours, memory and disk here, and hours on GPUs."""
    from multihead.runs.estimate import estimate_run

    made = estimate_run((source, target), preset_name, user_settings(config, settings, {}), output, steps)
    print(json.dumps(made.to_dict(), indent=2) if as_json else made.as_text())
