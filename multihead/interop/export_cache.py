"""CTranslate2 exports that are made once and kept, next to the model or in the user's cache."""

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
from multihead.storage.files import cache_folder, is_bundled, sha256, write_text_atomic
from multihead.storage.model_folder import WEIGHTS, ModelFolder
from multihead.storage.shortlist import FILE as SHORTLIST

FORMAT = 4  # of exports; those of another format are made again
FINGERPRINT_FILE = "multihead.json"  # in an export: what it was made from
SOURCES = (WEIGHTS, "tokenizer.json", SHORTLIST)


def cached_export(model: ModelFolder, quantization: str) -> Path:
    """Return the export of a model, which is made if it is missing or was made from other files."""
    for parent in _candidate_folders(model.root):
        with contextlib.suppress(OSError):  # read-only, or full
            return _ensure_export(model, quantization, parent / quantization)
    raise UserError(
        f"cannot write the CTranslate2 export of {model.root}: "
        "no writable folder next to it, in the cache or in the temp directory"
    )


def _candidate_folders(folder: Path) -> Iterator[Path]:
    """Yield folders to try: next to the model, the user's cache, and one that is removed when this process ends."""
    is_managed = is_bundled(folder) or folder.parent.name == "snapshots"  # by pip, or by the cache of Hugging Face
    if not is_managed:
        yield folder / "ctranslate2"
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
                files, sums = _sizes_and_times(model.path), _checksums(model.path)
                _export(model, export, quantization)
                _record(export, _settings(model, quantization), files, sums)
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
        recorded = json.loads((export / FINGERPRINT_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    settings = _settings(model, quantization)
    if not isinstance(recorded, dict) or any(recorded.get(name) != value for name, value in settings.items()):
        return False
    files = _sizes_and_times(model.path)
    if recorded.get("files") == files:
        return True
    sums = _checksums(model.path)
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
    }


def _sizes_and_times(folder: Path) -> dict[str, list[int]]:
    stats = {name: (folder / name).stat() for name in SOURCES if (folder / name).exists()}
    return {name: [stat.st_size, stat.st_mtime_ns] for name, stat in stats.items()}


def _checksums(folder: Path) -> dict[str, str]:
    return {name: sha256(folder / name) for name in SOURCES if (folder / name).exists()}


def _record(export: Path, settings: dict[str, Any], files: dict[str, list[int]], sums: dict[str, str]) -> None:
    document = {**settings, "files": files, "sha256": sums}
    write_text_atomic(export / FINGERPRINT_FILE, json.dumps(document, indent=2) + "\n")
