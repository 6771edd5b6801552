"""Reading an untrusted folder of Hugging Face: only the expected files, of a bounded size, and no links out of it."""

import re
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from multihead.errors import UserError
from multihead.storage.arrays import ArrayFile, open_arrays
from multihead.storage.files import sha256
from multihead.storage.model_folder import WEIGHTS, what_else
from multihead.untrusted import parse_json, read_bytes

MAX_BYTES = 32 << 20  # of a file that is read at once; several times the largest vocabularies
DIRECTIONS = "directions"  # in tokenizer_config.json of an export of Multihead: those of a model of several languages
PICKLES = ("pytorch_model.bin", "tf_model.h5", "model.npz", "rust_model.ot")


class MarianFolder:
    """Reads files of the folder, and follows no link to a file outside of it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_dir():
            raise UserError(f"there is no folder {path}")
        if not self.has("config.json"):
            raise UserError(f"{path} is not a Marian model of Hugging Face: {what_else(path)}")

    def has(self, name: str) -> bool:
        return (self.path / name).is_file()

    def file(self, name: str) -> Path:
        """Return the path of a file. Links may lead into the folder, or to the blobs of the hub's cache."""
        path, home = self.path / name, self.path.resolve()
        allowed = (home, home.parent.parent / "blobs")
        if not self.has(name):
            raise UserError(f"{self.path} has no file {name}{self._remedy(name)}")
        if not any(path.resolve().is_relative_to(folder) for folder in allowed):
            raise UserError(f"{path} is a link to a file outside of the folder; such links are not followed")
        return path

    def _remedy(self, name: str) -> str:
        pickle = next((candidate for candidate in PICKLES if self.has(candidate)), "")
        if name != WEIGHTS or not pickle:
            return ""
        return (
            f", and {pickle} is not read, since reading it can run code. If you trust it, convert it in a sandbox "
            "with transformers: MarianMTModel.from_pretrained(FOLDER).save_pretrained(FOLDER)"
        )

    def read(self, name: str) -> bytes:
        return read_bytes(self.file(name), MAX_BYTES)

    def json(self, name: str) -> dict[str, Any]:
        document = parse_json(self.read(name), self.path / name)
        if not isinstance(document, dict):
            raise UserError(f"{self.path / name} is not a JSON object")
        return document

    def sha256(self, name: str) -> str:
        return sha256(self.file(name))

    def languages(self) -> tuple[str, str]:
        """Return the languages of tokenizer_config.json, or of a name such as opus-mt-en-de; empty if unknown."""
        settings = self._tokenizer_settings()
        pair = (settings.get("source_lang"), settings.get("target_lang"))
        if all(isinstance(language, str) for language in pair):
            return str(pair[0]), str(pair[1])
        match = re.search(r"(?:^|-)([a-z]{2,3})-([a-z]{2,3})$", self.path.resolve().name)
        return (match[1], match[2]) if match else ("", "")

    def directions(self) -> list[str]:
        """Return the directions that an export of Multihead names."""
        found = self._tokenizer_settings().get(DIRECTIONS, [])
        if not isinstance(found, list) or not all(isinstance(name, str) for name in found):
            raise UserError(f"{self.path}/tokenizer_config.json: {DIRECTIONS} is not a list of names such as en-de")
        return found

    def has_separate_vocabularies(self) -> bool:
        """Return whether target_vocab.json has the pieces of the target language, as transformers reads them."""
        return bool(self._tokenizer_settings().get("separate_vocabs"))

    def _tokenizer_settings(self) -> dict[str, Any]:
        return self.json("tokenizer_config.json") if self.has("tokenizer_config.json") else {}

    def open_weights(self) -> AbstractContextManager[ArrayFile]:
        return open_arrays(self.file(WEIGHTS))
