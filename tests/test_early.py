"""The early start of the process that starts workers: taken, not taken, and never left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from parent_side import HERE, case, gone

from benchbench import cli, early
from benchbench.early import EarlyServer, begin
from benchbench.ending import JobEnd
from benchbench.process import Launcher
from benchbench.records import Job, Limits, Settings, TimingPolicy

pytestmark = pytest.mark.skipif(os.name != "posix", reason="workers are forked on Linux only")


@pytest.fixture(autouse=True)
def importable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every process find the fake worker, without a setting that would make a difference."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), str(HERE.parent)]))
    monkeypatch.setattr(early, "_ACCELERATORS", ())


def run(server: EarlyServer, folder: Path, settings: Settings | None = None) -> JobEnd:
    work = Job(
        kind="measure",
        case=case(),
        policy=TimingPolicy(),
        limits=Limits(),
        settings=settings or Settings(start="forkserver"),
    )
    with Launcher(entry="fake_worker", preload=(), early=server) as launcher:
        return launcher.run_job(
            work,
            outcome_path=folder / "outcome.json",
            log_path=folder / "case.log",
            on_phase=lambda phase, elapsed_s, limit_s: None,
        )


def test_the_guess_was_right(tmp_path: Path) -> None:
    with EarlyServer() as server:
        end = run(server, tmp_path)
    assert (end.started, end.outcome is not None, end.notes) == ("forked", True, [])
    assert server._taken
    assert gone(server.token)


def test_another_environment_takes_a_process_of_its_own(tmp_path: Path) -> None:
    with EarlyServer() as server:
        end = run(server, tmp_path, Settings(start="forkserver", threads=2))
    assert (end.started, end.outcome is not None, end.notes) == ("forked", True, [])
    assert not server._taken


def test_one_that_was_killed_is_replaced_without_a_word(tmp_path: Path) -> None:
    with EarlyServer() as server:
        server._process.send_signal(signal.SIGKILL)
        server._process.wait()
        end = run(server, tmp_path)
    assert (end.started, end.outcome is not None, end.notes) == ("forked", True, [])
    assert not server._taken


def test_what_it_says_when_it_fails_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = tmp_path / "torch"
    broken.mkdir()
    (broken / "__init__.py").write_text(
        "import time, sys\ntime.sleep(0.5)\nsys.exit('no torch today')\n", encoding="utf-8"
    )
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]]))
    with EarlyServer() as server:
        end = run(server, tmp_path)
        assert server._taken
    assert end.started == "fresh"
    assert "started again in another way" in end.notes[0]
    assert "no torch today" in (tmp_path / "forkserver.log").read_text(encoding="utf-8")


def test_one_that_nobody_takes_is_ended() -> None:
    with EarlyServer() as server:
        process = server._process
        assert process.poll() is None
    assert process.returncode == -signal.SIGKILL


@pytest.mark.parametrize(
    "words", [["device=npu"], ["settings.threads=2"], ["+x=1"], ["~y"], ["--cfg", "job"]]
)
def test_no_guess_where_it_would_be_wrong(words: list[str]) -> None:
    assert begin(words) is None


def test_no_guess_beside_an_accelerator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(early, "_ACCELERATORS", (str(tmp_path),))
    assert begin(["model=mlp"]) is None


def test_a_usage_error_leaves_no_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    begun: list[EarlyServer] = []

    def noted(words: list[str]) -> EarlyServer | None:
        server = begin(words)
        assert server is not None
        begun.append(server)
        return server

    monkeypatch.setattr(early, "begin", noted)
    assert cli.main(["model=no_such_model"]) == 2
    assert "no_such_model" in capsys.readouterr().err
    assert begun[0]._process.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []
