"""The model card: shape, data, training cost and scores of a published model."""

import shlex
from collections.abc import Sequence
from pathlib import Path

from multihead.config.directions import Languages
from multihead.config.schema import RunConfig
from multihead.data.cleaning import DROP_REASONS
from multihead.data.shards import CorpusSummary
from multihead.storage.model_folder import Provenance
from multihead.text.target_languages import target_pieces

UNKNOWN_LICENSE = "not given (`--set data.license=...`); fill it in before you share the model"


def write_card(name: str, config: RunConfig, summary: CorpusSummary, provenance: Provenance) -> str:
    """Return the README.md of a model folder."""
    model, data, start = config.model, config.data, config.train.base_model
    languages = ", ".join(f"{source or '?'} → {target or '?'}" for source, target in data.pairs)
    option = f" --to {data.pairs[0][1]}" if data.directions else ""
    return "\n".join(
        [
            f"# {name}: {languages}\n",
            "A Transformer trained with Multihead. "
            f'Translate with `multihead translate {shlex.quote(name)}{option} "..."`.\n',
            *(_directions_note(data.pairs) if data.directions else []),
            "## Shape\n",
            f"- {model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}, d_ff {model.d_ff}, "
            f"{model.n_heads} heads, {model.norm}-norm, {model.positions} positions",
            _listed(
                _known("{:,} parameters", provenance.parameters),
                f"{model.vocab_size:,} {data.tokenizer.upper()} pieces",
            )
            + "\n",
            "## Data\n",
            *([f"{summary.description}\n"] if summary.description else []),
            f"- {summary.train_pairs:,} training pairs, {summary.valid_pairs:,} for validation",
            *_cleaning(summary),
            f"- license of the text: {data.license or UNKNOWN_LICENSE}\n",
            "## Training\n",
            *([f"- fine-tuned from {Path(start).name}: the license of its text applies too"] if start else []),
            _listed(
                _known("{:,} steps", provenance.steps),
                _known("{:,} target tokens", provenance.target_tokens),
                _known("{:.1f} minutes", provenance.seconds, 1 / 60),
                f"seed {config.train.seed}",
            ),
            *_cost(provenance),
            *([f"- published: {provenance.published}"] if provenance.published else []),
            "",
            "## Scores\n",
            *_scores(provenance),
            "",
        ]
    )


def _directions_note(pairs: Sequence[Languages]) -> list[str]:
    pieces = ", ".join(f"`{piece}`" for piece in target_pieces(target for _, target in pairs))
    return [
        f"The language to translate into is chosen with `--to`. In the model, and in exports of it, a source begins "
        f"with the piece of that language: {pieces}.\n"
    ]


def _listed(*parts: str | None) -> str:
    """Return a line of a list with the parts that are known."""
    return "- " + ", ".join(part for part in parts if part)


def _known(template: str, value: float | None, factor: float = 1) -> str | None:
    """Return a figure as text; None if it is not known."""
    return None if value is None else template.format(value if factor == 1 else value * factor)


def _cost(provenance: Provenance) -> list[str]:
    by_time = None
    if provenance.flops_by_time is not None and provenance.matmul_flops is not None:
        by_time = (
            f"cost as in the paper (time by capacity, §6.1): {provenance.flops_by_time:.2g} FLOPs at "
            f"{provenance.matmul_flops / 1e9:.0f} GFLOPS"
        )
    counted = _known("counted operations: {:.2g}", provenance.flops_counted)
    known = [part for part in (by_time, counted) if part]
    return [f"- {'; '.join(known)}"] if known else []


def _scores(provenance: Provenance) -> list[str]:
    rows = [
        f"| {score.set} | {score.name} | {score.value:.2f} | `{_escape_cell(score.signature)}` |"
        for score in provenance.scores
    ]
    return ["| set | score | value | signature |", "|---|---|---|---|", *rows] if rows else ["unknown"]


def _escape_cell(text: str) -> str:
    return text.replace("|", "\\|")  # an unescaped one would end the cell


def _cleaning(summary: CorpusSummary) -> list[str]:
    read, kept = summary.cleaning["read"], summary.cleaning["kept"]
    dropped = [
        f"  - {count:,}: {DROP_REASONS[rule]}"
        for rule, count in summary.cleaning.items()
        if rule in DROP_REASONS and count
    ]
    return [f"- cleaning kept {kept:,} of {read:,} pairs" + ("; it dropped" if dropped else ""), *dropped]
