"""How a worker process ended, and the status and the sentence that follow from it.

Pure: an outcome file that is there and whole wins; else the clock (timeout), the user (interrupted)
or the exit status (crashed) tells.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass, field

from benchbench.caveats import Caveat
from benchbench.records import Failure, Measurement, Outcome, Phase, Status

_WITH_STACK = frozenset({"SIGSEGV", "SIGFPE", "SIGABRT", "SIGBUS", "SIGILL"})
"""Signals at which the worker writes its Python stack to the log."""

MAX_REASON = 300
"""Characters of a reason in a record; the log has the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobEnd:
    """What the parent knows about one worker process after its end."""

    outcome: Outcome | None
    phase: Phase
    """Last phase that the worker had entered."""
    returncode: int | None
    """As in ``subprocess``: negative is a signal; ``None`` means it could not be waited for."""
    timeout_s: float | None = None
    """The limit of ``phase``, when that was exceeded and the process group was killed."""
    interrupted: int | None = None
    """The signal by which the user stopped the run while this worker was running."""
    damaged: bool = False
    """Whether an outcome file was there that could not be read."""
    duration_s: float = 0.0
    started: str = "fresh"
    """``forked`` or ``fresh``."""
    parent_cpu_share: float | None = None
    """CPU seconds of the parent per wall second of the phase ``sample``."""
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Status of a case, with either its numbers or the reason why there are none."""

    status: Status
    measurement: Measurement | None = None
    failure: Failure | None = None
    caveats: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def judge(end: JobEnd) -> Judgement:
    """Return the status, numbers and failure that follow from how a worker ended."""
    if end.outcome is None:
        status, failure = _without_result(end)
        return Judgement(status=status, failure=failure, notes=end.notes)
    outcome = end.outcome
    if outcome.failure is not None:
        failure = _tidy(outcome.failure)
        status = outcome.status if outcome.status != "ok" else "failed"
        return Judgement(
            status=status, failure=failure, measurement=outcome.partial, notes=end.notes
        )
    caveats, notes = [], list(end.notes)
    if end.returncode != 0:
        caveats.append(Caveat.CRASHED_AT_EXIT.name)
        notes.append(f"the worker {_death(end)} after it had handed over its result")
    return Judgement(status="ok", measurement=outcome.measurement, caveats=caveats, notes=notes)


def one_line(text: str, limit: int = MAX_REASON) -> str:
    """Return ``text`` on one line that breaks no table, at most ``limit`` characters long."""
    # Cut before and after: a message of many megabytes is not worth splitting as a whole.
    head = text[: 4 * limit].encode("utf-8", "backslashreplace").decode("utf-8")
    line = " ".join("".join(c if c.isprintable() else " " for c in head).split())
    line = line.replace("|", "/")
    if len(line) > limit or len(text) > 4 * limit:
        line = line[: limit - 4].rstrip() + " ..."
    return line


def signal_name(number: int) -> str:
    """Return ``SIGSEGV`` for 11; ``signal 77`` for a number without a name."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _without_result(end: JobEnd) -> tuple[Status, Failure]:
    phase = end.phase
    if end.interrupted is not None:
        reason = f"stopped by {signal_name(end.interrupted)} in phase {phase}"
        return "interrupted", Failure(phase=phase, kind="Interrupted", reason=reason)
    if end.timeout_s is not None:
        return "timeout", Failure(
            phase=phase,
            kind="Timeout",
            reason=f"exceeded its limit of {end.timeout_s:g} s in phase {phase}",
            hint=f"raise limits.{phase}_s= if it needs longer; the log has the stack where it was",
        )
    if end.damaged:
        reason = f"{_death(end)} and left a result that cannot be read"
    elif end.returncode is not None and end.returncode >= 0:
        reason = f"{_death(end)} without a result"
    else:
        reason = _death(end)
    return "crashed", Failure(phase=phase, kind=_kind(end), reason=reason, hint=_hint(end))


def _kind(end: JobEnd) -> str:
    code = end.returncode
    return signal_name(-code) if code is not None and code < 0 else "Exit"


def _death(end: JobEnd) -> str:
    code = end.returncode
    if end.timeout_s is not None:
        return f"was killed at its limit of {end.timeout_s:g} s in phase {end.phase}"
    if code is None:
        return "could not be killed"
    if code >= 0:
        return f"exited with code {code}"
    if -code == signal.SIGKILL:
        return "killed by SIGKILL (often out of memory)"
    return f"killed by {signal_name(-code)}"


def _hint(end: JobEnd) -> str:
    code = end.returncode
    if code is not None and code < 0:
        if -code == signal.SIGKILL:
            return "see dmesg; free memory, or choose a smaller size or batch_size"
        if signal_name(-code) in _WITH_STACK:
            return "the log has the Python stack"
        return "the model, a library or somebody on this machine sent the signal"
    return "look for os._exit in the model and its libraries; the log has what was printed"


def _tidy(failure: Failure) -> Failure:
    """Return the failure with texts that fit a table, whatever the model put into them."""
    return Failure(
        phase=failure.phase,
        kind=one_line(failure.kind, 80),
        reason=one_line(failure.reason) or failure.kind,
        hint=one_line(failure.hint) if failure.hint else None,
        log=failure.log,
        rerun=failure.rerun,
    )
