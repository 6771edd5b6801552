"""A folder of Hugging Face that may come from anybody: only the files that are expected, of a size that is expected."""

import contextlib
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from multihead.errors import UserError
from multihead.storage.files import sha256

MAX_BYTES = 100_000_000  # of a file that is read whole; the largest vocabularies have a tenth of it
WEIGHTS = "model.safetensors"
PICKLES = ("pytorch_model.bin", "tf_model.h5", "model.npz", "rust_model.ot")


class MarianFolder:
    """Reads what belongs to the folder, and nothing that a link in it points to elsewhere."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise UserError(f"there is no folder {path}")
        if not self.has("config.json"):
            raise UserError(f"{path} is no model of Hugging Face: it has no config.json")

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def file(self, name: str) -> Path:
        """A file of this folder. Links are followed into the folder itself, and into the hub's cache, made of links."""
        path, home = self.path / name, self.path.resolve()
        homes = (home, home.parent.parent / "blobs")
        if not self.has(name):
            raise UserError(f"{self.path} has no file {name}{self._remedy(name)}")
        if not any(path.resolve().is_relative_to(one) for one in homes):
            raise UserError(f"{path} is a link to a file outside of the folder, which is not followed")
        return path

    def _remedy(self, name: str) -> str:
        pickle = next((one for one in PICKLES if self.has(one)), "")
        if name != WEIGHTS or not pickle:
            return ""
        return (
            f", and {pickle} is not read, since to read it may run code. If you trust it, convert it where that does "
            "no harm, with transformers: MarianMTModel.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )

    def read(self, name: str) -> bytes:
        path = self.file(name)
        if (size := path.stat().st_size) > MAX_BYTES:
            raise UserError(f"{path} has {size:,} bytes, and at most {MAX_BYTES:,} are read")
        return path.read_bytes()

    def json(self, name: str) -> dict[str, Any]:
        try:
            document = json.loads(self.read(name))
        except (ValueError, RecursionError) as error:
            raise UserError(f"{self.path / name} is not JSON: {error}") from None
        if not isinstance(document, dict):
            raise UserError(f"{self.path / name} is not an object of JSON")
        return document

    def sha256(self, name: str) -> str:
        return sha256(self.file(name))

    def languages(self) -> tuple[str, str]:
        """As the tokenizer says, or a name such as opus-mt-en-de; empty if neither does."""
        said = self.json("tokenizer_config.json") if self.has("tokenizer_config.json") else {}
        pair = (said.get("source_lang"), said.get("target_lang"))
        if all(isinstance(language, str) for language in pair):
            return str(pair[0]), str(pair[1])
        named = re.search(r"(?:^|-)([a-z]{2,3})-([a-z]{2,3})$", self.path.resolve().name)
        return (named[1], named[2]) if named else ("", "")

    @contextlib.contextmanager
    def tensors(self) -> Iterator["TensorFile"]:
        path = self.file(WEIGHTS)
        try:
            with safe_open(path, framework="pt") as file:
                names = file.keys()
                yield TensorFile({name: tuple(file.get_slice(name).get_shape()) for name in names}, file)
        except (SafetensorError, OSError) as error:
            raise UserError(f"cannot read {path}: {error}") from None


@dataclass(frozen=True, slots=True)
class TensorFile:
    """The tensors of a file: their shapes are known before any is read."""

    shapes: dict[str, tuple[int, ...]]
    _file: Any

    def read(self, name: str) -> Tensor:
        tensor: Tensor = self._file.get_tensor(name)
        return tensor.float()
