"""TODO."""

import atexit
import contextlib
import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from filelock import FileLock

from multihead.errors import UserError
from multihead.interop.ctranslate2_export import FINGERPRINT_FILE, export_ctranslate2, fingerprint
from multihead.model.transformer import Transformer
from multihead.storage.files import cache_folder, is_bundled
from multihead.storage.shortlist import Shortlist
from multihead.text.tokenizer import SubwordTokenizer

# Exports that are kept


def cached_export(
    model: Transformer,
    tokenizer: SubwordTokenizer,
    folder: Path,
    quantization: str,
    shortlist: Shortlist | None = None,
) -> Path:
    """The export of the model in `folder`, made once and kept beside it.

    It is used only if it was made from exactly these numbers, whatever became of the folder since they were read.
    """
    expected = fingerprint(model, tokenizer, quantization, shortlist)

    def write(export: Path) -> None:
        export_ctranslate2(model, tokenizer, export, quantization, shortlist)

    for place in _candidate_folders(folder):
        with contextlib.suppress(OSError):  # read-only, or full
            return _ensure_export(place / quantization, expected, write)
    raise UserError(f"there is no place for the export of {folder}: neither beside it nor in a temporary folder")


def _candidate_folders(folder: Path) -> Iterator[Path]:
    """Beside the model; where nothing can be written, in the user's cache; and else until this process ends."""
    if not is_bundled(folder):  # what is installed is not ours to write into
        yield folder / "ctranslate2"
    if cache_folder().is_absolute():  # there may be no home
        yield cache_folder() / "ctranslate2" / hashlib.sha256(bytes(folder.resolve())).hexdigest()[:16]
    temporary = Path(tempfile.mkdtemp(prefix="multihead-"))
    atexit.register(shutil.rmtree, temporary, ignore_errors=True)
    yield temporary


def _ensure_export(export: Path, expected: dict[str, object], write: Callable[[Path], None]) -> Path:
    if not _is_fresh(export, expected):
        export.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(export.with_name(f".{export.name}.lock")):
            if not _is_fresh(export, expected):  # another process may have made it meanwhile
                write(export)
    return export


def _is_fresh(export: Path, expected: dict[str, object]) -> bool:
    try:
        return bool(json.loads((export / FINGERPRINT_FILE).read_text(encoding="utf-8")) == expected)
    except (OSError, ValueError):
        return False
