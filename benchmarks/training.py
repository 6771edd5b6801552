"""Training throughput of a preset: real target tokens a second, and the share of this machine's matrix-multiply peak.

    python benchmarks/training.py --data PREPARED --preset small --steps 25

PREPARED is a folder made by `multihead prepare`. Run it on an otherwise idle machine.
"""

import argparse
import json
import time
from itertools import islice
from pathlib import Path

from multihead.batches import Batch, stream
from multihead.config import ModelConfig, configure, preset
from multihead.corpus import read_summary
from multihead.devices import matmul_flops
from multihead.tokenizer import PAD_ID, SubwordTokenizer
from multihead.trainer import Trainer


def training_flops(model: ModelConfig, batch: Batch) -> float:
    """Operations of one forward and backward pass over the real tokens: 6 a weight and token, and attention itself."""
    heads = model.n_heads * (2 * model.d_k + 2 * model.d_v) * model.d_model
    cross_kv = model.n_heads * (model.d_k + model.d_v) * model.d_model
    feed_forward = 2 * model.d_model * model.d_ff
    source = (batch.source != PAD_ID).sum(dim=1).double()
    target = (batch.target_out != PAD_ID).sum(dim=1).double()
    per_source = model.encoder_layers * (heads + feed_forward) + model.decoder_layers * cross_kv
    per_target = model.decoder_layers * (2 * heads - cross_kv + feed_forward) + model.d_model * model.vocab_size
    pairs = model.encoder_layers * source**2 + model.decoder_layers * (target**2 + target * source)
    attention = 6 * model.n_heads * (model.d_k + model.d_v) * float(pairs.sum())
    return 6 * (per_source * float(source.sum()) + per_target * float(target.sum())) + attention


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--batch-tokens", type=int, default=4096)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--warm-up", type=int, default=4)
    arguments = parser.parse_args()

    vocab_size = read_summary(arguments.data).vocab_size
    settings = {"model.vocab_size": vocab_size, "data.batch_tokens": arguments.batch_tokens}
    config = configure(preset(arguments.preset), settings)
    trainer = Trainer(config, arguments.data, SubwordTokenizer.load(arguments.data / "tokenizer.json"))
    for _ in range(arguments.warm_up):
        trainer.step()

    # What is about to be trained on, read apart so that counting is not timed: order is a function of the cursor.
    coming = stream(trainer.train_shards, arguments.batch_tokens, config.train.seed, trainer.state.cursor)
    batches = [batch for batch, _ in islice(coming, arguments.steps)]
    began = time.perf_counter()
    for _ in batches:
        trainer.step()
    seconds = time.perf_counter() - began
    flops = sum(training_flops(config.model, batch) for batch in batches)
    n_tokens, n_padded = (
        sum(counts) for counts in zip(*((b.n_tokens, b.target_out.numel()) for b in batches), strict=True)
    )
    peak = matmul_flops(trainer.device, seconds=2.0)
    print(
        json.dumps(
            {
                "preset": arguments.preset,
                "tokens_per_second": round(n_tokens / seconds, 1),
                "gflops": round(flops / seconds / 1e9, 1),
                "matmul_gflops": round(peak / 1e9, 1),
                "share_of_peak": round(flops / seconds / peak, 3),
                "target_padding": round(1 - n_tokens / n_padded, 4),
            }
        )
    )


if __name__ == "__main__":
    main()
