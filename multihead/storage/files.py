"""Files that are there whole or not at all, whatever happens while they are written."""

import contextlib
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from filelock import FileLock, Timeout

from multihead.errors import UserError

BUNDLED = Path(__file__).parents[1] / "bundled"  # models that come with the package
BLOCK = 1 << 20  # bytes
MAX_BLOCKS = 256  # of a file that are read to recognize it


def is_bundled(folder: Path) -> bool:
    return folder.resolve().is_relative_to(BUNDLED.resolve())


def can_overwrite(folder: Path, marker: str | None = None) -> bool:
    """True if a folder can be written: nothing is there, or an earlier one of its kind, which has the file `marker`."""
    if not folder.exists():
        return True
    is_of_its_kind = marker is not None and (folder / marker).exists()
    return folder.is_dir() and (is_of_its_kind or not any(folder.iterdir()))


def check_writable(folder: Path, marker: str | None, kind: str) -> None:
    """Raise UserError unless a folder can be written: nothing is there, or an earlier one of its kind."""
    if not can_overwrite(folder, marker):
        raise UserError(f"{folder} already exists and is not {kind}: choose another folder or delete it")


@contextlib.contextmanager
def atomic_directory(folder: Path) -> Iterator[Path]:
    """A folder to write into: it gets its name once all is on the disk, and vanishes if the work fails."""
    aside = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)
    try:
        yield aside
        for file in aside.iterdir():
            sync(file)
        sync(aside)
        if folder.exists():
            shutil.rmtree(folder)
        aside.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """A file to write, which then takes the place of `path` in one go: a reader sees the old or the new one."""
    aside = path.with_name(f".{path.name}.partial")
    try:
        yield aside
        sync(aside)
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_text_atomic(path: Path, text: str) -> None:
    with atomic_file(path) as aside:
        aside.write_text(text, encoding="utf-8")


def sync(path: Path) -> None:
    """Wait until a file, or the names in a folder, are on the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def cache_folder() -> Path:
    """Where what can be made again is kept for this user."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
    return base / "multihead"


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_sum(path: Path) -> str:
    """Identify a file by its size and content in a fraction of a second, however large it is.

    Up to 256 MB the whole content counts. Of a larger file, 256 blocks of 1 MB count, the first and the last among
    them: an edit between two blocks that keeps the size is not noticed.
    """
    size = path.stat().st_size
    n_blocks = min(MAX_BLOCKS, -(-size // BLOCK))
    total = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for number in range(n_blocks):
            file.seek(number * (size - BLOCK) // (n_blocks - 1) if size > MAX_BLOCKS * BLOCK else number * BLOCK)
            total.update(file.read(BLOCK))
    return total.hexdigest()


@contextlib.contextmanager
def exclusive(output: Path) -> Iterator[None]:
    """Lock a folder for this process, creating it if needed; the lock ends with the process, however that ends."""
    lock, is_new = output / ".lock", not output.exists()
    try:
        output.mkdir(parents=True, exist_ok=True)
        with FileLock(lock, timeout=0):
            try:
                yield
            finally:
                if is_new and list(output.iterdir()) == [lock]:  # the request was refused
                    shutil.rmtree(output)
    except Timeout:
        raise UserError(f"another process is writing to {output}; wait for it or choose another folder") from None
