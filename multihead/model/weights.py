"""The weights of a model: by name, as arrays and tensors, loaded and counted."""

import logging
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig, RunConfig
from multihead.console import Log
from multihead.errors import UserError
from multihead.model.build import build_model
from multihead.model.transformer import Transformer
from multihead.storage.arrays import Arrays
from multihead.storage.model_folder import ModelFolder
from multihead.text.tokenizer import SubwordTokenizer

Tensors = dict[str, Tensor]

_log = logging.getLogger(__name__)


def weights_of(model: Transformer) -> Tensors:
    """Return the trained tensors by name; a shared tensor has one name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def to_arrays(tensors: Tensors) -> Arrays:
    """Return tensors as numpy arrays, as a model folder stores them."""
    return {name: tensor.contiguous().cpu().numpy() for name, tensor in tensors.items()}


def to_tensors(arrays: Arrays) -> Tensors:
    """Return numpy arrays as tensors that share their memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


def _unsharded(weight: Tensor, parameter: Tensor) -> Tensor:
    return weight


def load_weights(
    model: Transformer, weights: Tensors, origin: Path, place: Callable[[Tensor, Tensor], Tensor] = _unsharded
) -> None:
    """Copy weights into a model of the same shape.

    The error names `origin` if they do not fit. `place` turns a weight into the shard that the parameter holds.
    """
    expected = weights_of(model)
    _check_fit(expected, weights, origin)
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(place(weights[name], tensor))


def _check_fit(expected: Tensors, weights: Tensors, origin: Path) -> None:
    wrong = sorted(expected.keys() ^ weights.keys())
    wrong += [name for name in expected if name in weights and expected[name].shape != weights[name].shape]
    if wrong:
        raise UserError(f"the weights in {origin} do not fit its config.json: see '{wrong[0]}'")


def load_model(folder: Path, log: Log = _log.warning) -> tuple[Transformer, SubwordTokenizer, RunConfig]:
    """Load a model in evaluation mode from a model folder, a checkpoint, or the folder of an interrupted run."""
    stored = ModelFolder.open(folder, log)
    tokenizer, weights = stored.tokenizer(), to_tensors(stored.weights())
    with torch.device("meta"):  # the shapes are compared before memory is allocated
        _check_fit(weights_of(build_model(stored.config.model)), weights, stored.path)
    model = build_model(stored.config.model)
    load_weights(model, weights, stored.path)
    return model.eval(), tokenizer, stored.config


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters; a shared matrix counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_parameters_of(config: ModelConfig) -> int:
    """Return the number of parameters of a shape, without allocating memory for them."""
    with torch.device("meta"):
        return count_parameters(build_model(config))
