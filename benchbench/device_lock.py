"""One run at a time on a device: two that overlap would measure each other.

A lock file per device, held for a run and let go by the kernel when its process ends, however it
ends. A second run says whom it waits for, and waits.
"""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: runs are not kept apart there
    fcntl = None  # type: ignore[assignment]

FOLDER = "BENCHBENCH_LOCK_DIR"
"""Variable that moves the lock files; all users of a machine should see the same folder."""

_POLL_S = 0.5


def folder() -> Path:
    """Return where the lock files are."""
    return Path(os.environ.get(FOLDER) or Path(tempfile.gettempdir()) / "benchbench-locks")


@contextlib.contextmanager
def held(
    name: str,
    run_id: str,
    *,
    say: Callable[[str], None],
    stopped: Callable[[], bool],
    sleep: Callable[[float], None] = time.sleep,
) -> Iterator[bool]:
    """Hold the lock of device ``name`` (``cpu``, ``npu0``) for a run; yield whether it is held.

    Waits while another run holds it, after one line to ``say``; gives up when ``stopped`` says so
    and yields ``False``. Where there are no locks (Windows, a folder that cannot be written) the
    run goes on without one, after a line that says so.
    """
    descriptor = _open(name, say)
    if descriptor is None or fcntl is None:
        yield True
        return
    try:
        yield _take(descriptor, name, run_id, say, stopped, sleep)
    finally:
        os.close(descriptor)


def _open(name: str, say: Callable[[str], None]) -> int | None:
    place = folder()
    try:
        place.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(OSError):
            place.chmod(0o1777)
        descriptor = os.open(place / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o666)
        with contextlib.suppress(OSError):
            os.fchmod(descriptor, 0o666)
    except OSError as error:
        say(f"no lock for {name}: {place}: {error.strerror}; runs at the same time would disturb")
        return None
    return descriptor


def _take(
    descriptor: int,
    name: str,
    run_id: str,
    say: Callable[[str], None],
    stopped: Callable[[], bool],
    sleep: Callable[[float], None],
) -> bool:
    said = False
    while not stopped():
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if not said:
                say(f"waiting for {name}: {_holder(descriptor)} is measuring on it")
                said = True
            sleep(_POLL_S)
            continue
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "run": run_id}).encode(), 0)
        return True
    return False


def _holder(descriptor: int) -> str:
    """Return who holds the lock, as far as its file tells."""
    try:
        found = json.loads(os.pread(descriptor, 4096, 0))
        return f"run {found['run']} (process {found['pid']})"
    except (ValueError, KeyError, TypeError, OSError):
        return "another run"
