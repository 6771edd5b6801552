"""Checkpoints of a run: listed, verified, removed; a damaged one is skipped."""

from collections.abc import Callable
from pathlib import Path

import pytest

from multihead.storage.checkpoints import FILES, latest_valid, prune, remove_partial, saved_steps
from multihead.storage.checksums import CHECKSUM_FILE, checksums


def write_checkpoint(checkpoints: Path, step: int, content: str = "content") -> Path:
    folder = checkpoints / f"step-{step}"
    folder.mkdir(parents=True)
    for name in FILES:
        (folder / name).write_text(f"{content} of {name}")
    (folder / CHECKSUM_FILE).write_text(checksums({name: folder / name for name in FILES}))
    return folder


def no_log(line: str) -> None:
    raise AssertionError(line)


def flip_a_byte(folder: Path) -> None:
    data = bytearray((folder / "model.safetensors").read_bytes())
    data[-5] ^= 1
    (folder / "model.safetensors").write_bytes(bytes(data))


def truncate(folder: Path) -> None:
    data = (folder / "optimizer.safetensors").read_bytes()
    (folder / "optimizer.safetensors").write_bytes(data[: len(data) // 2])


def lose_a_file(folder: Path) -> None:
    (folder / "state.json").unlink()


def lose_the_checksums(folder: Path) -> None:
    (folder / CHECKSUM_FILE).unlink()


def empty_the_checksums(folder: Path) -> None:
    (folder / CHECKSUM_FILE).write_text("")


@pytest.mark.parametrize("damage", [flip_a_byte, truncate, lose_a_file, lose_the_checksums, empty_the_checksums])
def test_a_damaged_checkpoint_is_skipped_with_a_message(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    write_checkpoint(tmp_path, 5)
    damage(write_checkpoint(tmp_path, 6))
    lines: list[str] = []
    assert latest_valid(tmp_path, lines.append) == tmp_path / "step-5"
    assert len(lines) == 1
    assert lines[0].startswith("skipping damaged checkpoint: ")
    assert "step-6" in lines[0]


def test_no_checkpoint_is_found_in_a_missing_folder(tmp_path: Path) -> None:
    assert latest_valid(tmp_path / "missing", no_log) is None


def test_checkpoints_are_listed_by_step(tmp_path: Path) -> None:
    for name in ("step-10", "step-9", "step-x", "other", ".step-3.partial"):
        (tmp_path / name).mkdir()
    assert saved_steps(tmp_path) == [9, 10]


def test_pruning_keeps_the_given_steps(tmp_path: Path) -> None:
    for step in (1, 2, 10, 30):
        write_checkpoint(tmp_path, step)
    prune(tmp_path, {2, 30})
    assert saved_steps(tmp_path) == [2, 30]


def test_a_partial_checkpoint_is_removed(tmp_path: Path) -> None:
    (tmp_path / ".step-9.partial").mkdir()
    remove_partial(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_checkpoint_that_was_complete_before_the_crash_gets_its_name(tmp_path: Path) -> None:
    """A crash while a checkpoint is replaced must not lose both."""
    checkpoints = tmp_path / "checkpoints"
    lose_the_checksums(write_checkpoint(checkpoints, 9, "old"))
    write_checkpoint(tmp_path, 9, "new").rename(checkpoints / ".step-9.partial")
    remove_partial(checkpoints)
    assert latest_valid(checkpoints, no_log) == checkpoints / "step-9"
    assert (checkpoints / "step-9" / "state.json").read_text() == "new of state.json"
    assert len(list(checkpoints.iterdir())) == 1
