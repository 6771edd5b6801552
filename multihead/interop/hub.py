"""Models by name: a folder, one that comes along, or one of the Hugging Face hub, `hf:owner/name`.

Those of the hub are downloaded once, imported once, and kept.
"""

import re
from pathlib import Path

from filelock import FileLock

from multihead.errors import UserError
from multihead.interop.marian.folder import MarianFolder
from multihead.interop.marian.importer import import_marian
from multihead.storage.files import BUNDLED, cache_folder

PREFIX = "hf:"
NAME = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>\w[\w/.-]*))?")
FILES = ["*.json", "*.safetensors", "*.spm", "README.md"]  # nothing that could be run


def is_on_hub(name: str) -> bool:
    return name.startswith(PREFIX)


def find_model(name: str | Path) -> Path:
    """The folder of a model."""
    if is_on_hub(str(name)):
        return download_and_convert(str(name))
    folder = Path(name)
    if folder.is_dir():
        return folder
    bundled = {model.name: model for model in BUNDLED.iterdir() if model.is_dir()}
    if str(name) in bundled:
        return bundled[str(name)]
    raise UserError(
        f"there is no model '{name}': give the folder of a model, such as the --output of a training run, "
        f"hf:owner/name, or one that comes with the package ({', '.join(sorted(bundled))})"
    )


def download_and_convert(name: str) -> Path:
    """A model of the hub as a model of ours."""
    folder = download(name)
    if "format" in MarianFolder(folder).json("config.json"):
        return folder  # it is one already
    model = folder.with_name("model")
    with FileLock(folder.with_name(".import.lock")):
        if not (model / "model.safetensors").exists():
            import_marian(folder, model, name)
    return model


def download(name: str) -> Path:
    """The files of `hf:owner/name` or `hf:owner/name@revision`; without a network, those of last time."""
    match = NAME.fullmatch(name.removeprefix(PREFIX))
    if not match or ".." in name:
        raise UserError(f"'{name}' is no model of the hub: write hf:owner/name or hf:owner/name@revision")
    folder = cache_folder() / "hub" / re.sub(r"[/@]", "--", match[0]) / "download"
    if not (folder / ".complete").exists():
        _download(match["repository"], match["revision"], folder)
        (folder / ".complete").touch()
    return folder


def _download(repository: str, revision: str | None, folder: Path) -> None:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        snapshot_download(repository, revision=revision, local_dir=folder, allow_patterns=FILES)
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"cannot download {repository}: {reason}") from None
