"""The cost of training: operations counted from a model's shape, the paper's estimate by time, hours on hardware."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from multihead.config.schema import ModelConfig

Lengths = Sequence[float] | NDArray[np.float64]

# Sentence length if the text is unknown. It matters for attention only, which is 1% of the base model's operations.
ASSUMED_SENTENCE_TOKENS = 30


# Operations


def training_flops(model: ModelConfig, source: Lengths, target: Lengths) -> float:
    """Return the operations of a forward and backward pass over pairs of these lengths, in tokens.

    That is 6 for each token and each weight of a matrix product (2 forward, 4 backward), and attention itself. Variants
    are counted as if they were the paper's layers.
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
    """Return the operations of training on `n_tokens` target tokens, if all sentences have the same `length`."""
    return n_tokens / length * training_flops(model, [length], [length])


def flops_by_time(seconds: float, n_devices: int, flops: float) -> float:
    """Return the estimate of §6.1: time, times the number of devices, times the operations per second of each."""
    return seconds * n_devices * flops


# Hardware


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A GPU or CPU, and the share of its peak that training is assumed to reach."""

    name: str
    precision: str  # the fastest precision that we train in on it
    flops: float  # dense operations per second in that precision, as its maker states
    share: float  # of that peak which training reaches
    watts: float | None = None  # power limit of the board

    def hours(self, n_flops: float) -> float:
        return n_flops / (self.flops * self.share) / 3600

    def kilowatt_hours(self, n_flops: float) -> float | None:
        return None if self.watts is None else self.hours(n_flops) * self.watts / 1000


# Shares of the peak that were reached with the paper's models, by our count of operations. Float32: the paper 0.29
# (base) and 0.42 (big) of 9.5 TFLOPS; NVIDIA's Transformer big 0.7 on a V100 (8,742 tokens per second). Tensor cores:
# NVIDIA's Transformer big 0.33 on a V100 (32,942) and on an A100 (82,059).
FLOAT32_SHARE, TENSOR_SHARE = 0.4, 0.3
CPU_SHARE = 0.65  # `multihead bench train` measures 0.62 to 0.84 in float32, and 0.73 for base in bfloat16

GPUS = [
    # The paper's figure; the maker states 10.6.
    Device(name="P100", precision="float32", flops=9.5e12, share=FLOAT32_SHARE, watts=300),
    # The tensor cores of V100 and T4 have float16 but no bfloat16, so we train in float32 on them.
    Device(name="V100", precision="float32", flops=15.7e12, share=FLOAT32_SHARE, watts=300),
    Device(name="T4", precision="float32", flops=8.1e12, share=FLOAT32_SHARE, watts=70),
    Device(name="L4", precision="bfloat16", flops=121e12, share=TENSOR_SHARE, watts=72),
    Device(name="RTX 3090", precision="bfloat16", flops=71e12, share=TENSOR_SHARE, watts=350),
    Device(name="RTX 4090", precision="bfloat16", flops=165e12, share=TENSOR_SHARE, watts=450),
    Device(name="A100", precision="bfloat16", flops=312e12, share=TENSOR_SHARE, watts=400),
    Device(name="H100", precision="bfloat16", flops=989e12, share=TENSOR_SHARE, watts=700),
]
