"""Exceptions of a worker, turned into a status and one sentence that names op and place."""

from __future__ import annotations

import re
import traceback
from collections.abc import Iterator

import msgspec

from benchbench.ending import MAX_REASON, one_line
from benchbench.errors import BenchbenchError
from benchbench.reasons import error_reason
from benchbench.records import Failure, GraphEvidence, Phase, Status
from benchbench.sources import where_raised

_OP = re.compile(r"torch\.ops\.\w+\.\w+(?:\.\w+)?|\b[A-Za-z_]\w*::\w+(?:\.\w+)?")
_USER_CODE = re.compile(r"from user code:\s+File \"([^\"]+)\", line (\d+)")
_MANY_OPS = 6


class CaseError(Exception):
    """A case that ran and must not count: wrong outputs, a fallback, a recompile while sampling."""

    def __init__(self, phase: Phase, kind: str, reason: str, hint: str | None = None) -> None:
        super().__init__(reason)
        self.phase = phase
        self.kind = kind
        self.reason = reason
        self.hint = hint


def explain(
    error: BaseException, phase: Phase, *, out_of_memory: bool, signalled: bool
) -> tuple[Status, Failure]:
    """Return the status and the failure of a case that ended in ``error``.

    ``out_of_memory`` is the device's opinion on the error; ``signalled`` says that the user
    stopped the run, which Python reports as an exception, too.
    """
    if isinstance(error, CaseError):
        reason = one_line(error.reason)
        return "failed", Failure(phase=error.phase, kind=error.kind, reason=reason, hint=error.hint)
    if isinstance(error, KeyboardInterrupt) and signalled:
        return "interrupted", Failure(
            phase=phase, kind="KeyboardInterrupt", reason=f"stopped by SIGINT in phase {phase}"
        )
    kind, reason, hint = _words(error)
    if out_of_memory:
        hint = "choose a smaller size or batch_size, or free memory"
        return "oom", Failure(phase=phase, kind=kind, reason=_placed(reason, error), hint=hint)
    return "failed", Failure(phase=phase, kind=kind, reason=_placed(reason, error), hint=hint)


def with_recompiles(failure: Failure, graph: GraphEvidence | None) -> Failure:
    """Return the failure of a model that recompiles for ever with how often, and why."""
    if failure.kind != "FailOnRecompileLimitHit" or graph is None or not graph.recompiles:
        return failure
    n, last = len(graph.recompiles), graph.recompiles[-1]
    return msgspec.structs.replace(
        failure,
        reason=one_line(f"recompiled {n} times, last because {last}; {failure.reason}"),
        hint="what the reasons name changes with every call: make it a tensor, or leave it out",
    )


def causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and those that it wraps or came from, without going round in circles."""
    seen: set[int] = set()
    waiting: list[BaseException | None] = [error]
    while waiting:
        found = waiting.pop()
        if not isinstance(found, BaseException) or id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        waiting += [getattr(found, "inner_exception", None), found.__cause__]


def _words(error: BaseException) -> tuple[str, str, str | None]:
    """Return kind, reason and hint, before the place is added."""
    if isinstance(error, SystemExit):
        code = "" if error.code is None else error.code
        return "SystemExit", f"model called sys.exit({code!r})".replace("('')", "()"), None
    if isinstance(error, KeyboardInterrupt):
        return "KeyboardInterrupt", "model raised KeyboardInterrupt", None
    if isinstance(error, MemoryError):
        return "MemoryError", str(error) or "Python ran out of memory", None
    if isinstance(error, ModuleNotFoundError):
        return "ModuleNotFoundError", str(error), _install_hint(error)
    if isinstance(error, BenchbenchError):
        first, *rest = str(error).splitlines()
        steps = [line.strip().removeprefix("next: ") for line in rest]
        return type(error).__name__, first, "; ".join(steps) or None
    if not _has_text(error):
        return type(error).__name__, "".join(traceback.format_exception_only(error)), None
    return error_reason(error)


def _has_text(error: BaseException) -> bool:
    """Say whether ``str(error)`` works: it is the model's code, and may raise anything."""
    return "<exception str() failed>" not in "".join(traceback.format_exception_only(error))


def _install_hint(error: ModuleNotFoundError) -> str | None:
    package = (error.name or "").partition(".")[0]
    if package == "transformers":
        return "pip install 'benchbench[models]'"
    return f"pip install the package that has '{package}'" if package else None


def _placed(reason: str, error: BaseException) -> str:
    """Return the reason with the ops and the place in the user's code that it does not name yet."""
    tail = ""
    ops = [op for op in _ops(error) if op not in reason[:MAX_REASON]]
    if ops:
        tail += f" [{', '.join(ops)}]"
    place = _place(error)
    if place and place not in reason:
        tail += f" at {place}"
    tail = one_line(tail)
    return one_line(reason, max(80, MAX_REASON - len(tail) - 1)) + (f" {tail}" if tail else "")


def _ops(error: BaseException) -> list[str]:
    if not _has_text(error):
        return []
    # Only the head of a message is searched: a long one quotes half of the model.
    text = " ".join(str(found)[:4000] for found in causes(error) if _has_text(found))
    return list(dict.fromkeys(_OP.findall(text)))[:_MANY_OPS]


def _place(error: BaseException) -> str | None:
    for found in causes(error):
        quoted = _USER_CODE.search(str(found)) if _has_text(found) else None
        if quoted:
            return f"{quoted[1].rpartition('/')[2]}:{quoted[2]}"
        place = where_raised(found)
        if place:
            return place
    return None
