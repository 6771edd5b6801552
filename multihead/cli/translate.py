"""TODO."""

from pathlib import Path
from typing import Annotated

import typer

from multihead.cli.options import Alpha, Beam, Engine, Exact, Json, Model, NoGuard, Split, engine_name, search_options
from multihead.config.schema import BEAM
from multihead.console import say
from multihead.errors import UsageError


def translate_command(
    model: Model,
    text: Annotated[list[str] | None, typer.Argument(help="Texts; without them --input or standard input.")] = None,
    input_file: Annotated[Path, typer.Option("--input", help="File to translate; plain, .gz or -.")] = Path("-"),
    output_file: Annotated[Path, typer.Option("--output", "-o", help="File to write; plain, .gz or -.")] = Path("-"),
    beam: Beam = BEAM,
    alpha: Alpha = None,
    split: Split = None,
    n_best: Annotated[int, typer.Option(help="Translations of each line, separated by tabs.")] = 1,
    sample: Annotated[bool, typer.Option("--sample", help="Draw a translation instead of searching the best.")] = False,
    temperature: Annotated[float, typer.Option(help="Of --sample: below 1 is more careful, above 1 bolder.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Of --sample: from so many likeliest tokens; 0 for all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Of --sample: from the likeliest tokens of this probability.")] = 1.0,
    seed: Annotated[int, typer.Option(help="Of --sample.")] = 1,
    ensemble: Annotated[list[str] | None, typer.Option(help="A further model that votes; may be repeated.")] = None,
    engine: Engine = "auto",
    prune: Annotated[float | None, typer.Option(hidden=True)] = None,
    exact: Exact = False,
    no_guard: NoGuard = False,
    as_json: Json = False,
) -> None:
    """Translate texts, a file or standard input: one line out for each line in."""
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
        say("--prune has no effect any more: the search prunes only what cannot win")
    from multihead.text.lines import TextInput, open_output
    from multihead.translation.translator import as_line, load

    translator = load(model, *(ensemble or []), engine=engine)
    lines = TextInput.open(input_file) if text is None or text == [] else text
    chunk_size = 1 if isinstance(lines, TextInput) and lines.is_interactive() else None
    with open_output(output_file) as out:
        for number, translation in enumerate(translator.stream(lines, search, chunk_size, align=as_json), start=1):
            out.write(as_line(translation, as_json) + "\n")
            if not as_json:
                for warning in dict.fromkeys(translation.warnings):
                    say(f"line {number}: {warning}")


def evaluate_command(
    model: Model,
    source: Annotated[Path, typer.Option(help="Text to translate.")],
    reference: Annotated[Path, typer.Option(help="Its translation by people, line by line.")],
    beam: Beam = BEAM,
    alpha: Alpha = None,
    split: Split = None,
    compare: Annotated[str | None, typer.Option(help="A second model: paired bootstrap says if it differs.")] = None,
    lowercase_tokenized: Annotated[
        bool, typer.Option(help="Also lower-cased, tokenised BLEU, as the literature on Multi30k reports it.")
    ] = False,
    engine: Engine = "auto",
    exact: Exact = False,
    no_guard: NoGuard = False,
    as_json: Json = False,
) -> None:
    """Score a model: BLEU and chrF with their signatures, and the paper's own BLEU beside them."""
    search = search_options(exact, no_guard, beam=beam, alpha=alpha, split=split)
    engine = engine_name(engine, exact)
    from multihead.evaluation.evaluate import TestSet, evaluate

    test = TestSet(source=source, reference=reference, lowercase_tokenized=lowercase_tokenized)
    report = evaluate(model, test, search, compare, engine)
    print(report.as_json() if as_json else report.as_text())


def inspect_command(
    model: Model,
    text: Annotated[str, typer.Argument(help="The sentence to translate.")],
    output: Annotated[Path, typer.Option(help="page.html or picture.png.")],
    translation: Annotated[str | None, typer.Option(help="A translation to follow instead of the model's own.")] = None,
    beam: Beam = BEAM,
) -> None:
    """Show what every head of every layer attends to, as a self-contained page or a picture."""
    if output.suffix not in (".html", ".png"):
        raise UsageError(f"--output must end in .html or .png, got '{output}'")
    if not text.strip():
        raise UsageError("there is no text to look into")
    from multihead.inspection import page, picture
    from multihead.translation.translator import load

    translator = load(model)
    said = translation or translator.translate(text, beam=beam).text
    maps = translator.attention(text, said)
    write = page.write_page if output.suffix == ".html" else picture.write_picture
    write(maps, output, source=text, translation=said, model_name=translator.name)
    say(f"{text} -> {said}\nwritten to {output}")
