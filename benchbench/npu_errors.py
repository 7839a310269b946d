"""Errors of an NPU in a sentence: what torch_npu and the Graph Engine mean by their codes.

torch_npu raises ``RuntimeError`` with the C++ expression that failed and a number. The meanings are
those of CANN's headers; the advice is from the documentation and public issue trackers. Most have
been seen over the simulated NPU only.
"""

from __future__ import annotations

import re

_CODE = re.compile(r"error code is (\d{6})\b")
_NO_KERNEL = re.compile(r"EZ3003:? .*?\[([\w:]+)\]", re.DOTALL)
_ENGINE_CODE = re.compile(r"\b(E\d{5}|E[A-Z]\d{4}):\s*(.{0,200})")
_NO_ACLOP = "Cannot run aclop operators during NPU graph capture"
_PREFIXES = ("[npusim] ",)

_STREAMS = (
    "fewer or smaller captured graphs; HDK 25.5.1 with CANN 8.5.0 and later have more streams"
)
_BLOCKING = "settings.environment.ASCEND_LAUNCH_BLOCKING=1 makes the op itself raise"
_LOST = "npu-smi info tells whether the device is still there; cases after this one may fail too"

_MEANINGS: dict[int, tuple[str, str | None]] = {
    107025: (
        "the captured graph is invalid: a stream that joined it was not joined back",
        "let side streams in forward wait for one another before it returns",
    ),
    107027: ("a stream that is being captured was used from outside", None),
    107030: (
        "something inside the captured graph waits for the device",
        "take .item(), .cpu(), print and synchronize out of forward",
    ),
    207000: ("this device or its driver does not have the feature", None),
    207005: ("the device ran out of resources for streams", _STREAMS),
    207008: ("the device ran out of streams", _STREAMS),
    507010: ("the device was lost: it no longer answers", _LOST),
    507011: ("the device could not run the graph", _BLOCKING),
    507014: ("a kernel ran longer than the device allows", _BLOCKING),
    507015: ("a kernel failed on an AI core, often by an index out of range", _BLOCKING),
    507018: ("a kernel failed on an AI CPU", _BLOCKING),
    507033: ("the device could not be set up", _LOST),
    507035: ("a kernel failed on a vector core, often by an index out of range", _BLOCKING),
    507046: ("the device did not finish within the time that it was given", None),
    507054: ("the device's memory has an error that it cannot correct", _LOST),
}


def explain(message: str) -> tuple[str, str | None] | None:
    """Return sentence and hint for the text of an exception; ``None`` for one of another kind."""
    if _NO_ACLOP in message:
        return (
            "an op in the graph has only an old (aclop) kernel, which cannot be captured",
            "the log names it; force_eager=true runs the graph without capture",
        )
    missing = _NO_KERNEL.search(message)
    if missing:
        return (
            f"the Graph Engine has no kernel for {missing[1]} here (EZ3003)",
            "another dtype, shape or CANN version may have one",
        )
    return _runtime(message) or _engine(message)


def _runtime(message: str) -> tuple[str, str | None] | None:
    found = _CODE.search(message)
    if not found or int(found[1]) not in _MEANINGS:
        return None
    sentence, hint = _MEANINGS[int(found[1])]
    return f"{sentence} (error code {found[1]}){_detail(message)}", hint


def _engine(message: str) -> tuple[str, str | None] | None:
    found = _ENGINE_CODE.search(message)
    if not found:
        return None
    detail = found[2].strip()
    for prefix in _PREFIXES:
        detail = detail.removeprefix(prefix)
    return (
        f"the Graph Engine failed ({found[1]})" + (f": {detail}" if detail else ""),
        "details are in CANN's own log: ~/ascend/log, or ASCEND_SLOG_PRINT_TO_STDOUT=1",
    )


def _detail(message: str) -> str:
    """Return what the simulated NPU adds about itself, so that nobody takes it for a device."""
    found = re.search(r"^\[npusim\] (.+)$", message, re.MULTILINE)
    return f": simulated, {found[1]}" if found and "error code is" not in found[1] else ""
