"""TODO."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from multihead.cli.options import Json, Model
from multihead.console import say


def model_info(folder: Path) -> dict[str, Any]:
    """What a model is, for people and programs."""
    import torch

    from multihead.model.build import build_model
    from multihead.model.weights import count_parameters
    from multihead.storage.model_folder import read_config, read_provenance, read_search, usable_folder

    config, provenance = read_config(usable_folder(folder)), read_provenance(folder)
    with torch.device("meta"):  # the shape alone, no memory for weights
        parameters = count_parameters(build_model(config.model))
    return {
        "model": folder.name,
        "languages": f"{config.data.source_lang or '?'} to {config.data.target_lang or '?'}",
        "parameters": parameters,
        "shape": asdict(config.model),
        "tokenizer": f"{config.data.tokenizer}, {config.model.vocab_size} pieces",
        "search": asdict(read_search(folder)),
        **provenance.to_json(),
    }


def _info_text(facts: dict[str, Any]) -> str:
    """Facts as lines."""
    lines = []
    for name, value in facts.items():
        match name, value:
            case "shape" | "search", dict():
                lines.append(f"{name:<16} " + ", ".join(f"{field} {size}" for field, size in value.items()))
            case "scores", list() | tuple():
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


def export_command(
    model: Model,
    output: Annotated[Path, typer.Option(help="Folder to write.")],
    target_format: Annotated[str, typer.Option("--format", help="ctranslate2, marian or onnx.")],
    quantization: Annotated[
        str, typer.Option(help="Of ctranslate2: float32, int8, int8_float32, int16 and others.")
    ] = "float32",
) -> None:
    """Write the same model for another engine: CTranslate2, Hugging Face Marian or ONNX."""
    from multihead.interop.formats import export
    from multihead.interop.hub import find_model

    export(find_model(model), target_format, output, quantization)
    say(f"written to {output}")


def import_command(
    folder: Annotated[str, typer.Argument(help="A Hugging Face Marian / OPUS-MT folder, or hf:owner/name.")],
    output: Annotated[Path, typer.Option(help="Model folder to write.")],
) -> None:
    """Make a Multihead model of a Hugging Face Marian / OPUS-MT folder."""
    from multihead.interop.hub import download, is_on_hub
    from multihead.interop.marian.importer import import_marian

    if is_on_hub(folder):
        import_marian(download(folder), output, folder)
    else:
        import_marian(Path(folder), output)
    say(f"written to {output}")


def info_command(model: Model, as_json: Json = False) -> None:
    """Say what a model is: shape, parameters, languages, data, training cost, scores."""
    from multihead.interop.hub import find_model

    facts = model_info(find_model(model))
    print(json.dumps(facts, indent=2, ensure_ascii=False) if as_json else _info_text(facts))
