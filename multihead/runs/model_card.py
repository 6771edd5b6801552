"""The model card: shape, data, training cost and scores of a published model."""

import shlex
from pathlib import Path

from multihead.config.schema import RunConfig
from multihead.data.cleaning import DROP_REASONS
from multihead.data.shards import CorpusSummary
from multihead.storage.model_folder import Provenance

UNKNOWN_LICENSE = "not given (`--set data.license=...`); fill it in before you share the model"


def write_card(name: str, config: RunConfig, summary: CorpusSummary, provenance: Provenance) -> str:
    """Return the README.md of a model folder."""
    model, data, start = config.model, config.data, config.train.base_model
    languages = f"{data.source_lang or '?'} → {data.target_lang or '?'}"
    return "\n".join(
        [
            f"# {name}: {languages}\n",
            f'A Transformer trained with Multihead. Translate with `multihead translate {shlex.quote(name)} "..."`.\n',
            "## Shape\n",
            f"- {model.encoder_layers} + {model.decoder_layers} layers, d_model {model.d_model}, d_ff {model.d_ff}, "
            f"{model.n_heads} heads, {model.norm}-norm, {model.positions} positions",
            f"- {provenance.parameters or 0:,} parameters, {model.vocab_size:,} {data.tokenizer.upper()} pieces\n",
            "## Data\n",
            *([f"{summary.description}\n"] if summary.description else []),
            f"- {summary.train_pairs:,} training pairs, {summary.valid_pairs:,} for validation",
            *_cleaning(summary),
            f"- license of the text: {data.license or UNKNOWN_LICENSE}\n",
            "## Training\n",
            *([f"- fine-tuned from {Path(start).name}: the license of its text applies too"] if start else []),
            f"- {provenance.steps or 0:,} steps, {provenance.target_tokens or 0:,} target tokens, "
            f"{(provenance.seconds or 0) / 60:.1f} minutes, seed {config.train.seed}",
            f"- cost as in the paper (time by capacity, §6.1): {provenance.flops_by_time or 0:.2g} FLOPs at "
            f"{(provenance.matmul_flops or 0) / 1e9:.0f} GFLOPS; "
            f"counted operations: {provenance.flops_counted or 0:.2g}",
            f"- published: {provenance.published}\n",
            "## Scores\n",
            "| set | score | value | signature |",
            "|---|---|---|---|",
            *(
                f"| {score.set} | {score.name} | {score.value:.2f} | `{_escape_cell(score.signature)}` |"
                for score in provenance.scores
            ),
            "",
        ]
    )


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
