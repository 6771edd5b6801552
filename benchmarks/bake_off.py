"""Train every variant on the same text for the same processor time, and rank them.

python -m benchmarks.bake_off DATA OUTPUT --minutes 3 [--picture docs/bake-off.png]

DATA is a corpus made by `multihead prepare`. Time is processor time, so that two variants can be trained at once and
other load on the machine does not matter. Variants that OUTPUT already contains are not trained again.
"""

import argparse
import json
import time
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure

from multihead.config.presets import preset
from multihead.config.resolve import configure
from multihead.config.schema import SearchConfig, Settings
from multihead.data.shards import Shards, read_summary
from multihead.evaluation.metrics import bleu
from multihead.hardware.memory import keep_freed_memory
from multihead.model.weights import count_parameters
from multihead.text.tokenizer import SubwordTokenizer
from multihead.training.metrics import perplexity
from multihead.training.schedule import training_seconds
from multihead.training.trainer import Trainer
from multihead.training.validation import Validator

# One recipe for all: the shape of `tiny`, Adam, a learning rate that suits all of them, and no dropout in a few epochs.
RECIPE: Settings = {
    **preset("tiny"),
    "model.dropout": 0.0,
    "train.optimizer": "adam",
    "train.lr_scale": 0.4,
    "model.window": 8,
    "model.projected_length": 16,
    "model.global_tokens": 1,
}
N_SENTENCES = 500  # of the validation text, translated with beam 4


def both(mixer: str) -> Settings:
    return {"model.encoder_mixer": mixer, "model.decoder_mixer": mixer}


ENTRIES: dict[str, Settings] = {
    "self-attention, as in the paper": {},
    "score: dot product without the root": {"model.attention_score": "dot"},
    "score: additive": {"model.attention_score": "additive"},
    "positions: learned": {"model.positions": "learned"},
    "positions: relative": {"model.positions": "relative"},
    "positions: none": {"model.positions": "none"},
    "local attention, r = 8": both("local"),
    "Linformer, p = 16 (encoder)": {"model.encoder_mixer": "linformer"},
    "BigBird, r = 8 (encoder)": {"model.encoder_mixer": "bigbird"},
    "LSTM": both("lstm"),
    "GRU": both("gru"),
    "convolution, k = 3": both("convolution"),
    "convolution, dilated": both("dilated"),
    "convolution, separable": both("separable"),
    "convolution, gated": both("gated"),
    "as rnn-attention": {
        **both("lstm"),
        "model.attention_score": "additive",
        "model.positions": "none",
        "model.n_heads": 1,
        "model.d_k": 128,
        "model.d_v": 128,
        "model.encoder_layers": 2,
        "model.decoder_layers": 2,
    },
    "as convs2s": {
        **both("gated"),
        "model.attention_score": "dot",
        "model.positions": "learned",
        "model.n_heads": 1,
        "model.d_k": 128,
        "model.d_v": 128,
    },
    "as bytenet": {
        **both("dilated"),
        "model.positions": "none",
        "model.n_heads": 1,
        "model.d_k": 128,
        "model.d_v": 128,
        "model.encoder_layers": 5,
        "model.decoder_layers": 5,
    },
}


def train_one(label: str, data: Path, output: Path, minutes: float) -> dict[str, Any]:
    """Train a variant and store its result, or return the stored result."""
    path = output / f"{list(ENTRIES).index(label):02}.json"
    if path.exists():
        stored: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        return stored
    torch.set_num_threads(1)
    summary = read_summary(data)
    settings = {"model.vocab_size": summary.vocab_size, "train.minutes": minutes, "train.steps": 1_000_000}
    keep_freed_memory()
    trainer = Trainer(configure(RECIPE, ENTRIES[label], settings), data, SubwordTokenizer.load(data / "tokenizer.json"))
    began = time.process_time()
    while trainer.state.seconds < training_seconds(trainer.config.train):
        trainer.step()
        trainer.state.seconds = time.process_time() - began
    validator = Validator(trainer.full_model, trainer.tokenizer, Shards(data, "valid"), trainer.config.data)
    _, translations, references = zip(*validator.translate(N_SENTENCES, SearchConfig()), strict=True)
    result = {
        "label": label,
        "parameters": count_parameters(trainer.full_model),
        "steps": trainer.state.step,
        "tokens_per_second": trainer.state.tokens_seen / trainer.state.seconds,
        "perplexity": perplexity(validator.loss()),
        "bleu": bleu(translations, references, summary.target_lang),
    }
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")
    return result


def draw(results: list[dict[str, Any]], path: Path, minutes: float) -> None:
    figure = Figure(figsize=(9, 0.36 * len(results) + 1), layout="constrained", facecolor="white")
    axes = figure.subplots()
    rising = results[::-1]
    colors = ["#2563eb" if one["label"].startswith("self-attention") else "#94a3b8" for one in rising]
    bars = axes.barh([one["label"] for one in rising], [one["bleu"] for one in rising], color=colors, height=0.7)
    notes = [f"{one['bleu']:.1f}   ({one['steps']:,} steps, perplexity {one['perplexity']:.1f})" for one in rising]
    axes.bar_label(bars, notes, padding=4, fontsize=8, color="0.3")
    axes.set_xlim(0, 1.45 * max(one["bleu"] for one in results))
    axes.set_title(f"BLEU on Multi30k val after {minutes:g} minutes of one core", loc="left")
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_xticks([])
    figure.savefig(path, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    one = partial(train_one, data=options.data, output=options.output, minutes=options.minutes)
    with ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool:
        results = sorted(pool.map(one, ENTRIES), key=lambda result: -result["bleu"])
    print("| variant | parameters | steps | tokens/s | perplexity | BLEU |\n|---|---|---|---|---|---|")
    for it in results:
        print(
            f"| {it['label']} | {it['parameters'] / 1e6:.2f} M | {it['steps']:,} | {it['tokens_per_second']:,.0f} "
            f"| {it['perplexity']:.2f} | {it['bleu']:.1f} |"
        )
    if options.picture:
        draw(results, options.picture, options.minutes)


if __name__ == "__main__":
    main()
