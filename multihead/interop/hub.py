"""Models by name: a folder, a bundled model, or `hf:owner/name` of the Hugging Face hub, downloaded once."""

import difflib
import re
from pathlib import Path

from multihead.errors import UserError, require
from multihead.storage.files import BUNDLED, cache_folder, write_text_atomic
from multihead.storage.model_folder import WEIGHTS

PREFIX = "hf:"
NAME = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>\w[\w/.-]*))?")
FILES = ["*.json", "*.safetensors", "*.spm", "README.md"]  # nothing that could be run


def is_on_hub(name: str) -> bool:
    return name.startswith(PREFIX)


def find_model(name: str | Path) -> Path:
    """Return the folder of a model."""
    if is_on_hub(str(name)):
        return download_and_convert(str(name))
    folder = Path(name)
    if folder.is_dir():
        return folder
    bundled = {model.name: model for model in BUNDLED.iterdir() if model.is_dir()}
    if str(name) in bundled:
        return bundled[str(name)]
    raise UserError(f"{_what_it_is(str(name))}{_suggestion(str(name), sorted(bundled))}")


def _what_it_is(name: str) -> str:
    if Path(name).is_file():
        return f"{name} is a file, and a model is a folder"
    if " " in name:
        return f"there is no model '{name}': the model comes first, then the text"
    return f"there is no model '{name}'"


def _suggestion(name: str, bundled: list[str]) -> str:
    """Return the end of the message: the folder of the file, a similar name, or what a model can be."""
    parent = Path(name).parent
    if Path(name).is_file() and (parent / "config.json").exists():
        return f"; did you mean '{parent}'?"
    folders = [str(model.parent) for model in parent.glob("*/config.json")] if parent.is_dir() else []
    if near := difflib.get_close_matches(name, [*bundled, *folders], n=1):
        return f"; did you mean '{near[0]}'?"
    return (
        f": give a model folder, such as the --output of a training run, hf:owner/name, or a bundled model "
        f"({', '.join(bundled)})"
    )


def download_and_convert(name: str) -> Path:
    """Return the folder of a model of the hub; one in the format of Marian is imported once."""
    from multihead.interop.marian.folder import MarianFolder

    snapshot = download(name)
    if "format" in MarianFolder(snapshot).json("config.json"):
        return snapshot  # a model of Multihead
    model = _cache_folder(name) / snapshot.name
    from filelock import FileLock

    with FileLock(model.with_name(".import.lock")):
        if not (model / WEIGHTS).exists():
            from multihead.interop.marian.importer import import_marian

            import_marian(snapshot, model, name)
    return model


def import_model(name: str, output: Path) -> None:
    """Import a Marian / OPUS-MT model, from a folder or the hub, into a model folder."""
    from multihead.interop.marian.importer import import_marian

    if is_on_hub(name):
        import_marian(download(name), output, name)
    else:
        import_marian(Path(name), output)


def download(name: str) -> Path:
    """Return the snapshot of `hf:owner/name` or `hf:owner/name@revision` in the cache of Hugging Face.

    The hub is asked once: afterwards a complete snapshot is used without network, until it is deleted.
    """
    match = NAME.fullmatch(name.removeprefix(PREFIX))
    if not match or ".." in name:
        raise UserError(f"'{name}' is not a model of the hub: write hf:owner/name or hf:owner/name@revision")
    record = _cache_folder(name) / "snapshot"  # where the complete snapshot is
    if record.exists() and (snapshot := Path(record.read_text(encoding="utf-8"))).is_dir():
        return snapshot
    snapshot = _download(match["repository"], match["revision"])
    record.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(record, str(snapshot))
    return snapshot


def _cache_folder(name: str) -> Path:
    return cache_folder() / "hub" / re.sub(r"[/@]", "--", name.removeprefix(PREFIX))


def _download(repository: str, revision: str | None) -> Path:
    require("huggingface_hub", extra="interop")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"cannot download {repository}: {reason}") from None
