"""numpy reads what torch wrote, and writes the same bytes."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from multihead.errors import UserError
from multihead.model.weights import to_arrays
from multihead.storage.arrays import open_arrays, read_arrays, write_arrays


def tensors() -> dict[str, torch.Tensor]:
    torch.manual_seed(1)
    return {
        "matrix": torch.randn(3, 5),
        "half": torch.randn(4).half(),
        "ids": torch.arange(6, dtype=torch.int32).view(2, 3),
        "scalar": torch.tensor(2.5),
        "transposed": torch.randn(2, 7).T.contiguous(),
    }


def test_the_bytes_are_those_of_torch(tmp_path: Path) -> None:
    save_file(tensors(), tmp_path / "torch", {"step": "3"})
    write_arrays(tmp_path / "numpy", to_arrays(tensors()), {"step": "3"})
    assert (tmp_path / "torch").read_bytes() == (tmp_path / "numpy").read_bytes()


def test_arrays_that_are_not_contiguous_are_written_in_order(tmp_path: Path) -> None:
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_arrays(tmp_path / "file", {"transposed": matrix.T})
    assert np.array_equal(read_arrays(tmp_path / "file")["transposed"], matrix.T)


def test_bfloat16_is_read_as_float32(tmp_path: Path) -> None:
    stored = {"a": torch.randn(3, 2).bfloat16(), "b": torch.ones(2), "c": torch.tensor([1e-40, -torch.inf]).bfloat16()}
    save_file(stored, tmp_path / "file")
    for name, array in read_arrays(tmp_path / "file").items():
        assert array.dtype == np.float32
        assert np.array_equal(array, stored[name].float().numpy())


def test_shapes_and_metadata_are_known_before_arrays_are_read(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(3, 2), "b": torch.zeros(())}, tmp_path / "file", {"step": "3"})
    with open_arrays(tmp_path / "file") as file:
        assert (file.shapes, file.metadata) == ({"a": (3, 2), "b": ()}, {"step": "3"})


def test_a_number_type_that_numpy_does_not_have_is_named(tmp_path: Path) -> None:
    save_file({"a": torch.zeros(2).to(torch.float8_e4m3fn)}, tmp_path / "file")
    with pytest.raises(UserError, match="cannot read 'a'"):
        read_arrays(tmp_path / "file")


@pytest.mark.parametrize("content", [None, b"", b"\x80\x04pickle"])
def test_a_damaged_file_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "file").write_bytes(content)
    with pytest.raises(UserError, match="cannot read"):
        read_arrays(tmp_path / "file")
