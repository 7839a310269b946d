"""Ctrl-C and SIGTERM as something a run can wait for: the first asks it to stop, the second quits.

Inside ``with Interrupts() as stop:`` the first signal only sets ``stop.signum`` and makes
``stop.fileno()`` readable, so that what is being written is finished. A second one raises
``SystemExit`` with the exit code at once.
"""

from __future__ import annotations

import signal
import socket
import threading
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Handles SIGINT and SIGTERM while entered; outside the main thread it handles nothing."""

    def __init__(self) -> None:
        self.signum: int | None = None
        """The first signal that came, or ``None``."""
        self._reader, self._writer = socket.socketpair()
        self._writer.setblocking(False)
        self._before: dict[int, Any] = {}
        self._wakeup_before: int | None = None

    def fileno(self) -> int:
        """Return a descriptor that is readable from the first signal on."""
        return self._reader.fileno()

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            self._before = {number: signal.signal(number, self._handle) for number in _SIGNALS}
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._reader.close()
        self._writer.close()

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.signum is not None:
            raise SystemExit(128 + number)
        self.signum = number
        self._writer.send(b"!")
