"""The commands that use a model: translate and evaluate."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from multihead.cli import completion
from multihead.cli.command import import_numpy_with_one_thread
from multihead.cli.options import (
    Alpha,
    Beam,
    Engine,
    Exact,
    Json,
    Model,
    NoGuard,
    Quiet,
    Split,
    To,
    Verbose,
    engine_name,
    search_options,
)
from multihead.console import say, say_detail, set_verbosity
from multihead.errors import UsageError, require

if TYPE_CHECKING:
    from multihead.text.lines import TextInput
    from multihead.translation.translator import Translation, Translator


def translate_command(
    model: Model,
    text: Annotated[list[str] | None, typer.Argument(help="Texts to translate; without any, --input is read.")] = None,
    input_file: Annotated[
        Path, typer.Option("--input", "-i", help="File to translate: plain, .gz, or - for stdin.")
    ] = Path("-"),
    output_file: Annotated[
        Path, typer.Option("--output", "-o", help="File to write: plain, .gz, or - for stdout.")
    ] = Path("-"),
    to: To = None,
    beam: Beam = None,
    alpha: Alpha = None,
    split: Split = None,
    n_best: Annotated[int, typer.Option(help="Number of translations per line, separated by tabs.")] = 1,
    sample: Annotated[
        bool, typer.Option("--sample", help="Sample a translation instead of searching for the best.")
    ] = False,
    temperature: Annotated[
        float, typer.Option(help="For --sample: below 1 is more conservative, above 1 more diverse.")
    ] = 1.0,
    top_k: Annotated[int, typer.Option(help="For --sample: sample from the k most likely tokens (0: all).")] = 0,
    top_p: Annotated[
        float, typer.Option(help="For --sample: sample from the most likely tokens with this total probability.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Seed for --sample.")] = 1,
    min_confidence: Annotated[
        float, typer.Option(help="Leave lines empty whose translation is good with a smaller probability.")
    ] = 0.0,
    draw: Annotated[bool, typer.Option("--draw", help="For a parser: draw the trees.")] = False,
    dependencies: Annotated[
        bool,
        typer.Option("--dependencies", help="For a parser: words, a tab, and the head of each, as data.tree reads."),
    ] = False,
    ensemble: Annotated[
        list[str] | None,
        typer.Option(help="Another model to average with; may be repeated.", autocompletion=completion.models),
    ] = None,
    engine: Engine = "auto",
    prune: Annotated[float | None, typer.Option(hidden=True)] = None,
    exact: Exact = False,
    no_guard: NoGuard = False,
    as_json: Json = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Translate texts, a file or standard input. Each line of input gives one line of output."""
    set_verbosity(quiet, verbose)
    search = search_options(
        exact,
        no_guard,
        beam=beam,
        alpha=alpha,
        split=split,
        n_best=n_best,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        seed=seed,
    )
    engine = engine_name(engine, exact)
    if prune is not None:
        say("--prune has no effect: hypotheses are pruned only if they cannot win")
    import_numpy_with_one_thread()
    from multihead.text.lines import TextInput, open_output
    from multihead.translation.segments import DIRECTION
    from multihead.translation.translator import as_line, load

    lines = text or TextInput.open(input_file)  # refuse a missing file before loading the model
    _check_texts(text or [], input_file)
    began = time.perf_counter()
    translator = load(model, *(ensemble or []), engine=engine).into(to)
    if min_confidence:
        translator.require_confidence(min_confidence)
    say_detail(f"loaded {model} into {type(translator.engine).__name__} in {time.perf_counter() - began:.2f} s")
    write = _tree_writer(translator, draw, dependencies, as_json) or (lambda found: as_line(found, as_json))
    began = time.perf_counter()
    chunk_size = _chunk_size(lines)
    number = n_reversed = n_withheld = 0
    with open_output(output_file) as out:
        for number, found in enumerate(translator.stream(lines, search, chunk_size, details=as_json), start=1):
            translation = found.withheld_below(min_confidence)
            n_withheld += translation is not found
            out.write(write(translation) + "\n")
            if not as_json:
                for warning in dict.fromkeys(translation.warnings):
                    if not warning.startswith(DIRECTION) or not n_reversed:  # once is enough
                        say(f"line {number}: {warning}")
                    n_reversed += warning.startswith(DIRECTION)
    if n_reversed > 1:
        say(f"{n_reversed:,} lines look like text in a language that the model does not translate from")
    if n_withheld:
        say(f"{n_withheld:,} of {number:,} lines are left empty: their confidence is below {min_confidence:g}")
    say_detail(f"translated {number:,} lines in {time.perf_counter() - began:.2f} s")


