"""The weights of a model: by name, as arrays and tensors, loaded and counted."""

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from multihead.config.schema import ModelConfig, RunConfig
from multihead.console import Log
from multihead.errors import UserError
from multihead.model.build import build_model, model_without_memory
from multihead.model.transformer import Transformer
from multihead.storage.arrays import Arrays, open_arrays
from multihead.storage.model_folder import ModelFolder
from multihead.text.tokenizer import SubwordTokenizer

Tensors = dict[str, Tensor]

_log = logging.getLogger(__name__)


def weights_of(model: Transformer) -> Tensors:
    """Return the trained tensors by name; a shared tensor has one name."""
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


def to_arrays(tensors: Mapping[str, Tensor]) -> Arrays:
    """Return tensors as numpy arrays, as a model folder stores them."""
    return {name: tensor.contiguous().cpu().numpy() for name, tensor in tensors.items()}


def to_tensors(arrays: Arrays) -> Tensors:
    """Return numpy arrays as tensors that share their memory."""
    return {name: torch.from_numpy(array) for name, array in arrays.items()}


class StoredTensors(Mapping[str, Tensor]):
    """The tensors of a file, each read when it is asked for, so that no more of them are in memory than in use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with open_arrays(path) as file:
            self._names = list(file.shapes)

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._names:
            raise KeyError(name)
        with open_arrays(self._path) as file:
            return torch.from_numpy(file.read(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def _unsharded(weight: Tensor, parameter: Tensor) -> Tensor:
    return weight


def load_weights(
    model: Transformer,
    weights: Mapping[str, Tensor],
    origin: Path,
    place: Callable[[Tensor, Tensor], Tensor] = _unsharded,
) -> None:
    """Copy weights, one after the other, into a model of the same shape.

    The error names `origin` if they do not fit. `place` turns a weight into the shard that the parameter holds.
    """
    expected = weights_of(model)
    _check_names(expected, weights, origin)
    with torch.no_grad():
        for name, tensor in expected.items():
            weight = weights[name]
            _check_shape(name, tensor, weight, origin)
            tensor.copy_(place(weight, tensor))


def _check_fit(expected: Tensors, weights: Tensors, origin: Path) -> None:
    _check_names(expected, weights, origin)
    for name, tensor in expected.items():
        _check_shape(name, tensor, weights[name], origin)


def _check_names(expected: Tensors, weights: Mapping[str, Tensor], origin: Path) -> None:
    for name in sorted(expected.keys() ^ weights.keys()):
        raise _misfit(name, origin)


def _check_shape(name: str, expected: Tensor, weight: Tensor, origin: Path) -> None:
    if expected.shape != weight.shape:
        raise _misfit(name, origin)


def _misfit(name: str, origin: Path) -> UserError:
    return UserError(f"the weights in {origin} do not fit its config.json: see '{name}'")


def load_model(folder: Path, log: Log = _log.warning) -> tuple[Transformer, SubwordTokenizer, RunConfig]:
    """Load a model in evaluation mode from a model folder, a checkpoint, or the folder of an interrupted run."""
    stored = ModelFolder.open(folder, log)
    tokenizer, weights = stored.tokenizer(), to_tensors(stored.weights())
    # The shapes are compared before memory is allocated.
    _check_fit(weights_of(model_without_memory(stored.config.model)), weights, stored.path)
    model = build_model(stored.config.model)
    load_weights(model, weights, stored.path)
    return model.eval(), tokenizer, stored.config


def count_parameters(model: nn.Module) -> int:
    """Return the number of trainable parameters; a shared matrix counts once."""
    return sum(parameter.numel() for parameter in model.parameters())


def count_parameters_of(config: ModelConfig) -> int:
    """Return the number of parameters of a shape, without allocating memory for them."""
    return count_parameters(model_without_memory(config))
