"""What differs between Linux, macOS and Windows: disks, links between folders, processes, the C library.

Linux is what we test on. The other branches follow the documentation of the systems and are tested with a replaced
`sys.platform` as far as Linux can run them.
"""

import ctypes
import os
import sys
import threading
from pathlib import Path

_STILL_ACTIVE, _QUERY_INFORMATION = 259, 0x1000  # of the Windows API


def sync(path: Path) -> None:
    """Wait until the content of a file, or the names in a folder, are on disk."""
    if sys.platform == "win32" and path.is_dir():
        return  # Windows cannot open a folder; NTFS writes its names to a journal
    handle = os.open(path, os.O_RDWR if sys.platform == "win32" else os.O_RDONLY)
    try:
        if sys.platform == "darwin":
            _full_sync(handle)
        else:
            os.fsync(handle)
    finally:
        os.close(handle)


def _full_sync(handle: int) -> None:
    """Empty the cache of the disk too, which fsync does not do on macOS."""
    import fcntl

    try:
        fcntl.fcntl(handle, getattr(fcntl, "F_FULLFSYNC", 51))
    except OSError:  # a network file system
        os.fsync(handle)


def link_folder(link: Path, folder: Path) -> None:
    """Make `link` a link to a folder, in place of any other link; on Windows a junction, which needs no privilege."""
    temporary = link.with_name(f".{link.name}.link.partial")
    remove_link(temporary)
    if sys.platform == "win32":
        import _winapi

        _winapi.CreateJunction(str(folder.resolve()), str(temporary))
        remove_link(link)  # Windows does not replace a link
    else:
        temporary.symlink_to(folder.resolve(), target_is_directory=True)
    temporary.replace(link)


def is_link(path: Path) -> bool:
    """Return whether a path is a symbolic link or a junction of Windows."""
    if path.is_symlink():
        return True
    try:
        return bool(getattr(path.lstat(), "st_reparse_tag", 0))
    except OSError:
        return False


def remove_link(path: Path) -> None:
    """Remove a link if there is one, and not what it points to."""
    if is_link(path):
        path.unlink()


def lower_thread_priority(niceness: int) -> None:
    """Let other threads go before this one and those that it starts; on Linux only, where threads have priorities."""
    if sys.platform == "linux":
        thread = threading.get_native_id()
        os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + niceness)


def process_exists(process: int) -> bool:
    """Return whether a process of this machine is there."""
    if sys.platform == "win32":  # where signal 0 would interrupt it
        kernel, code = ctypes.windll.kernel32, ctypes.c_ulong()
        handle = kernel.OpenProcess(_QUERY_INFORMATION, False, process)
        if not handle:
            return False
        kernel.GetExitCodeProcess(handle, ctypes.byref(code))
        kernel.CloseHandle(handle)
        return code.value == _STILL_ACTIVE
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def c_library() -> ctypes.CDLL | None:
    """Return the functions of the C library; None on Windows, which has no handle of the whole process."""
    return None if sys.platform == "win32" else ctypes.CDLL(None)
