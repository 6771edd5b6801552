"""Files and folders appear complete or not at all; one process at a time writes a folder."""

from pathlib import Path

import pytest

from multihead.errors import UserError
from multihead.storage import files
from multihead.storage.files import atomic_directory, atomic_file, check_writable, content_sum, exclusive


def test_a_folder_appears_when_it_is_complete(tmp_path: Path) -> None:
    with atomic_directory(tmp_path / "folder") as temporary:
        (temporary / "a").touch()
        assert not (tmp_path / "folder").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]
    assert (tmp_path / "folder" / "a").exists()


@pytest.mark.parametrize(
    ("configured", "expected"), [("/cache", "/cache"), ("", "/home/me/.cache"), ("relative", "/home/me/.cache")]
)
def test_a_relative_cache_folder_does_not_count(
    monkeypatch: pytest.MonkeyPatch, configured: str, expected: str
) -> None:
    """As the XDG specification says: it would be another folder in every working directory."""
    monkeypatch.setenv("HOME", "/home/me")
    monkeypatch.setenv("XDG_CACHE_HOME", configured)
    assert files.cache_folder() == Path(expected) / "multihead"


def test_after_an_error_the_old_content_remains(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("old")
    with pytest.raises(OSError, match="full"), atomic_directory(tmp_path / "folder"):
        raise OSError("full")
    with pytest.raises(OSError, match="full"), atomic_file(tmp_path / "file") as temporary:
        temporary.write_text("new")
        raise OSError("full")
    assert (tmp_path / "file").read_text() == "old"
    assert {path.name for path in tmp_path.iterdir()} == {"folder", "file"}


@pytest.mark.parametrize(
    ("content", "marker", "is_writable"),
    [
        (None, None, True),
        ([], None, True),
        (["a"], None, False),
        (["a"], "marker", False),
        (["a", "marker"], "marker", True),
        (["marker"], None, False),
    ],
)
def test_only_a_folder_of_the_same_kind_is_overwritten(
    tmp_path: Path, content: list[str] | None, marker: str | None, is_writable: bool
) -> None:
    folder = tmp_path / "folder"
    if content is not None:
        folder.mkdir()
        for name in content:
            (folder / name).touch()
    if is_writable:
        check_writable(folder, marker, "an export")
    else:
        with pytest.raises(UserError, match="already exists and is not an export; choose another folder"):
            check_writable(folder, marker, "an export")


def test_a_file_is_not_overwritten_by_a_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="already exists"):
        check_writable(tmp_path / "file", "marker", "an export")


def test_a_locked_folder_is_refused(tmp_path: Path) -> None:
    with exclusive(tmp_path / "run"):
        (tmp_path / "run" / "config.json").touch()
        with pytest.raises(UserError, match="another process is writing"), exclusive(tmp_path / "run"):
            pass
    with exclusive(tmp_path / "run"):
        pass


def test_a_new_folder_that_stays_empty_is_removed(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="refused"), exclusive(tmp_path / "run"):
        raise UserError("refused")
    assert not (tmp_path / "run").exists()


def test_the_checksum_of_a_large_file_covers_its_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK_BYTES", 4)
    monkeypatch.setattr(files, "MAX_BLOCKS", 3)
    file, content = tmp_path / "file", bytearray(b"abcdefghijklmnopqrstuvwxyz")
    sums = []
    for position in (0, 25, 5, None):  # the first block, the last, none, no change
        changed = bytearray(content)
        if position is not None:
            changed[position] = 0
        file.write_bytes(bytes(changed))
        sums.append(content_sum(file))
    assert len(set(sums)) == 3
    assert sums[2] == sums[3]
    file.write_bytes(bytes(content[:-1]))
    assert content_sum(file) not in sums
