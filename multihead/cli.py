"""The command line: each command a thin call into the package. stdout is data, stderr is talk."""

import errno
import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from multihead.config import (
    ALPHA,
    BEAM,
    ENGINES,
    ConfigError,
    Overrides,
    SearchConfig,
    UserError,
    check_engine,
    parse_settings,
    read_toml,
    search_config,
)
from multihead.options import Json, Model, Settings
from multihead.paper.commands import paper
from multihead.tables import table_of

app = typer.Typer(
    add_completion=False,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help answers in half the time, and shows [train] as it is
    help='The Transformer of "Attention Is All You Need": raw parallel text in, a translation model out.',
)

Source = Annotated[
    list[Path] | None, typer.Option(help="Text to translate from; plain, .gz or - for standard input. May be repeated.")
]
Target = Annotated[list[Path] | None, typer.Option(help="Its translation, line by line; one for each --source.")]
Weight = Annotated[
    list[float] | None,
    typer.Option(help="How often the pairs of a --source come in an epoch; one for each, by default 1."),
]
Output = Annotated[Path, typer.Option(help="Folder to write; given again, the run in it goes on.")]
ValidSource = Annotated[Path | None, typer.Option(help="Validation text; without it a slice is held out.")]
ValidTarget = Annotated[Path | None, typer.Option(help="Its translation.")]
VocabSize = Annotated[
    int | None, typer.Option(help="Pieces in the joint vocabulary; chosen by corpus size if not given.")
]
StartFrom = Annotated[
    str | None, typer.Option("--from", help="A trained model to start from: its shape, vocabulary and weights.")
]
SourceLang = Annotated[
    str | None, typer.Option(help="Language of the source, such as en; guessed from a.en if not given.")
]
TargetLang = Annotated[str | None, typer.Option(help="Language of the target.")]
PRESET_HELP = (
    "tiny, small, thorough, base, big, small-fast, base-fast, rnn-attention, convs2s, bytenet or table3-...; "
    "chosen by text and time if not given."
)
RunFile = Annotated[Path | None, typer.Option("--config", help="A TOML file with settings: [train] warmup = 8000.")]


@app.command("train")
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
    start: StartFrom = None,
    steps: Annotated[int | None, typer.Option(help="Stop after this many steps.")] = None,
    minutes: Annotated[float | None, typer.Option(help="Stop after this much time, everything included.")] = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    settings: Settings = None,
    config: RunFile = None,
) -> None:
    """Train a model from raw text in one command; without text, on the embedded English-German corpus."""
    from multihead.request import Request
    from multihead.run import train

    options = {
        "model.vocab_size": vocab_size,
        "train.start_from": start,
        "train.steps": steps,
        "train.minutes": minutes,
        "data.source_lang": source_lang,
        "data.target_lang": target_lang,
    }
    request = Request(
        output=output,
        source=source or None,
        target=target or None,
        weights=weight or (),
        valid_source=valid_source,
        valid_target=valid_target,
        data=data,
        preset=preset_name,
        settings=_settings(config, settings, options),
    )
    train(request)


@app.command("prepare")
def prepare_command(
    output: Annotated[Path, typer.Option(help="Folder to write; `multihead train --data` takes it.")],
    source: Source = None,
    target: Target = None,
    weight: Weight = None,
    valid_source: ValidSource = None,
    valid_target: ValidTarget = None,
    vocab_size: VocabSize = None,
    start: StartFrom = None,
    source_lang: SourceLang = None,
    target_lang: TargetLang = None,
    settings: Settings = None,
    config: RunFile = None,
) -> None:
    """Clean a corpus, learn its tokenizer and write token shards; says what was dropped and why."""
    from rich.console import Console

    from multihead import corpus
    from multihead.config import configure
    from multihead.journal import plain_talk
    from multihead.start import start_from

    languages = {"data.source_lang": source_lang, "data.target_lang": target_lang}
    given = _settings(config, settings, {"model.vocab_size": vocab_size, "train.start_from": start, **languages})
    if not source or not target:
        raise ConfigError("--source and --target are needed: the text to prepare, and its translation")
    run_config = configure(corpus.languages_of(source, target), given)
    model = start_from(run_config.train.start_from) if run_config.train.start_from else None
    if model:
        run_config = model.kept_in(run_config, given)
    valid = (valid_source, valid_target) if valid_source and valid_target else None
    if bool(valid_source) != bool(valid_target):
        raise ConfigError("--valid-source and --valid-target go together")
    text = corpus.from_files(source, target, valid, weight or ())
    vocabulary = model.tokenizer if model else vocab_size
    corpus.prepare(text, output, run_config.data, vocabulary, plain_talk(Console(stderr=True)))


