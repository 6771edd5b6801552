"""SHA256SUMS: checksums of the files in a folder, in the format of `sha256sum`."""

from collections.abc import Iterable, Sequence
from pathlib import Path

from multihead.errors import UserError
from multihead.storage.files import sha256, write_text_atomic

CHECKSUM_FILE = "SHA256SUMS"


def checksums(files: dict[str, Path]) -> str:
    """Return the content of SHA256SUMS for files by the names to list them under."""
    return "".join(f"{sha256(path)}  {name}\n" for name, path in files.items())


def update_checksum(folder: Path, name: str) -> None:
    """Record the checksum of a file that was changed on purpose."""
    sums = _recorded(folder) | {name: sha256(folder / name)}
    write_text_atomic(folder / CHECKSUM_FILE, "".join(f"{sum}  {name}\n" for name, sum in sums.items()))


def verify(folder: Path, names: Sequence[str]) -> None:
    """Raise UserError if one of these files is missing or does not match its checksum."""
    _compare(folder, names, _recorded(folder))


def verify_all(folder: Path, required: str) -> None:
    """Verify every file that has a checksum; `required` must be among them."""
    sums = _recorded(folder)
    _compare(folder, {required, *sums}, sums)


def _recorded(folder: Path) -> dict[str, str]:
    try:
        lines = (folder / CHECKSUM_FILE).read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{folder} is incomplete: {error}") from None
    return {name: expected for expected, _, name in (line.partition("  ") for line in lines)}


def _compare(folder: Path, names: Iterable[str], sums: dict[str, str]) -> None:
    for name in names:
        try:
            actual = sha256(folder / name)
        except OSError as error:
            raise UserError(f"{folder} is incomplete: {error}") from None
        if actual != sums.get(name):
            raise UserError(f"checksum mismatch in {folder / name}")
