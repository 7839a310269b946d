"""What happens when something compiles while samples are taken."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from worker_side import make_job

from benchbench.devices.cpu import Cpu
from benchbench.failures import CaseError
from benchbench.findings import Findings
from benchbench.measure import Loop
from benchbench.phases import Phases
from benchbench.records import GraphEvidence
from benchbench.timing import Timer


class FakeWatch:
    """Counts an event in the first so many measured windows."""

    def __init__(self, spoilt_windows: int) -> None:
        self.events = 0
        self.spoilt_windows = spoilt_windows
        self.due = False

    @contextlib.contextmanager
    def window(self) -> Iterator[None]:
        self.due = self.spoilt_windows > 0
        self.spoilt_windows -= 1
        yield
        self.due = False

    def call(self) -> None:
        self.events += self.due
        self.due = False

    def collect(self, mode: Any, device: Any) -> GraphEvidence:
        return GraphEvidence(in_window=["compile of forward: step == 7"])


def timed(tmp_path: Path, spoilt_windows: int) -> Findings:
    watch = FakeWatch(spoilt_windows)
    findings = Findings(Phases(tmp_path / "outcome.json"))
    timer = Timer(make_job("good"), Cpu(), None, watch, findings)  # type: ignore[arg-type]
    try:
        timer.run(Loop((watch.call, watch.call)))
    except CaseError as error:
        findings.notes.append(f"{error.phase} {error.kind}: {error.reason}")
    return findings


def test_a_clean_window_is_kept(tmp_path: Path) -> None:
    found = timed(tmp_path, 0)
    assert [one.phase for one in found.samples].count("sample") == 1
    assert found.interference is not None
    assert found.memory is not None
    assert found.memory.steady_peak_bytes is not None


def test_an_event_in_the_window_goes_back_to_the_warm_up(tmp_path: Path) -> None:
    """Case 16: the spoilt samples are kept, but as warm-up."""
    found = timed(tmp_path, 1)
    phases = [one.phase for one in found.samples]
    assert phases.count("sample") == 1
    assert phases[-1] == "sample"
    assert any("began again" in note and "step == 7" in note for note in found.notes)


def test_the_second_event_makes_the_row_invalid(tmp_path: Path) -> None:
    found = timed(tmp_path, 2)
    assert [one.phase for one in found.samples].count("sample") == 0
    assert found.graph is not None
    assert found.graph.in_window
    assert any("sample RecompiledWhileSampling" in note for note in found.notes)


@pytest.mark.parametrize("spoilt_windows", [0, 2])
def test_the_collector_runs_again_afterwards(tmp_path: Path, spoilt_windows: int) -> None:
    import gc

    timed(tmp_path, spoilt_windows)
    assert gc.isenabled()