@app.command("average")
def average_command(
    run: Annotated[Path, typer.Argument(help="The folder of a training run.")],
    output: Annotated[Path, typer.Option(help="Model folder to write.")],
    last: Annotated[int, typer.Option(min=1, help="How many of the newest checkpoints.")] = 5,
) -> None:
    """Average the last checkpoints of a run into a model (§6.1)."""
    from multihead import checkpoint, shortlist

    steps = checkpoint.saved_steps(run / "checkpoints")[-last:]
    if not steps:
        raise UserError(f"there are no checkpoints in {run}")
    folders = [run / "checkpoints" / f"step-{step}" for step in steps]
    newest = checkpoint.load(folders[-1])
    provenance = {"steps": steps[-1], "published": f"the average of steps {', '.join(map(str, steps))}"}
    weights = checkpoint.average(folders)
    output.mkdir(parents=True, exist_ok=True)
    if words := shortlist.load(run):
        words.save(output)
    search = checkpoint.read_search(run)
    checkpoint.save_model(output, weights, newest.config, newest.tokenizer_json, provenance, search)
    _say(f"averaged {len(steps)} checkpoints, steps {steps[0]:,} to {steps[-1]:,}, into {output}")


Beam = Annotated[int, typer.Option(help="Hypotheses kept at every step; 1 is greedy.")]
Alpha = Annotated[
    float | None,
    typer.Option(help=f"Length penalty ((5 + length) / 6)^alpha.  [default: what the model stores, else {ALPHA}]"),
]
Split = Annotated[
    bool | None,
    typer.Option(
        "--split/--no-split",
        help="Translate each sentence separately, or each line as a whole.  [default: as the model was trained]",
    ),
]
Engine = Annotated[
    str,
    typer.Option(help=f"{', '.join(ENGINES)}. auto: CTranslate2 where it can, one sentence at a time; else torch."),
]
Exact = Annotated[
    bool, typer.Option("--exact", help="The reference search: torch in float32, no pruning, no shortlist, no guard.")
]
NoGuard = Annotated[
    bool, typer.Option("--no-guard", help="Do not search again for what is empty, repeats itself or loses a number.")
]


def _search_options(exact: bool, no_guard: bool, **options: object) -> SearchConfig:
    """A search as the command line describes it."""
    if exact:
        options |= {"prune": 0.0, "shortlist": False}
    return search_config(guard=not (exact or no_guard), **options)


def _engine_of(engine: str, exact: bool) -> str:
    check_engine(engine)
    if exact and engine not in ("auto", "torch"):
        raise ConfigError(f"--exact searches with torch in float32: leave out --engine {engine}")
    return "torch" if exact else engine


@app.command("translate")
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
    prune: Annotated[float, typer.Option(help="Of torch: give up what is so many nats behind the best.")] = 0.0,
    exact: Exact = False,
    no_guard: NoGuard = False,
    as_json: Json = False,
) -> None:
    """Translate texts, a file or standard input: one line out for each line in."""
    search = _search_options(
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
        prune=prune,
    )
    engine = _engine_of(engine, exact)
    from multihead.text import open_output
    from multihead.translate import Input, as_line, load

    translator = load(model, *(ensemble or []), engine=engine)
    lines = Input(input_file) if text is None or text == [] else text
    window = 1 if isinstance(lines, Input) and lines.is_interactive() else None
    with open_output(output_file) as out:
        for number, translation in enumerate(translator.stream(lines, search, window, align=as_json), start=1):
            out.write(as_line(translation, as_json) + "\n")
            if not as_json:
                for warning in dict.fromkeys(translation.warnings):
                    _say(f"line {number}: {warning}")


