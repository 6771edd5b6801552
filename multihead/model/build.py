"""Build the model of a configuration: the paper's, or with variants of its parts."""

from collections.abc import Callable

import torch
from torch import nn

from multihead.config.schema import ModelConfig
from multihead.model.transformer import Blocks, Cross, Mixer, MultiHeadAttention, Transformer
from multihead.model.variants.convolution import Convolution
from multihead.model.variants.cross import ConvS2S, ConvS2SAttention, SingleVector
from multihead.model.variants.efficient_attention import Linformer, SparseAttention
from multihead.model.variants.luong import KeylessAttention
from multihead.model.variants.memory_network import MemoryNetwork
from multihead.model.variants.neural_gpu import NeuralGPU
from multihead.model.variants.recurrent import Recurrent
from multihead.model.variants.scores import RelativeScore, make_score
from multihead.model.variants.tree import Tree

DILATIONS = 5  # ByteNet doubles the dilation from layer to layer, from 1 to 16, then starts again at 1


def self_attention(config: ModelConfig, causal: bool) -> MultiHeadAttention:
    """Return full attention. Relative positions apply to both stacks, those of a tree to the encoder only."""
    is_relative = config.positions == "relative" or (config.positions == "tree" and not causal)
    return MultiHeadAttention(config, RelativeScore(config) if is_relative else make_score(config, is_causal=causal))


MIXERS: dict[str, Callable[[ModelConfig, int, bool], Mixer]] = {  # given the layer's number and whether it is causal
    "attention": lambda config, _, causal: self_attention(config, causal),
    "local": lambda config, layer, causal: SparseAttention(config, layer, causal),
    "bigbird": lambda config, layer, causal: SparseAttention(
        config, layer, causal, config.global_tokens, config.random_blocks
    ),
    "linformer": lambda config, _, causal: Linformer(config),
    "lstm": lambda config, _, causal: Recurrent(config, causal, nn.LSTM),
    "gru": lambda config, _, causal: Recurrent(config, causal, nn.GRU),
    "convolution": lambda config, _, causal: Convolution(config, causal),
    "dilated": lambda config, layer, causal: Convolution(config, causal, dilation=2 ** (layer % DILATIONS)),
    "separable": lambda config, _, causal: Convolution(config, causal, separable=True),
    "gated": lambda config, _, causal: Convolution(config, causal, gated=True),
}


def cross_attention(config: ModelConfig) -> Cross:
    """Return what a decoder layer sees of the source with."""
    if config.cross == "convs2s":
        return ConvS2SAttention(config)
    if config.cross in ("last", "mean"):
        return SingleVector(config, config.cross)
    if config.system == "memory-network":
        return SingleVector(config, "last")  # the only one
    if config.attention_score == "location":
        return KeylessAttention(config)
    return MultiHeadAttention(config, make_score(config, of_source=True))


SYSTEMS: dict[str, type[Transformer]] = {"neural-gpu": NeuralGPU, "memory-network": MemoryNetwork}


def build_model(config: ModelConfig) -> Transformer:
    """Return an untrained model with the blocks that the configuration names."""
    blocks = Blocks(
        encoder=lambda layer: MIXERS[config.encoder_mixer](config, layer, False),
        decoder=lambda layer: MIXERS[config.decoder_mixer](config, layer, True),
        cross=lambda: cross_attention(config),
        structure=Tree(config) if config.positions == "tree" else None,
    )
    model = ConvS2S if config.cross == "convs2s" else SYSTEMS.get(config.system, Transformer)
    return model(config, blocks)


def model_without_memory(config: ModelConfig) -> Transformer:
    """Return a model whose tensors have names and shapes but no memory (torch's meta device)."""
    with torch.device("meta"):
        return build_model(config)
