"""Models by name: a folder, a bundled model, or `hf:owner/name` of the Hugging Face hub.

A model of the hub is downloaded once, at the commit that the name stands for at that time. The commit is recorded, and
used until an update is requested.
"""

import difflib
import re
from pathlib import Path

from multihead.console import say
from multihead.errors import UsageError, UserError, require
from multihead.storage.files import BUNDLED, cache_folder, write_text_atomic
from multihead.storage.model_folder import WEIGHTS
from multihead.text.language import is_known

PREFIX = "hf:"
NAME = re.compile(r"(?P<repository>\w[\w.-]*/\w[\w.-]*)(?:@(?P<revision>\w[\w/.-]*))?")
FILES = ["*.json", "*.safetensors", "*.spm", "README.md", "SHA256SUMS"]  # nothing that could be run


def is_on_hub(name: str) -> bool:
    return name.startswith(PREFIX)


def find_model(name: str | Path, update: bool = False) -> Path:
    """Return the folder of a model; with `update`, a model of the hub is the newest version of its name."""
    if is_on_hub(str(name)):
        return download_and_convert(str(name), update)
    if update:
        raise UsageError(f"--update is for models of the hub, hf:owner/name; {name} is none")
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
    if NAME.fullmatch(name) and not parent.is_dir():
        return f"; did you mean '{PREFIX}{name}', a model of the hub?"
    folders = [str(model.parent) for model in parent.glob("*/config.json")] if parent.is_dir() else []
    known = {one.lower(): one for one in (*bundled, *folders)}
    near = difflib.get_close_matches(name.lower(), known, n=1)
    if near and not _is_other_pair(name, near[0]):
        return f"; did you mean '{known[near[0]]}'?"
    return (
        f": give a model folder, such as the --output of a training run, hf:owner/name, or a bundled model "
        f"({', '.join(bundled)}). For other languages or directions, train one: multihead train --help"
    )


def _is_other_pair(name: str, near: str) -> bool:
    """Return whether the names are different pairs of languages: en-fr is no misspelling of en-de."""
    pairs = name.lower().split("-"), near.split("-")
    return pairs[0] != pairs[1] and all(len(pair) == 2 and all(map(is_known, pair)) for pair in pairs)


def download_and_convert(name: str, update: bool = False) -> Path:
    """Return the folder of a model of the hub; one in the format of Marian is imported once."""
    from multihead.interop.marian.folder import MarianFolder

    snapshot = download(name, update)
    if "format" in MarianFolder(snapshot).json("config.json"):
        return snapshot  # a model of Multihead
    model = _cache_folder(name) / snapshot.name
    from filelock import FileLock

    with FileLock(model.with_name(".import.lock")):
        if not (model / WEIGHTS).exists():
            from multihead.interop.marian.importer import import_marian

            import_marian(snapshot, model, name, snapshot.name)
    return model


def import_model(name: str, output: Path) -> None:
    """Import a Marian / OPUS-MT model, from a folder or the hub, into a model folder."""
    from multihead.interop.marian.importer import import_marian

    if is_on_hub(name):
        snapshot = download(name)
        import_marian(snapshot, output, name, snapshot.name)
        return
    if not Path(name).is_dir():
        if (BUNDLED / name).is_dir():
            raise UserError(f"{name} is already a model of Multihead")
        if NAME.fullmatch(name):
            raise UserError(f"there is no folder {name}; did you mean '{PREFIX}{name}', a model of the hub?")
    import_marian(Path(name), output)


def download(name: str, update: bool = False) -> Path:
    """Return the snapshot of `hf:owner/name` or `hf:owner/name@revision`: a folder with the name of the commit.

    The hub is asked once: afterwards the same commit is used without network, until it is deleted or `update` is set.
    """
    match = NAME.fullmatch(name.removeprefix(PREFIX))
    if not match or ".." in name:
        raise UserError(f"'{name}' is not a model of the hub: write hf:owner/name or hf:owner/name@revision")
    record = _cache_folder(name) / "snapshot"  # where the complete snapshot is
    known = Path(record.read_text(encoding="utf-8")) if record.exists() else None
    if known and known.is_dir() and not update:
        return known
    snapshot = _download(match["repository"], match["revision"])
    say(f"{name} is commit {snapshot.name}" + (", as before" if known and known.name == snapshot.name else ""))
    record.parent.mkdir(parents=True, exist_ok=True)
    write_text_atomic(record, str(snapshot))
    return snapshot


def _cache_folder(name: str) -> Path:
    return cache_folder() / "hub" / name.removeprefix(PREFIX).replace("/", "--")


def _download(repository: str, revision: str | None) -> Path:
    require("huggingface_hub", extra="interop", purpose="hf:owner/name")
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    try:
        return Path(snapshot_download(repository, revision=revision, allow_patterns=FILES))
    except (HfHubHTTPError, LocalEntryNotFoundError, OSError) as error:
        reason = " ".join(str(error).split())[:300]
        raise UserError(f"cannot download {repository}: {reason}") from None