@app.command("evaluate")
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
    search = _search_options(exact, no_guard, beam=beam, alpha=alpha, split=split)
    engine = _engine_of(engine, exact)
    from multihead.evaluate import TestSet, evaluate

    test = TestSet(source=source, reference=reference, lowercase_tokenized=lowercase_tokenized)
    report = evaluate(model, test, search, compare, engine)
    print(report.as_json() if as_json else report.as_text())


@app.command("inspect")
def inspect_command(
    model: Model,
    text: Annotated[str, typer.Argument(help="The sentence to translate.")],
    output: Annotated[Path, typer.Option(help="page.html or picture.png.")],
    translation: Annotated[str | None, typer.Option(help="A translation to follow instead of the model's own.")] = None,
    beam: Beam = BEAM,
) -> None:
    """Show what every head of every layer attends to, as a self-contained page or a picture."""
    if output.suffix not in (".html", ".png"):
        raise ConfigError(f"--output must end in .html or .png, got '{output}'")
    if not text.strip():
        raise ConfigError("there is no text to look into")
    from multihead import figures
    from multihead.translate import load

    translator = load(model)
    said = translation or translator.translate(text, beam=beam).text
    maps = translator.attention(text, said)
    write = figures.write_page if output.suffix == ".html" else figures.write_picture
    write(maps, output, source=text, translation=said, model_name=translator.name)
    _say(f"{text} -> {said}\nwritten to {output}")


@app.command("export")
def export_command(
    model: Model,
    output: Annotated[Path, typer.Option(help="Folder to write.")],
    target_format: Annotated[str, typer.Option("--format", help="ctranslate2, marian or onnx.")],
    quantization: Annotated[
        str, typer.Option(help="Of ctranslate2: float32, int8, int8_float32, int16 and others.")
    ] = "float32",
) -> None:
    """Write the same model for another engine: CTranslate2, Hugging Face Marian or ONNX."""
    from multihead.hub import find_model
    from multihead.interop import export

    export(find_model(model), target_format, output, quantization)
    _say(f"written to {output}")


@app.command("import")
def import_command(
    folder: Annotated[str, typer.Argument(help="A Hugging Face Marian / OPUS-MT folder, or hf:owner/name.")],
    output: Annotated[Path, typer.Option(help="Model folder to write.")],
) -> None:
    """Make a Multihead model of a Hugging Face Marian / OPUS-MT folder."""
    from multihead.hub import download, is_on_hub
    from multihead.marian_import import import_marian

    if is_on_hub(folder):
        import_marian(download(folder), output, folder)
    else:
        import_marian(Path(folder), output)
    _say(f"written to {output}")


bench = typer.Typer(no_args_is_help=True, help="Measure speed, beside the alternative in the same run.")
app.add_typer(bench, name="bench")


