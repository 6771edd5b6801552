"""The model card: what a published model is, what it was made from, what it cost, and how good it is."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from multihead.checkpoint import Provenance, read_config, read_provenance, read_search, usable
from multihead.config import RunConfig
from multihead.corpus import Summary
from multihead.model import count_parameters
from multihead.text import RULES
from multihead.variants import build_model

UNKNOWN_LICENCE = "not given (`--set data.licence=...`); fill it in before you share the model"


def write_card(name: str, config: RunConfig, summary: Summary, provenance: Provenance) -> str:
    """README.md of a model folder."""
    model, data, start = config.model, config.data, config.train.start_from
    languages = f"{data.source_lang or '?'} → {data.target_lang or '?'}"
    return "\n".join(
        [
            f"# {name}: {languages}\n",
            f'A Transformer trained with Multihead. Translate with `multihead translate {name} "..."`.\n',
            "## Shape\n",
            f"- {model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}, d_ff {model.d_ff}, "
            f"{model.n_heads} heads, {model.norm}-norm, {model.positions} positions",
            f"- {provenance['parameters']:,} parameters, {model.vocab_size:,} {data.tokenizer.upper()} pieces\n",
            "## Data\n",
            *([f"{summary.description}\n"] if summary.description else []),
            f"- {summary.train_pairs:,} training pairs, {summary.valid_pairs:,} for validation",
            *_cleaning(summary),
            f"- licence of the text: {data.licence or UNKNOWN_LICENCE}\n",
            "## Training\n",
            *([f"- started from {Path(start).name}: its text and licence count too"] if start else []),
            f"- {provenance['steps']:,} steps, {provenance['target_tokens']:,} target tokens, "
            f"{provenance['seconds'] / 60:.1f} minutes, seed {config.train.seed}",
            f"- cost as the paper counts it (time by capacity, §6.1): {provenance['flops_by_time']:.2g} FLOPs at "
            f"{provenance['matmul_flops'] / 1e9:.0f} GFLOPS; counted by operations: {provenance['flops_counted']:.2g}",
            f"- published: {provenance['published']}\n",
            "## Scores\n",
            "| set | score | value | signature |",
            "|---|---|---|---|",
            *(
                f"| {score['set']} | {score['name']} | {score['value']:.2f} | `{_in_a_cell(score['signature'])}` |"
                for score in provenance["scores"]
            ),
            "",
        ]
    )


def _in_a_cell(text: str) -> str:
    return text.replace("|", "\\|")  # a bare one would end the cell


def _cleaning(summary: Summary) -> list[str]:
    read, kept = summary.cleaning["read"], summary.cleaning["kept"]
    dropped = [f"  - {count:,}: {RULES[rule]}" for rule, count in summary.cleaning.items() if rule in RULES and count]
    return [f"- cleaning kept {kept:,} of {read:,} pairs" + ("; it dropped" if dropped else ""), *dropped]


def facts(folder: Path) -> dict[str, Any]:
    """What a model is, for people and programs."""
    config, provenance = read_config(usable(folder)), read_provenance(folder)
    with torch.device("meta"):  # the shape alone, no memory for weights
        parameters = count_parameters(build_model(config.model))
    return {
        "model": folder.name,
        "languages": f"{config.data.source_lang or '?'} to {config.data.target_lang or '?'}",
        "parameters": parameters,
        "shape": asdict(config.model),
        "tokenizer": f"{config.data.tokenizer}, {config.model.vocab_size} pieces",
        "search": asdict(read_search(folder)),
        **provenance,
    }


def as_text(facts: dict[str, Any]) -> str:
    """Facts as lines."""
    lines = []
    for name, value in facts.items():
        match name, value:
            case "shape" | "search", dict():
                lines.append(f"{name:<16} " + ", ".join(f"{field} {size}" for field, size in value.items()))
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
