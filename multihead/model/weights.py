"""TODO."""

import logging
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from multihead.config.schema import RunConfig
from multihead.console import Log
from multihead.errors import UserError
from multihead.model.build import build_model
from multihead.model.transformer import Transformer
from multihead.storage.model_folder import Tensors, read_config, read_tensors, usable_folder
from multihead.text.tokenizer import SubwordTokenizer

_log = logging.getLogger(__name__)


def weights_of(model: Transformer) -> Tensors:
    """The trained tensors by name; one that is shared has one name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def _unsharded(weight: Tensor, parameter: Tensor) -> Tensor:
    return weight


def load_weights(
    model: Transformer, weights: Tensors, origin: Path, place: Callable[[Tensor, Tensor], Tensor] = _unsharded
) -> None:
    """Copy weights into a model of the same shape.

    `origin` is named in the error if they do not fit. `place` turns a weight into a shard like that of the parameter.
    """
    expected = weights_of(model)
    wrong = sorted(expected.keys() ^ weights.keys())
    wrong += [name for name in expected if name in weights and expected[name].shape != weights[name].shape]
    if wrong:
        raise UserError(f"the weights in {origin} do not fit its config.json: see '{wrong[0]}'")
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(place(weights[name], tensor))


def load_model(folder: Path, log: Log = _log.warning) -> tuple[Transformer, SubwordTokenizer, RunConfig]:
    """Load a model that is ready to translate, from a model folder, a checkpoint, or a run that was interrupted."""
    if not folder.is_dir():
        raise UserError(f"there is no model folder {folder}")
    folder = usable_folder(folder, log)
    config = read_config(folder)
    tokenizer = SubwordTokenizer.load(folder / "tokenizer.json")
    if tokenizer.vocab_size != config.model.vocab_size:
        raise UserError(f"{folder}: {tokenizer.vocab_size} pieces, but model.vocab_size={config.model.vocab_size}")
    model = build_model(config.model)
    load_weights(model, read_tensors(folder / "model.safetensors"), folder)
    return model.eval(), tokenizer, config


def count_parameters(model: nn.Module) -> int:
    """Trainable numbers, a shared matrix counted once."""
    return sum(parameter.numel() for parameter in model.parameters())
