"""numpy arrays in safetensors files, which cannot contain code."""

import contextlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from multihead.errors import UserError

Array = NDArray[Any]
Arrays = dict[str, Array]


@dataclass(frozen=True, slots=True)
class ArrayFile:
    """An open file: names, shapes and metadata are known before any array is read."""

    path: Path
    shapes: dict[str, tuple[int, ...]]
    metadata: dict[str, str]
    _file: Any

    def read(self, name: str) -> Array:
        if self._file.get_slice(name).get_dtype() == "BF16":
            return _read_bfloat16(self.path, name).reshape(self.shapes[name])
        try:
            array: Array = self._file.get_tensor(name)
        except (TypeError, AttributeError) as error:  # 8-bit floats, which numpy does not have
            raise UserError(f"{self.path}: cannot read '{name}': {error}") from None
        return array

    def read_all(self) -> Arrays:
        return {name: self.read(name) for name in self.shapes}


def _read_bfloat16(path: Path, name: str) -> Array:
    """Return the values in float32: bfloat16, which numpy does not have, is its upper half."""
    with path.open("rb") as file:
        header = file.read(int.from_bytes(file.read(8), "little"))
        start, end = json.loads(header)[name]["data_offsets"]
        file.seek(start, 1)
        upper = np.frombuffer(file.read(end - start), "<u2")
    return (upper.astype(np.uint32) << 16).view(np.float32)


@contextlib.contextmanager
def open_arrays(path: Path) -> Iterator[ArrayFile]:
    """Open a safetensors file; raise UserError if it is missing or damaged."""
    try:
        with safe_open(path, framework="np") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            yield ArrayFile(path, shapes, file.metadata() or {}, file)
    except (SafetensorError, OSError) as error:
        raise UserError(f"cannot read {path}: {error}") from None


def read_arrays(path: Path) -> Arrays:
    with open_arrays(path) as file:
        return file.read_all()


def write_arrays(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    try:
        save_file({name: np.require(array, requirements="C") for name, array in arrays.items()}, path, metadata)
    except SafetensorError as error:  # how the library reports a full disk
        raise OSError(f"{path}: {error}") from None
    path.chmod(0o644)  # the library makes files private, and models are shared
