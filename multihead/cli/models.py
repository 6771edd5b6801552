"""Commands about model folders: `export`, `import`, `info`."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from multihead.cli import completion
from multihead.cli.options import Json, Model, Quiet, Verbose
from multihead.console import printable, say, say_detail, set_verbosity

SIZES = ("d_model", "d_ff", "encoder_layers", "decoder_layers", "n_heads", "d_k", "d_v", "dropout", "norm", "positions")


def _info_text(facts: dict[str, Any]) -> str:
    """Return facts as aligned lines."""
    lines = []
    for name, value in facts.items():
        match name, value:
            case "shape", dict():
                lines.append(f"{name:<16} {_in_words(_shape(value))}")
            case "search", dict():
                lines.append(f"{name:<16} {_in_words(_search(value))}")
            case "scores", list():
                lines += [
                    f"{score['name']:<16} {score['value']:.2f}  {score['set']}, {score['signature']}" for score in value
                ]
            case "validation", dict():
                lines += [f"validation       {field} {figure:.3f}" for field, figure in value.items()]
            case _, float():
                lines.append(f"{name:<16} {value:.4g}")
            case _:
                lines.append(f"{name:<16} {value:,}" if isinstance(value, int) else f"{name:<16} {value}")
    return "\n".join(lines)


def _shape(shape: dict[str, Any]) -> dict[str, Any]:
    """Return the sizes of a model, and what else differs from the defaults."""
    from dataclasses import asdict

    from multihead.config.schema import ModelConfig

    usual = asdict(ModelConfig(vocab_size=shape["vocab_size"]))
    return {field: value for field, value in shape.items() if field in SIZES or value != usual[field]}


def _search(search: dict[str, Any]) -> dict[str, Any]:
    """Return what a search uses, with a word in place of the table of confidences."""
    shown = {field: value for field, value in search.items() if value is not None and "confidence" not in field}
    return {**shown, "confidence": "calibrated" if search["confidence"] else "unknown"}


def _in_words(values: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in values.items())


def export_command(
    model: Model,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder to write.")],
    target_format: Annotated[
        str, typer.Option("--format", help="ctranslate2, marian or onnx.", autocompletion=completion.formats)
    ],
    quantization: Annotated[
        str, typer.Option(help="Of ctranslate2: float32, int8, int8_float32, int16 and others.")
    ] = "float32",
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    """Convert a model to CTranslate2, Marian or ONNX."""
    set_verbosity(quiet, verbose)
    from multihead.interop.formats import export
    from multihead.interop.hub import find_model

    export(find_model(model), target_format, output, quantization)
    for file in sorted(output.iterdir()):
        say_detail(f"{file.stat().st_size / 1e6:8.2f} MB  {file.name}")
    say(f"written to {output}")


def import_command(
    folder: Annotated[str, typer.Argument(help="A Hugging Face Marian / OPUS-MT folder, or hf:owner/name.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
) -> None:
    """Convert a Hugging Face Marian / OPUS-MT model to Multihead."""
    from multihead.interop.hub import import_model

    import_model(folder, output)
    say(f"written to {output}")


def info_command(
    model: Model,
    update: Annotated[
        bool,
        typer.Option(
            "--update", help="Of hf:owner/name: ask the hub for its newest version, and use that from now on."
        ),
    ] = False,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare every file of a model or a prepared corpus with SHA256SUMS.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Describe a model: shape, languages, training cost, scores."""
    from multihead.data.shards import is_corpus, verify_corpus
    from multihead.interop.hub import find_model, is_on_hub
    from multihead.storage.model_folder import ModelFolder

    folder = find_model(model, update)
    if verify and is_corpus(folder):
        print(f"verified: {', '.join(verify_corpus(folder))}")
        return
    stored = ModelFolder.open(folder)
    if verify:
        names = stored.verify()
        stored.weights(), stored.tokenizer(), stored.shortlist()
        say(f"verified: {', '.join(names)}")
    facts = stored.facts()
    if is_on_hub(model):  # the folder has the name of the commit
        facts |= {"model": model, "commit": folder.name}
    print(json.dumps(facts, indent=2, ensure_ascii=False) if as_json else printable(_info_text(facts)))
