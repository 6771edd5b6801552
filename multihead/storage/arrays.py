"""numpy arrays in safetensors files, which cannot contain code."""

import contextlib
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save_file

from multihead.errors import UserError
from multihead.untrusted import check_file

MAX_HEADER = 4 << 20  # bytes; a model of 1,000 layers has 2 MB

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
    _check_header(path)
    try:
        with safe_open(path, framework="np") as file:
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in file.keys()}  # noqa: SIM118
            yield ArrayFile(path, shapes, file.metadata() or {}, file)
    except (SafetensorError, OSError) as error:
        raise UserError(f"cannot read {path}: {error}") from None


def _check_header(path: Path) -> None:
    """Refuse what the library would read for minutes: a header of a million arrays, or a device."""
    check_file(path)
    try:
        with path.open("rb") as file:
            (size,) = struct.unpack("<Q", file.read(8).ljust(8, b"\0"))
    except OSError as error:
        raise UserError(f"cannot read {path}: {error}") from None
    if size > MAX_HEADER:
        raise UserError(f"cannot read {path}: its header has {size:,} bytes; at most {MAX_HEADER:,} are read")


def check_finite(arrays: Arrays, path: Path) -> None:
    """Raise UserError unless all arrays have finite floating-point numbers, as weights have."""
    for name, array in arrays.items():
        if not np.issubdtype(array.dtype, np.floating):
            raise UserError(f"{path}: the weights '{name}' are of type {array.dtype}, not floating-point numbers")
        if array.size and not (np.isfinite(array.min()) and np.isfinite(array.max())):  # NaN is its own minimum
            raise UserError(f"{path}: the weights '{name}' are not finite; the file is damaged or its training failed")


def read_arrays(path: Path) -> Arrays:
    with open_arrays(path) as file:
        return file.read_all()


def write_arrays(path: Path, arrays: Arrays, metadata: dict[str, str] | None = None) -> None:
    try:
        save_file({name: np.require(array, requirements="C") for name, array in arrays.items()}, path, metadata)
    except SafetensorError as error:  # how the library reports a full disk
        raise OSError(f"{path}: {error}") from None
    path.chmod(0o644)  # the library makes files private, and models are shared