def _tree_writer(
    translator: "Translator", draw: bool, dependencies: bool, as_json: bool
) -> "Callable[[Translation], str] | None":
    """Return what writes the trees of a parser; None if neither form was asked for."""
    if not (draw or dependencies):
        return None
    from multihead.text.head_rules import dependency_line
    from multihead.text.tree_drawing import draw as draw_tree

    if as_json or not translator.parser:
        option = "--draw" if draw else "--dependencies"
        raise UsageError(f"{option} is for the trees of a parser, and excludes --json")
    if draw and dependencies:
        raise UsageError("--draw and --dependencies are two ways to write a tree; choose one")
    if draw:
        return lambda translation: "\n\n".join(map(draw_tree, translation.trees))
    return lambda translation: dependency_line(translation.trees)


def _chunk_size(lines: "list[str] | TextInput") -> int | None:
    """Return 1 if somebody types, so that each line is answered at once, and say how; None for any other text."""
    if isinstance(lines, list) or not lines.is_interactive():
        return None
    say("Type a text and press Enter; Ctrl-D ends.")
    return 1


def _check_texts(texts: list[str], input_file: Path) -> None:
    """Refuse the name of a file where a text is expected, and an input file that is not text."""
    from multihead.text.file_formats import check_has_lines
    from multihead.text.lines import STANDARD_INPUT

    for text in texts:
        if Path(text).suffix and " " not in text and Path(text).is_file():
            raise UsageError(f"{text} is a file. To translate its lines: --input {text}")
    if texts and str(input_file) != STANDARD_INPUT:
        raise UsageError(f"give either texts or --input {input_file}, not both")
    if not texts and str(input_file) != STANDARD_INPUT:
        check_has_lines(input_file, "--input")
        if not input_file.stat().st_size:
            say(f"{input_file} is empty: there is nothing to translate")


def evaluate_command(
    model: Model,
    source: Annotated[Path, typer.Option(help="Text to translate.")],
    reference: Annotated[Path, typer.Option(help="Reference translation, line by line.")],
    to: To = None,
    beam: Beam = None,
    alpha: Alpha = None,
    split: Split = None,
    compare: Annotated[
        str | None,
        typer.Option(help="A second model to compare with, by paired bootstrap.", autocompletion=completion.models),
    ] = None,
    lowercase_tokenized: Annotated[
        bool, typer.Option(help="Also report lower-cased, tokenized BLEU, as in the Multi30k literature.")
    ] = False,
    calibrate: Annotated[
        bool,
        typer.Option(
            "--calibrate", help="Store in the model how likely its translations are good: validation text only."
        ),
    ] = False,
    by_length: Annotated[bool, typer.Option("--by-length", help="Also BLEU by the length of the source.")] = False,
    picture: Annotated[Path | None, typer.Option(help="For --by-length: PNG file to draw it in.")] = None,
    engine: Engine = "auto",
    exact: Exact = False,
    no_guard: NoGuard = False,
    as_json: Json = False,
) -> None:
    """Score a model with BLEU and chrF. Prints sacreBLEU's signatures, and the paper's tokenized BLEU too."""
    search = search_options(exact, no_guard, beam=beam, alpha=alpha, split=split)
    engine = engine_name(engine, exact)
    if picture and not by_length:
        raise UsageError("--picture shows BLEU by length: add --by-length")
    if picture:
        require("matplotlib", extra="train", purpose="--picture")
    from multihead.evaluation.by_length import write_picture
    from multihead.evaluation.evaluate import TestSet, evaluate

    test = TestSet(
        source=source,
        reference=reference,
        to=to,
        lowercase_tokenized=lowercase_tokenized,
        by_length=by_length,
        calibrate=calibrate,
    )
    report = evaluate(model, test, search, compare, engine)
    print(report.as_json() if as_json else report.as_text())
    if picture:
        write_picture(report.by_length, picture, names=[model, compare] if compare else [model])
        say(f"written to {picture}")
