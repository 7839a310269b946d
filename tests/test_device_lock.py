"""Two runs on one device wait for each other."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchbench import device_lock

HOLD = """
import sys, time
from benchbench import device_lock
with device_lock.held("cpu", "RUN_A", say=print, stopped=lambda: False):
    print("held", flush=True)
    sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(device_lock.FOLDER, str(tmp_path / "locks"))


def test_a_second_run_waits_names_the_first_and_goes_on_when_it_ends() -> None:
    first = subprocess.Popen(
        [sys.executable, "-c", HOLD], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert first.stdin is not None
    assert first.stdout is not None
    assert first.stdout.readline() == "held\n"
    said: list[str] = []
    naps: list[float] = []

    def sleep(seconds: float) -> None:
        naps.append(seconds)
        if len(naps) == 2:
            first.kill()  # the kernel lets go of a lock whose holder is killed
            first.wait()

    with device_lock.held(
        "cpu", "RUN_B", say=said.append, stopped=lambda: False, sleep=sleep
    ) as ok:
        assert ok
    assert len(naps) >= 2
    assert said == [f"waiting for cpu: run RUN_A (process {first.pid}) is measuring on it"]


def test_another_device_is_free() -> None:
    with (
        device_lock.held("npu0", "A", say=print, stopped=lambda: False) as first,
        device_lock.held("npu1", "B", say=print, stopped=lambda: False) as second,
    ):
        assert first
        assert second


def test_waiting_ends_when_the_user_stops_it() -> None:
    with device_lock.held("cpu", "A", say=print, stopped=lambda: False) as first:
        assert first
        descriptor = os.open(device_lock.folder() / "cpu.lock", os.O_RDWR)
        os.close(descriptor)
        with device_lock.held("cpu", "B", say=lambda _: None, stopped=lambda: True) as second:
            assert not second


def test_a_folder_that_cannot_be_made_is_said_and_does_not_stop_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv(device_lock.FOLDER, str(tmp_path / "file" / "below"))
    said: list[str] = []
    with device_lock.held("cpu", "A", say=said.append, stopped=lambda: False) as ok:
        assert ok
    assert "no lock for cpu" in said[0]
