"""How a worker ended, in words; no process is started here."""

from __future__ import annotations

import signal

import pytest

from benchbench.ending import JobEnd, judge


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (signal.SIGSEGV, "Python stack"),
        (signal.SIGABRT, "Python stack"),
        (signal.SIGTERM, "sent the signal"),
        (signal.SIGKILL, "free memory"),
    ],
)
def test_a_stack_is_promised_only_where_one_is_written(number: int, says: str) -> None:
    """Cases 49 and 52: the next step depends on the signal."""
    judged = judge(JobEnd(outcome=None, phase="warmup", returncode=-number))
    assert judged.status == "crashed"
    assert judged.failure is not None
    assert says in (judged.failure.hint or "")
