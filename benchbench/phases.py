"""Phases of a worker: told to the parent before they are entered, timed by our own clock."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from benchbench.interference import cpu_seconds
from benchbench.records import Phase


class Phases:
    """Where a worker is, and what the phases it has left have cost.

    Each phase is announced in a file beside the outcome, which survives any death, and on the
    pipe that wakes the parent.
    """

    def __init__(self, outcome_path: Path, phase_fd: int | None = None) -> None:
        self.current: Phase = "load"
        self.wall_s: dict[str, float] = {}
        self.cpu_s: dict[str, float] = {}
        """CPU seconds, child processes included."""
        path = outcome_path.with_name(outcome_path.name + ".phases")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        self._pipe = phase_fd
        self._open: list[Phase] = []

    @contextlib.contextmanager
    def enter(self, phase: Phase) -> Iterator[None]:
        """Announce a phase and time it; entering it again adds up.

        When an exception leaves the phase, ``current`` stays where it was raised.
        """
        self._announce(phase)
        self._open.append(phase)
        wall, cpu = time.perf_counter(), cpu_seconds()
        try:
            yield
        finally:
            self._open.pop()
            self.wall_s[phase] = self.wall_s.get(phase, 0.0) + time.perf_counter() - wall
            self.cpu_s[phase] = self.cpu_s.get(phase, 0.0) + cpu_seconds() - cpu
        if self._open:  # it was entered from within another one, which goes on
            self._announce(self._open[-1])

    def _announce(self, phase: Phase) -> None:
        self.current = phase
        line = msgspec.json.encode({"phase": phase, "time_ns": time.monotonic_ns()}) + b"\n"
        os.write(self._file, line)
        if self._pipe is not None:
            # A parent that has gone is no reason to stop: the outcome file is what counts.
            with contextlib.suppress(OSError):
                os.write(self._pipe, line)
