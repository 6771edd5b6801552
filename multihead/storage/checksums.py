"""SHA256SUMS: checksums of the files in a folder, in the format of `sha256sum`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from multihead.errors import UserError
from multihead.storage.files import sha256, write_text_atomic
from multihead.untrusted import check_file, read_bytes

CHECKSUM_FILE = "SHA256SUMS"
MAX_SUMMED = 32 << 20  # bytes of a file that is verified whenever it is loaded; larger ones take over 5% of the time
MAX_BYTES = 1 << 20  # of the list itself


def checksums(files: dict[str, Path]) -> str:
    """Return the content of SHA256SUMS for files by the names to list them under."""
    return "".join(f"{sha256(path)}  {name}\n" for name, path in files.items())


def verify(folder: Path, names: Sequence[str]) -> None:
    """Raise UserError if one of these files is missing or does not match its checksum."""
    _compare(folder, names, _recorded(folder))


def verify_all(folder: Path, required: str) -> list[str]:
    """Verify every file that has a checksum, and return their names; `required` must be among them."""
    sums = _recorded(folder)
    _compare(folder, {required, *sums}, sums)
    return sorted(sums)


def check_loaded(folder: Path, name: str) -> None:
    """Raise UserError if a file that is about to be loaded does not match its checksum.

    Folders without checksums are accepted, and so are files over MAX_SUMMED: `multihead info --verify` reads them.
    """
    if not (folder / CHECKSUM_FILE).exists():
        return
    sums = _recorded(folder)
    if name in sums and not _is_large(folder / name):
        _compare(folder, [name], sums, f". Restore it, or delete its line in {CHECKSUM_FILE} to accept the change")


def update_checksum(folder: Path, name: str) -> None:
    """Record the present content of a file that is listed in SHA256SUMS."""
    if (folder / CHECKSUM_FILE).exists() and name in (sums := _recorded(folder)):
        sums[name] = sha256(folder / name)
        write_text_atomic(folder / CHECKSUM_FILE, "".join(f"{total}  {listed}\n" for listed, total in sums.items()))


def _is_large(path: Path) -> bool:
    try:
        return path.stat().st_size > MAX_SUMMED
    except OSError:
        return False  # reading it says what is wrong


def _recorded(folder: Path) -> dict[str, str]:
    try:
        lines = read_bytes(folder / CHECKSUM_FILE, MAX_BYTES).decode().splitlines()
    except (UserError, UnicodeDecodeError) as error:
        raise UserError(f"{folder} is incomplete: {error}") from None
    return {name: expected for expected, _, name in (line.partition("  ") for line in lines)}


def _compare(folder: Path, names: Iterable[str], sums: dict[str, str], advice: str = "") -> None:
    for name in names:
        try:
            check_file(folder / name)
            actual = sha256(folder / name)
        except (OSError, UserError) as error:
            raise UserError(f"{folder} is incomplete: {error}") from None
        if actual != sums.get(name):
            raise UserError(f"checksum mismatch in {folder / name}: the file is damaged or was changed{advice}")
