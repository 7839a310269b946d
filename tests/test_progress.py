"""What a user sees while it runs: lines in a log, a live line on a terminal (cases 56 and 71)."""

from __future__ import annotations

import io

import pytest
from parent_side import case

from benchbench.assemble import unmeasured
from benchbench.progress import Progress
from benchbench.records import Plan


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock() -> list[float]:
    return [0.0]


def on_terminal(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> tuple[Progress, Terminal]:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    terminal = Terminal()
    return Progress(terminal, clock=lambda: clock[0]), terminal


def test_a_log_tells_row_phase_elapsed_and_limit() -> None:
    log = io.StringIO()
    with Progress(log) as progress:
        progress.case(2, 4, case("llama", "inductor"))
        progress.job("measure")
        assert progress.phase("compile", 0.0, 3600.0) == 30.0
        progress.phase("compile", 60.0, 3600.0)
    assert log.getvalue().splitlines() == [
        "[2/4] llama/forward/b1/float32/cpu inductor: compiling",
        "[2/4] llama/forward/b1/float32/cpu inductor: compiling, 60 s of 3600 s",
    ]


def test_a_log_has_each_phase_of_note_once() -> None:
    log = io.StringIO()
    with Progress(log) as progress:
        progress.case(1, 1, case())
        progress.job("reference")
        for phase in ("load", "inputs", "load", "check", "warmup", "sample"):
            progress.phase(phase, 0.0, 1.0)
    lines = log.getvalue().splitlines()
    assert [line.partition(": ")[2] for line in lines] == [
        "reference: loading",
        "reference: measuring",
    ]


def test_a_failed_row_says_why() -> None:
    log = io.StringIO()
    with Progress(log) as progress:
        progress.case(1, 1, case())
        record = unmeasured(Plan(run_id="x", cases=[]), case(), "skipped", "no such device")
        progress.done(record)
    assert log.getvalue().endswith("eager: skipped: no such device\n")


def test_nothing_is_drawn_while_a_worker_samples(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, terminal = on_terminal(clock, monkeypatch)
    with progress:
        progress.case(1, 1, case())
        progress.job("measure")
        clock[0] = 5.0
        assert progress.phase("warmup", 0.0, 300.0) is None
        drawn = terminal.getvalue()
        assert "measuring" in drawn
        clock[0] = 50.0
        assert progress.phase("sample", 45.0, 300.0) is None
        assert terminal.getvalue() == drawn


def test_a_terminal_is_redrawn_once_a_second_at_most(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    progress, terminal = on_terminal(clock, monkeypatch)
    with progress:
        progress.case(1, 1, case())
        progress.job("measure")
        assert progress.phase("compile", 0.0, 3600.0) == 1.0
        drawn = terminal.getvalue()
        clock[0] = 0.25
        assert progress.phase("compile", 0.25, 3600.0) == 0.75
        assert terminal.getvalue() == drawn
        clock[0] = 1.5
        progress.phase("compile", 1.5, 3600.0)
        assert "2 s of 3600 s" in terminal.getvalue()[len(drawn) :]


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "gbk", "utf-8"])
def test_no_locale_kills_the_printing(encoding: str) -> None:
    """Case 71: a Chinese model on an ASCII stream."""
    raw = io.BytesIO()
    with Progress(io.TextIOWrapper(raw, encoding=encoding, errors="strict")) as progress:
        progress.case(1, 1, case("模型 é 🎉"))
        progress.job("measure")
        progress.phase("load", 0.0, 1.0)
    assert raw.getvalue().decode(encoding).count("loading") == 1


def test_a_closed_stream_ends_no_run() -> None:
    closed = io.StringIO()
    closed.close()
    with Progress(closed) as progress:
        progress.case(1, 1, case())
        progress.job("measure")
        assert progress.phase("load", 0.0, 1.0) == 30.0


def test_quiet_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with Progress(quiet=True) as progress:
        progress.case(1, 1, case())
        progress.job("measure")
        progress.phase("load", 31.0, 600.0)
    assert capsys.readouterr() == ("", "")
