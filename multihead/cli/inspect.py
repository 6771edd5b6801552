"""`multihead inspect`: the attention of a sentence, what each head does on a test set, and a model without some."""

import json
from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.options import Beam, Json, Model, Quiet, To, search_options
from multihead.console import printable, say, set_verbosity
from multihead.errors import UsageError, require
from multihead.storage.files import check_writable

PURPOSE = "the attention of every head"


def inspect_command(
    model: Model,
    text: Annotated[str | None, typer.Argument(help="The sentence to translate.")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            "-o",
            help="File to write: .html or .png of a sentence, .png of --heads; with --prune the folder of a model.",
        ),
    ] = None,
    translation: Annotated[str | None, typer.Option(help="Translation to inspect instead of the model's own.")] = None,
    heads: Annotated[
        bool, typer.Option("--heads", help="What each head does on a test set, and what is lost without it.")
    ] = False,
    examples: Annotated[
        bool, typer.Option("--examples", help="Sentences of a test set that show heads as the paper's Figures 3 to 5.")
    ] = False,
    prune: Annotated[
        int | None,
        typer.Option(min=1, metavar="K", help="Write the model without the K least important heads to --output."),
    ] = None,
    source: Annotated[Path | None, typer.Option(help="The test set of --heads, --prune and --examples.")] = None,
    reference: Annotated[
        Path | None, typer.Option(help="Of --heads and --prune: its translation, line by line.")
    ] = None,
    trees: Annotated[
        Path | None, typer.Option(help="The tree of each source line in Penn Treebank brackets, as a parser writes it.")
    ] = None,
    sample: Annotated[int, typer.Option(min=1, help="Lines to use, from all parts of the test set.")] = 500,
    most: Annotated[int, typer.Option(min=1, help="Examples of each kind.")] = 3,
    no_bleu: Annotated[
        bool, typer.Option("--no-bleu", help="Of --heads: leave out BLEU, which takes most of the time.")
    ] = False,
    to: To = None,
    beam: Beam = None,
    as_json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show the attention of every layer and head. Writes a page or a picture, or measures heads on a test set."""
    set_verbosity(quiet)
    if not (heads or examples or prune):
        if source or reference or trees or as_json:
            raise UsageError("--source, --reference, --trees and --json need --heads, --prune or --examples")
        _inspect_sentence(model, text, output, translation, to, beam)
        return
    if text is not None or translation is not None:
        raise UsageError("--heads, --prune and --examples read a test set with --source, not a sentence")
    if source is None:
        raise UsageError("give the test set with --source")
    if examples:
        if heads or prune or output or reference:
            raise UsageError("--examples prints sentences of --source; run --heads and --prune apart from it")
        _find_examples(model, source, trees, sample, most, to, as_json)
        return
    _check_options_of_heads(reference, output, prune)
    _measure_heads(model, (source, reference, trees, sample), output, prune, not no_bleu, to, beam, as_json)


def _inspect_sentence(
    model: str, text: str | None, output: Path | None, translation: str | None, to: str | None, beam: int | None
) -> None:
    """Write the attention maps of a sentence."""
    if text is None or output is None:
        raise UsageError(
            "give a sentence and a file, `multihead inspect MODEL TEXT --output page.html`; or a test set, "
            "`multihead inspect MODEL --heads --source F --reference F`"
        )
    if output.suffix not in (".html", ".png"):
        raise UsageError(f"--output must end in .html or .png, got '{output}'")
    if not text.strip():
        raise UsageError("the text to inspect is empty")
    require("torch", extra="train", purpose=PURPOSE)
    from multihead.inspection import page, picture
    from multihead.translation.translator import load

    translator = load(model).into(to)
    shown = translation or translator.translate(text, beam=beam).text
    maps = translator.attention(text, shown)
    write = page.write_page if output.suffix == ".html" else picture.write_picture
    write(maps, output, source=text, translation=shown, model_name=translator.name)
    say(f"{text} -> {shown}\nwritten to {output}")


def _check_options_of_heads(reference: Path | None, output: Path | None, prune: int | None) -> None:
    if reference is None:
        raise UsageError("what is lost without a head is measured on translations: give them with --reference")
    if prune and output is None:
        raise UsageError("--prune writes a model: give its folder with --output")
    if output and prune:
        check_writable(output, None, "an empty folder")
    elif output and output.suffix != ".png":
        raise UsageError(f"--output of --heads must end in .png, got '{output}'")


def _measure_heads(
    model: str,
    test_set: tuple[Path, Path | None, Path | None, int],
    output: Path | None,
    prune: int | None,
    with_bleu: bool,
    to: str | None,
    beam: int | None,
    as_json: bool,
) -> None:
    """Print what each head does; write a picture of it, or the model without some heads."""
    require("torch", extra="train", purpose=PURPOSE)
    from multihead.paper import heads as measuring
    from multihead.translation.translator import load

    lines = measuring.read_test_set(*test_set)
    translator, search = load(model, engine="torch").into(to), search_options(False, False, beam=beam)
    if prune:
        measuring.check_number(translator, prune)
    report = measuring.measure_heads(translator, lines, search, say, with_bleu=with_bleu)
    if prune and output:
        from multihead.runs.prune import write_pruned

        report = measuring.prune(translator, lines, search, report, prune, say)
        assert translator.folder and report.pruned
        note = report.describe_pruned(test_set[0].name)
        write_pruned(translator.folder, report.pruned.removed, output, note)
        say(note)
    elif output:
        from multihead.paper.heads_picture import write_heads_picture

        write_heads_picture(report, output)
    if output:
        say(f"written to {output}")
    if as_json:
        print(json.dumps(report.as_json(), indent=2, ensure_ascii=False))
    else:
        report.to_table().show()


def _find_examples(
    model: str, source: Path, trees: Path | None, sample: int, most: int, to: str | None, as_json: bool
) -> None:
    require("torch", extra="train", purpose=PURPOSE)
    from multihead.paper import heads as measuring
    from multihead.translation.translator import load

    lines = measuring.read_test_set(source, trees=trees, sample=sample)
    found = measuring.examples_in(load(model, engine="torch").into(to), lines, most)
    if as_json:
        print(json.dumps([one.as_json() for one in found], indent=2, ensure_ascii=False))
    else:
        print(printable("\n\n".join(one.as_text() for one in found)))
    if not found:
        say("no sentence has a word that attends far away, a pronoun that attends to a noun, or another clear pattern")