@bench.command("train")
def bench_train_command(
    preset_name: Annotated[str, typer.Option("--preset", help="What is trained.")] = "small",
    data: Annotated[Path | None, typer.Option(help="A prepared corpus; without it, random sentences.")] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps that are timed.")] = 20,
    batch_tokens: Annotated[int, typer.Option(help="Target tokens of a batch.")] = 4096,
    vocab_size: Annotated[int | None, typer.Option(help="Pieces in the vocabulary.")] = None,
    growth: Annotated[bool, typer.Option("--growth", help="Also by batch, vocabulary and length.")] = False,
    as_json: Json = False,
) -> None:
    """Training: tokens a second, beside a plain torch.nn.Transformer loop and the machine's matrix-multiply peak."""
    from multihead.bench_training import bench_growth, bench_training

    report = bench_training(preset_name, data, steps, batch_tokens, vocab_size)
    grown = bench_growth(preset_name, max(2, steps // 4)) if growth else []
    if as_json:
        print(json.dumps({**report.figures(), **({"growth": grown} if growth else {})}, indent=2))
    else:
        print("\n\n".join([report.as_text(), *([table_of(grown).as_text()] if growth else [])]))


@bench.command("translate")
def bench_translate_command(
    model: Model,
    source: Annotated[Path | None, typer.Option(help="Text to translate; without it, the embedded corpus.")] = None,
    reference: Annotated[Path | None, typer.Option(help="Its translation by people, to score with.")] = None,
    beam: Beam = BEAM,
    sentences: Annotated[int, typer.Option(min=1, help="At most so many.")] = 2000,
    growth: Annotated[bool, typer.Option("--growth", help="Also by beam and length.")] = False,
    picture: Annotated[Path | None, typer.Option(help="A picture of speed against BLEU to write, .png.")] = None,
    as_json: Json = False,
) -> None:
    """Translation: sentences a second and BLEU, beside CTranslate2's own best."""
    from multihead.bench_translation import bench_growth, bench_translation, read_text, write_picture

    text = read_text(source, reference, sentences)
    report = bench_translation(model, text, search_config(beam=beam))
    grown = bench_growth(model, text) if growth or picture else []
    if picture:
        write_picture(grown, picture)
    if as_json:
        print(json.dumps({**report.figures(), **({"growth": grown} if grown else {})}, indent=2))
    else:
        print("\n\n".join([report.as_text(), *([table_of(grown).as_text()] if grown else [])]))


@bench.command("serve")
def bench_serve_command(
    model: Model,
    seconds: Annotated[float, typer.Option(min=0.1, help="How long each number of clients asks.")] = 10.0,
    engine: Engine = "auto",
    as_json: Json = False,
) -> None:
    """Serving: requests a second and their times for 1, 8 and 64 clients, merged into batches and one at a time."""
    check_engine(engine)
    from multihead.serve.bench import bench_serving

    report = bench_serving(model, engine, seconds)
    print(json.dumps(report.figures(), indent=2) if as_json else report.as_text())


app.add_typer(paper, name="paper")


@app.command("serve")
def serve_command(
    models: Annotated[list[str], typer.Argument(help="Models: folders, names of bundled ones, or hf:owner/name.")],
    host: Annotated[
        str, typer.Option(help="Address to listen on; 0.0.0.0 for every one of this machine.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for any that is free.")] = 5000,
    api_keys: Annotated[
        Path | None, typer.Option(help="File with a key a line; without a key nobody is served.")
    ] = None,
    rate: Annotated[
        str, typer.Option(help="How often one client may ask, such as 60/minute; empty for no limit.")
    ] = "",
    proxy: Annotated[
        list[str] | None,
        typer.Option(help="Address or network of a proxy whose X-Forwarded-For is trusted; may be repeated."),
    ] = None,
    characters: Annotated[
        int, typer.Option(min=1, help="Characters of a text; a request has up to 10 times as many.")
    ] = 5000,
    waiting: Annotated[int, typer.Option(min=1, help="Characters that may wait, of all requests together.")] = 100_000,
    batch: Annotated[int, typer.Option(min=1, help="Sentences translated at a time, of all requests together.")] = 32,
    seconds: Annotated[float, typer.Option(min=0.1, help="Time for an answer; what takes longer is given up.")] = 30.0,
    log: Annotated[bool, typer.Option(help="A line of JSON on stderr for each request, without its text.")] = True,
    engine: Engine = "auto",
) -> None:
    """Translate for others: LibreTranslate's HTTP interface, and a page that shows what the model attends to."""
    check_engine(engine)
    try:
        from multihead.serve.server import Options, serve
        from multihead.serve.service import Limits
    except ModuleNotFoundError as error:
        raise UserError(f"serving needs {error.name}: pip install 'multihead[serve]'") from None
    limits = Limits(characters=characters, waiting=waiting, batch=batch, seconds=seconds)
    options = Options(
        host=host,
        port=port,
        engine=engine,
        api_keys=api_keys,
        rate=rate,
        proxies=proxy or (),
        log=log,
        limits=limits,
    )
    serve(models, options, _say)


@app.command("bulk")
def bulk_command(
    model: Model,
    source: Annotated[Path, typer.Argument(metavar="INPUT", help="A .parquet file, a folder of them, or text.")],
    output: Annotated[Path, typer.Option(help="Folder for Parquet files; given again, the work in it goes on.")],
    id_column: Annotated[str, typer.Option(help="Of Parquet; the id of a line of text is its number.")] = "id",
    text_column: Annotated[str, typer.Option(help="Of Parquet: what is translated.")] = "text",
    workers: Annotated[int, typer.Option(min=0, help="Cores that translate; 0 for all of the cluster.")] = 0,
    address: Annotated[str | None, typer.Option(help="A Ray cluster; without it, one on this machine.")] = None,
    beam: Beam = BEAM,
    alpha: Alpha = None,
    split: Split = None,
    engine: Engine = "auto",
    no_guard: NoGuard = False,
) -> None:
    """Translate any amount of text on a Ray cluster: each row once, in order, whoever is killed on the way."""
    search = search_config(beam=beam, alpha=alpha, split=split, guard=not no_guard)
    check_engine(engine)
    from multihead.bulk import Options, bulk

    options = Options(
        search=search,
        engine=engine,
        id_column=id_column,
        text_column=text_column,
        workers=workers,
        address=address,
    )
    n_rows = bulk(model, source, output, options)
    _say(f"{n_rows:,} rows are translated in {output}")


@app.command("plan")
def plan_command(
    source: Annotated[list[Path], typer.Option(help="Text to train on; plain or .gz. May be repeated.")],
    target: Annotated[list[Path], typer.Option(help="Its translation, line by line; one for each --source.")],
    output: Annotated[Path, typer.Option(help="Where the run would write.")] = Path("."),
    preset_name: Annotated[str | None, typer.Option("--preset", help=PRESET_HELP)] = None,
    steps: Annotated[int, typer.Option(min=1, help="Steps that are measured.")] = 5,
    settings: Settings = None,
    config: RunFile = None,
    as_json: Json = False,
) -> None:
    """Say what a training run will need, before it: hours, memory and disk here, and hours on GPUs."""
    from multihead.plan import plan

    made = plan((source, target), preset_name, _settings(config, settings, {}), output, steps)
    print(json.dumps(made.figures(), indent=2) if as_json else made.as_text())


@app.command("info")
def info_command(model: Model, as_json: Json = False) -> None:
    """Say what a model is: shape, parameters, languages, data, training cost, scores."""
    from multihead import card
    from multihead.hub import find_model

    facts = card.facts(find_model(model))
    print(json.dumps(facts, indent=2, ensure_ascii=False) if as_json else card.as_text(facts))


def _say(line: str) -> None:
    print(line, file=sys.stderr)


def _settings(run_file: Path | None, settings: list[str] | None, options: Mapping[str, object]) -> Overrides:
    """What the user set: the run file, then --set, then the options that have a name of their own."""
    given = {name: value for name, value in options.items() if value is not None}
    return {**(read_toml(run_file) if run_file else {}), **parse_settings(settings or []), **given}


def main() -> None:
    said_in_words(app)


def said_in_words(command: Callable[[], object]) -> None:
    """Run a command; what the user can mend is said in a sentence, never shown as a traceback."""
    try:
        command()
    except ConfigError as error:
        _fail(str(error), status=2)
    except UserError as error:
        _fail(str(error), status=1)
    except BrokenPipeError:
        _end_quietly()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):  # Typer turns it into an exit with status 1
            _end_quietly()
        raise
    except OSError as error:
        full = error.errno == errno.ENOSPC or "No space left" in str(error)
        advice = "; the disk is full: free some space and run the same command again" if full else ""
        _fail(f"cannot read or write a file: {error}{advice}", status=1)
    except KeyboardInterrupt:
        _fail("interrupted", status=130)


def _end_quietly() -> NoReturn:
    """Exit as a command that SIGPIPE ends: whatever reads our output, such as `head`, has seen enough."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # or flushing standard output at exit would fail as well
    sys.exit(141)


def _fail(message: str, status: int) -> NoReturn:
    _say(f"multihead: {message}")
    sys.exit(status)
