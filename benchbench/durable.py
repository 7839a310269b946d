"""Files that survive a crash, a full disk and a second writer; errors that say what to do."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator
from pathlib import Path

from benchbench.errors import StoreError

try:
    import fcntl
except ImportError:  # Windows: no two writers on one file there
    fcntl = None  # type: ignore[assignment]


def append_line(path: Path, line: bytes) -> None:
    """Append one line durably, so that lines of several writers never mix.

    One ``write`` in append mode under a file lock; when it fails half-way (a full disk) what was
    written of it is taken back. A torn line left by a crash is closed first.
    """
    with explained("write", path):
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            with _locked(descriptor):
                _append_locked(descriptor, line)
        finally:
            os.close(descriptor)


def _append_locked(descriptor: int, line: bytes) -> None:
    size = os.fstat(descriptor).st_size
    done = False
    try:
        _write_all(descriptor, line if _ends_line(descriptor, size) else b"\n" + line)
        os.fsync(descriptor)
        done = True
    finally:
        if not done:
            os.ftruncate(descriptor, size)


def _ends_line(descriptor: int, size: int) -> bool:
    if size == 0:
        return True
    os.lseek(descriptor, size - 1, os.SEEK_SET)
    return os.read(descriptor, 1) == b"\n"


def _write_all(descriptor: int, content: bytes) -> None:
    left = memoryview(content)
    while left:
        left = left[os.write(descriptor, left) :]


@contextlib.contextmanager
def _locked(descriptor: int) -> Iterator[None]:
    if fcntl is None:
        yield
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(descriptor, fcntl.LOCK_UN)


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file whole and durably; an old one stays until the new one is complete."""
    with explained("write", path):
        temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
        try:
            with temporary.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
        sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Make a new name in a folder durable, where the system lets folders be opened."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


_ADVICE = {
    errno.ENOSPC: "Free some space, or choose another folder with results_dir=DIR",
    errno.EDQUOT: "Free some space, or choose another folder with results_dir=DIR",
    errno.EFBIG: "The file may not grow (ulimit -f); choose another folder with results_dir=DIR",
    errno.EACCES: "Choose a folder that you may write with results_dir=DIR",
    errno.EPERM: "Choose a folder that you may write with results_dir=DIR",
    errno.EROFS: "Choose a folder that you may write with results_dir=DIR",
    errno.EEXIST: "A file is in the way; choose another folder with results_dir=DIR",
    errno.ENOTDIR: "A file is in the way; choose another folder with results_dir=DIR",
    errno.ENAMETOOLONG: "Choose a shorter folder with results_dir=DIR",
}


@contextlib.contextmanager
def explained(what: str, path: Path) -> Iterator[None]:
    """Turn an operating system's error into one sentence: what, where, why, what to do."""
    try:
        yield
    except OSError as error:
        advice = _ADVICE.get(error.errno or 0, "Choose another folder with results_dir=DIR")
        kept = " What was stored before is intact." if what == "write" else ""
        raise StoreError(
            f"cannot {what} {path}: {error.strerror or error}. {advice}.{kept}"
        ) from error
