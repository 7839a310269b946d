"""What is happening, on stderr: a live line on a terminal, plain lines elsewhere.

Nothing is drawn while a worker warms up and samples: drawing costs a core some milliseconds, and
it is the core that the worker may be measuring on. A log gets a line at each phase that may take
long and every 30 s, so that a long compilation is not taken for a hang.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from typing import TextIO

from rich.console import Console
from rich.live import Live
from rich.text import Text

from benchbench.records import Case, JobKind, Phase, Record

REFRESH_S = 1.0
LINE_EVERY_S = 30.0

_DOING: dict[Phase, str] = {
    "load": "loading",
    "inputs": "making inputs",
    "converters": "registering converters",
    "compile": "compiling",
    "check": "checking outputs",
    "warmup": "measuring",
    "sample": "measuring",
    "finish": "finishing",
}
_OF_NOTE: frozenset[Phase] = frozenset({"load", "compile", "warmup"})
_BEFORE: dict[JobKind, str] = {
    "reference": "reference: ",
    "warm_compile": "second time: ",
    "measure": "",
    "check": "",
    "duet": "against the baseline: ",
    "coverage": "coverage: ",
    "bisect": "bisecting: ",
}


class Progress:
    """Use as a context manager around a run; ``case``, ``job``, ``phase`` and ``done`` feed it."""

    def __init__(
        self,
        stream: TextIO | None = None,
        *,
        quiet: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._stream = stream or sys.stderr
        self._clock = clock
        self._drawn_at = -REFRESH_S
        self._quiet = quiet
        self._live: Live | None = None
        self._place = ""
        self._job = ""
        self._said = ""

    def __enter__(self) -> Progress:
        console = Console(file=self._stream, highlight=False)
        if not self._quiet and console.is_terminal and not console.is_dumb_terminal:
            # Refreshed by hand only: rich's own thread would wake up while a worker samples.
            self._live = Live(Text(""), console=console, auto_refresh=False, transient=True)
            with _best_effort():
                self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            with _best_effort():
                self._live.update(Text(""), refresh=True)
                self._live.stop()
            self._live = None

    def beside(self) -> Progress:
        """Return a progress of its own for one of several devices, in plain lines."""
        return Progress(self._stream, quiet=self._quiet, clock=self._clock)

    def case(self, index: int, count: int, case: Case) -> None:
        """A case begins."""
        mode = case.key.removeprefix(case.group).strip("/")
        self._place = f"[{index}/{count}] {case.group} {mode}"

    def job(self, kind: JobKind) -> None:
        """A worker of this kind is about to start."""
        self._job = _BEFORE[kind]

    def phase(self, phase: Phase, elapsed_s: float, limit_s: float) -> float | None:
        """Show a phase; return the seconds after which to call again, ``None`` for never."""
        doing = f"{self._place}: {self._job}{_DOING[phase]}"
        timed = f"{doing}, {elapsed_s:.0f} s of {limit_s:g} s"
        if self._live is not None:
            return self._refresh(phase, timed)
        if elapsed_s >= LINE_EVERY_S:
            self._line(timed)
        elif phase in _OF_NOTE and doing != self._said:
            self._line(doing)
            self._said = doing
        return LINE_EVERY_S

    def say(self, text: str) -> None:
        """Print a line about the run as a whole."""
        self._line(text)

    def done(self, record: Record) -> None:
        """A case has ended, was skipped or will not run."""
        failure = record.failure
        said = f": {failure.reason}" if failure is not None else ""
        self._line(f"{self._place}: {record.status}{said}")

    def _refresh(self, phase: Phase, text: str) -> float | None:
        """Redraw the live line, at most once a second and only at the start of the measuring."""
        if phase == "sample":
            return None
        early = self._drawn_at + REFRESH_S - self._clock()
        if early > 0 and phase != "warmup":
            return early
        self._drawn_at = self._clock()
        with _best_effort():
            line = Text(self._printable(text), no_wrap=True, overflow="ellipsis")
            if self._live is not None:
                self._live.update(line, refresh=True)
        return None if phase == "warmup" else REFRESH_S

    def _line(self, text: str) -> None:
        if self._quiet:
            return
        text = self._printable(text)
        with _best_effort():
            if self._live is not None:
                self._live.console.print(Text(text), soft_wrap=True)
            else:
                self._stream.write(text + "\n")
                self._stream.flush()

    def _printable(self, text: str) -> str:
        """Return the text as this stream can print it, in any locale."""
        encoding = getattr(self._stream, "encoding", None) or "utf-8"
        return text.encode(encoding, "backslashreplace").decode(encoding)


def _best_effort() -> contextlib.suppress:
    """Progress that nobody reads any more (a closed pipe) must not end a run."""
    return contextlib.suppress(OSError, ValueError)
