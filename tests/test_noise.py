"""The noise of a host: measured with real processes, kept per host, read again."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchbench import noise


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def some(duet_sd: float = 0.004) -> noise.Noise:
    return noise.Noise(
        measured_at=1.0, duet_sd=duet_sd, process_sd=0.02, flagged=1, processes=12, call_s=0.002
    )


def test_kept_noise_is_read_again_and_that_of_other_hosts_stays(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert noise.load() is None
    noise.keep(some())
    assert noise.load() == some()
    monkeypatch.setattr(noise, "host_key", lambda: "another host")
    assert noise.load() is None
    noise.keep(some(0.1))
    monkeypatch.undo()


def test_a_damaged_file_counts_as_never_measured() -> None:
    noise.keep(some())
    noise.path().write_text("{", encoding="utf-8")
    assert noise.load() is None
    noise.keep(some())
    assert noise.load() == some()


def test_lines_say_what_each_policy_can_see() -> None:
    lines = " ".join(some().lines())
    assert "standard (5 processes) sees differences from 2.0%" in lines
    assert "nothing below 6%" in lines
    wide = " ".join(some(0.03).lines())
    assert "standard (5 processes) sees differences from 6." in wide


@pytest.mark.slow
def test_measured_on_this_machine() -> None:
    said: list[str] = []
    found = noise.measure(say=said.append, processes=2)
    assert found.processes == 2
    assert 0 <= found.duet_sd < 1
    assert 1e-5 < found.call_s < 10
    assert said == ["noise: 1 of 2", "noise: 2 of 2"]
