"""What differs between systems; the branches of other systems as far as Linux can run them."""

import ctypes
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from multihead import system
from multihead.hardware.memory import keep_freed_memory


def test_a_link_replaces_a_link_and_leaves_the_folders(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / name).touch()
        system.link_folder(tmp_path / "link", tmp_path / name)
    assert system.is_link(tmp_path / "link")
    assert (tmp_path / "link" / "two").exists()
    system.remove_link(tmp_path / "link")
    system.remove_link(tmp_path / "one")  # a folder is no link
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one", "two"]
    assert not system.is_link(tmp_path / "missing")


@pytest.mark.skipif(sys.platform != "linux", reason="threads have priorities of their own on Linux")
def test_a_thread_and_those_it_starts_let_the_others_go_first() -> None:
    niceness: list[int] = []

    def start_another() -> None:
        system.lower_thread_priority(3)
        thread = threading.Thread(target=lambda: niceness.append(os.getpriority(os.PRIO_PROCESS, 0)))
        thread.start()
        thread.join()

    before = os.getpriority(os.PRIO_PROCESS, 0)
    lowered = threading.Thread(target=start_another)
    lowered.start()
    lowered.join()
    assert niceness == [min(19, before + 3)]
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_a_process_exists_until_it_has_ended() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    assert system.process_exists(os.getpid())
    assert not system.process_exists(process.pid)


def test_on_windows_folders_are_not_synced_and_files_are_opened_for_writing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[tuple[Path, int]] = []
    really_open = os.open

    def note(path: Path, flags: int) -> int:
        opened.append((path, flags))
        return really_open(path, flags)

    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(os, "open", note)
    (tmp_path / "file").write_text("text", encoding="utf-8")
    system.sync(tmp_path)
    system.sync(tmp_path / "file")
    assert opened == [(tmp_path / "file", os.O_RDWR)]


def test_on_windows_the_allocator_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """There `ctypes.CDLL(None)` raises TypeError."""
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setattr(ctypes, "CDLL", lambda name: pytest.fail("no library"))
    assert system.c_library() is None
    keep_freed_memory()


def test_on_macos_the_cache_of_the_disk_is_emptied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl", reason="Windows has no fcntl")
    asked: list[int] = []
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(fcntl, "fcntl", lambda handle, command: asked.append(command))
    system.sync(tmp_path)
    assert asked == [51]
