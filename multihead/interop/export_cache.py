"""CTranslate2 exports that are made once and kept in the user's cache.

An export in a model folder is never used: it could be that of another model. The cache belongs
to the user; damage there is noticed by the checksums that are recorded with each export.
"""

import atexit
import contextlib
import hashlib
import importlib.util
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from multihead.concurrency import run_in_subprocess
from multihead.console import say
from multihead.errors import UserError
from multihead.interop.ctranslate2_export import export_ctranslate2
from multihead.storage.checksums import MAX_SUMMED
from multihead.storage.files import cache_folder, sha256, write_text_atomic
from multihead.storage.model_folder import WEIGHTS, ModelFolder
from multihead.storage.shortlist import FILE as SHORTLIST
from multihead.untrusted import read_json

FORMAT = 5  # of exports; those of another format are made again
FINGERPRINT_FILE = "multihead.json"  # in an export: what it was made from
SOURCES = (WEIGHTS, "tokenizer.json", SHORTLIST)


def cached_export(model: ModelFolder, quantization: str) -> Path:
    """Return the export of a model, which is made if it is missing or was made from other files."""
    for parent in _candidate_folders(model.root):
        with contextlib.suppress(OSError):  # read-only, or full
            return _ensure_export(model, quantization, parent / quantization)
    raise UserError(
        f"cannot write the CTranslate2 export of {model.root}: no writable folder in the cache or in the temp directory"
    )


def _candidate_folders(folder: Path) -> Iterator[Path]:
    """Yield folders to try: the user's cache, and one that is removed when this process ends."""
    if cache_folder().is_absolute():  # there may be no home
        yield cache_folder() / "ctranslate2" / hashlib.sha256(bytes(folder.resolve())).hexdigest()[:16]
    say(
        f"The CTranslate2 export of {folder.name} cannot be kept: {cache_folder()} is not writable. It is made again "
        "at every start; set XDG_CACHE_HOME to a folder that is."
    )
    temporary = Path(tempfile.mkdtemp(prefix="multihead-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    yield temporary


def _ensure_export(model: ModelFolder, quantization: str, export: Path) -> Path:
    if not _is_fresh(model, quantization, export):
        export.parent.mkdir(parents=True, exist_ok=True)
        from filelock import FileLock

        with FileLock(export.with_name(f".{export.name}.lock")):
            if not _is_fresh(model, quantization, export):  # another process may have made it meanwhile
                # Recorded before: files that change during the export are noticed next time.
                files, sums = _sizes_and_times(model.path), _checksums(model)
                shutil.rmtree(export, ignore_errors=True)  # damaged, or of other files
                _export(model, export, quantization)
                _record(export, _settings(model, quantization), files, sums)
                _remove_orphans(cache_folder() / "ctranslate2")
    return export


def _export(model: ModelFolder, export: Path, quantization: str) -> None:
    """Export in a child process if CTranslate2 would import torch into this one, which takes seconds and memory."""
    if importlib.util.find_spec("torch") and "torch" not in sys.modules:
        run_in_subprocess(export_ctranslate2, model, export, quantization)
    else:
        export_ctranslate2(model, export, quantization)


# What an export was made from


def _is_fresh(model: ModelFolder, quantization: str, export: Path) -> bool:
    """Return whether an export was made from these files; their content is read only if sizes or times differ."""
    try:
        recorded = read_json(export / FINGERPRINT_FILE)
    except UserError:
        return False
    settings = _settings(model, quantization)
    if not isinstance(recorded, dict) or any(recorded.get(name) != value for name, value in settings.items()):
        return False
    if not _is_intact(export, recorded.get("export")):
        return False
    files = _sizes_and_times(model.path)
    if recorded.get("files") == files:
        return True
    sums = _checksums(model)
    if recorded.get("sha256") != sums:
        return False
    with contextlib.suppress(OSError):  # a copy of the same model; read-only exports are compared again next time
        _record(export, settings, files, sums)
    return True


def _settings(model: ModelFolder, quantization: str) -> dict[str, Any]:
    import ctranslate2

    shape = asdict(model.config.model)
    return {
        "format": FORMAT,
        "ctranslate2": ctranslate2.__version__,
        "quantization": quantization,
        "model": shape,
        "alignment_layer": model.alignment_layer,
        "folder": str(model.root.resolve()),
    }


def _is_intact(export: Path, recorded: object) -> bool:
    """Return whether the files of an export are those that were written.

    Checksums are compared where that takes a few milliseconds. A file over MAX_SUMMED is compared by size and time.
    """
    try:
        return recorded == _state(export)
    except OSError:
        return False


def _state(export: Path) -> dict[str, str]:
    """Return a checksum, or size and time, of each file of an export."""
    files = sorted(path for path in export.iterdir() if path.name != FINGERPRINT_FILE)
    stats = {path: path.stat() for path in files}
    return {
        path.name: sha256(path) if stat.st_size <= MAX_SUMMED else f"{stat.st_size} {stat.st_mtime_ns}"
        for path, stat in stats.items()
    }


def _remove_orphans(cache: Path) -> None:
    """Remove the exports of models that no longer exist."""
    for record in cache.glob(f"*/*/{FINGERPRINT_FILE}"):
        with contextlib.suppress(UserError, OSError, KeyError, TypeError):
            if not Path(read_json(record)["folder"]).exists():
                shutil.rmtree(record.parent.parent)


def _sizes_and_times(folder: Path) -> dict[str, list[int]]:
    stats = {name: (folder / name).stat() for name in SOURCES if (folder / name).exists()}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _checksums(model: ModelFolder) -> dict[str, str]:
    model.check_headers()
    return {name: sha256(model.path / name) for name in SOURCES if (model.path / name).exists()}


def _record(export: Path, settings: dict[str, Any], files: dict[str, list[int]], sums: dict[str, str]) -> None:
    document = {**settings, "files": files, "sha256": sums, "export": _state(export)}
    write_text_atomic(export / FINGERPRINT_FILE, json.dumps(document, indent=2) + "\n")
