"""Atomic writes, folder locks and checksums: a file or folder that exists under its name is complete."""

import contextlib
import errno
import hashlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from multihead.errors import UserError
from multihead.system import sync

BUNDLED = Path(__file__).parents[1] / "bundled"  # models in the package
BLOCK_BYTES = 1 << 20
MAX_BLOCKS = 256  # read to identify a file


def is_bundled(folder: Path) -> bool:
    return folder.resolve().is_relative_to(BUNDLED.resolve())


def check_writable(folder: Path, marker: str | None, kind: str) -> None:
    """Raise UserError unless `folder` is missing, empty, or of the same kind, which has the file `marker`.

    `kind` is what the folder should be, such as "an ONNX export".
    """
    if not folder.exists():
        return
    is_same_kind = marker is not None and (folder / marker).exists()
    if not folder.is_dir() or not (is_same_kind or not any(folder.iterdir())):
        raise UserError(f"{folder} already exists and is not {kind}; choose another folder or delete it")


@contextlib.contextmanager
def atomic_directory(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder, which gets its name when its files are on disk and is removed after an error."""
    temporary = folder.with_name(f".{folder.name}.partial")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        yield temporary
        for file in temporary.iterdir():
            sync(file)
        sync(temporary)
        if folder.exists():
            shutil.rmtree(folder)
        temporary.rename(folder)
        sync(folder.parent)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` atomically: readers see the old or the new content."""
    if not path.parent.is_dir():  # the error would have the name of the temporary file
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
    temporary = path.with_name(f".{path.name}.partial")
    try:
        yield temporary
        sync(temporary)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_text_atomic(path: Path, text: str) -> None:
    with atomic_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def cache_folder() -> Path:
    """Return the user's folder for files that can be made again; a relative XDG_CACHE_HOME does not count."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    return Path(configured if os.path.isabs(configured) else _home() / ".cache") / "multihead"


def _home() -> Path:
    if os.environ.get("HOME") != "":
        return Path(os.path.expanduser("~"))
    import pwd  # an empty HOME would be the root of the file system

    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError:
        return Path("~")  # not absolute: nothing is cached


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_sum(path: Path) -> str:
    """Return a checksum of the size and content of a file, in a fraction of a second however large it is.

    Of a file over 256 MB, 256 blocks of 1 MB are read, including the first and the last: a change between two blocks
    that keeps the size is not noticed.
    """
    size = path.stat().st_size
    n_blocks = min(MAX_BLOCKS, -(-size // BLOCK_BYTES))
    is_sampled = size > MAX_BLOCKS * BLOCK_BYTES
    total = hashlib.sha256(str(size).encode())
    with path.open("rb") as file:
        for n in range(n_blocks):
            file.seek(n * (size - BLOCK_BYTES) // (n_blocks - 1) if is_sampled else n * BLOCK_BYTES)
            total.update(file.read(BLOCK_BYTES))
    return total.hexdigest()


@contextlib.contextmanager
def exclusive(output: Path) -> Iterator[None]:
    """Lock a folder for this process, creating it if needed; the lock ends with the process, however that ends."""
    from filelock import FileLock, Timeout

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
