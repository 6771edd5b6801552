"""What training costs: operations counted from a model's shape, the paper's estimate by time, hours on hardware."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multihead.config.schema import ModelConfig

Lengths = Sequence[float] | NDArray[np.float64]

ASSUMED_SENTENCE_TOKENS = (
    30  # tokens of a sentence where nothing is known of the text; attention, which depends on it, is 1 % of base
)


# Operations


def training_flops(model: ModelConfig, source: Lengths, target: Lengths) -> float:
    """Operations of one forward and backward pass over pairs of these lengths, in tokens.

    6 for each token and each weight that it meets in a matrix product (2 forward, 4 backward), and attention itself.
    Layers are counted as the paper's, whatever stands in the place of their attention.
    """
    source, target = np.asarray(source, dtype=np.float64), np.asarray(target, dtype=np.float64)
    heads = model.n_heads * (2 * model.d_k + 2 * model.d_v) * model.d_model
    cross_kv = model.n_heads * (model.d_k + model.d_v) * model.d_model
    feed_forward = 2 * model.d_model * model.d_ff
    per_source = model.encoder_layers * (heads + feed_forward) + model.decoder_layers * cross_kv
    per_target = model.decoder_layers * (2 * heads - cross_kv + feed_forward) + model.d_model * model.vocab_size
    pairs = model.encoder_layers * source**2 + model.decoder_layers * (target**2 + target * source)
    attention = 6 * model.n_heads * (model.d_k + model.d_v) * float(pairs.sum())
    return 6 * (per_source * float(source.sum()) + per_target * float(target.sum())) + attention


def counted_flops(model: ModelConfig, n_tokens: float, length: float = ASSUMED_SENTENCE_TOKENS) -> float:
    """Operations of training on so many target tokens, in sentences of one length, the source being as long."""
    return n_tokens / length * training_flops(model, [length], [length])


def flops_by_time(seconds: float, n_devices: int, flops: float) -> float:
    """§6.1: the time, times the number of devices, times what each sustains: operations that could have been done."""
    return seconds * n_devices * flops


# Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Something to train on, and how much of it a training is assumed to use."""

    name: str
    precision: str  # the fastest that we train in there
    flops: float  # operations a second, dense, in that precision: what its maker states
    share: float  # of that which training reaches
    watts: float | None = None  # of the board at its limit

    def hours(self, n_flops: float) -> float:
        return n_flops / (self.flops * self.share) / 3600

    def kilowatt_hours(self, n_flops: float) -> float | None:
        return None if self.watts is None else self.hours(n_flops) * self.watts / 1000


# Shares of the peak that others have reached with the paper's models, by our count. Float32: the paper 0.29 (base) and
# 0.42 (big) of 9.5 TFLOPS; NVIDIA's own Transformer big 0.7 on a V100 (8,742 tokens a second). Tensor cores: that
# program again, 0.33 on a V100 (32,942) and on an A100 (82,059).
FLOAT32_SHARE, TENSOR_SHARE = 0.4, 0.3
CPU_SHARE = 0.65  # `multihead bench train` measures 0.62 to 0.84 in float32, and 0.73 for base in bfloat16

GPUS = [
    # What the paper counts with, not the maker's 10.6.
    Device(name="P100", precision="float32", flops=9.5e12, share=FLOAT32_SHARE, watts=300),
    # V100 and T4 have float16 on their tensor cores, and no bfloat16, so that we train in float32 there.
    Device(name="V100", precision="float32", flops=15.7e12, share=FLOAT32_SHARE, watts=300),
    Device(name="T4", precision="float32", flops=8.1e12, share=FLOAT32_SHARE, watts=70),
    Device(name="L4", precision="bfloat16", flops=121e12, share=TENSOR_SHARE, watts=72),
    Device(name="RTX 3090", precision="bfloat16", flops=71e12, share=TENSOR_SHARE, watts=350),
    Device(name="RTX 4090", precision="bfloat16", flops=165e12, share=TENSOR_SHARE, watts=450),
    Device(name="A100", precision="bfloat16", flops=312e12, share=TENSOR_SHARE, watts=400),
    Device(name="H100", precision="bfloat16", flops=989e12, share=TENSOR_SHARE, watts=700),
]
