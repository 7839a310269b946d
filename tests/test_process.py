"""Worker processes: started in every way, ended in every way, and never left behind.

Covers cases 25, 40, 49, 52, 53 with a worker that needs no torch.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from parent_side import HERE, alive, gone, job

from benchbench import process
from benchbench.ending import JobEnd, judge, one_line
from benchbench.interrupts import Interrupts
from benchbench.process import Launcher
from benchbench.records import Failure, Job, Limits, Outcome, Phase

STARTS = ["fresh", "forkserver"]


@pytest.fixture(params=STARTS)
def start(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def launcher(**options: Any) -> Launcher:
    return Launcher(**{"entry": "fake_worker", "preload": (), **options})


def run(work: Job, folder: Path, using: Launcher | None = None, on_phase: Any = None) -> JobEnd:
    def quiet(phase: Phase, elapsed_s: float, limit_s: float) -> float | None:
        return None

    with using or launcher() as made:
        return made.run_job(
            work,
            outcome_path=folder / "outcome.json",
            log_path=folder / "case.log",
            on_phase=on_phase or quiet,
        )


def log(folder: Path) -> bytes:
    return (folder / "case.log").read_bytes()


@pytest.mark.parametrize(
    ("options", "kind", "reason"),
    [
        ({"does": "signal", "signal": 11}, "SIGSEGV", "killed by SIGSEGV"),
        ({"does": "signal", "signal": 9}, "SIGKILL", "killed by SIGKILL (often out of memory)"),
        ({"does": "exit", "code": 0}, "Exit", "exited with code 0 without a result"),
        ({"does": "exit", "code": 7}, "Exit", "exited with code 7 without a result"),
        (
            {"does": "garbage"},
            "Exit",
            "exited with code 0 and left a result that cannot be read",
        ),
    ],
)
@pytest.mark.parametrize("phase", ["compile", "sample"])
def test_a_death_is_named_with_its_phase(
    tmp_path: Path, start: str, phase: str, options: dict[str, Any], kind: str, reason: str
) -> None:
    """Cases 49 and 52: the signal's name, the phase, and no half-written result."""
    end = run(job(start, at=phase, **options), tmp_path)
    judgement = judge(end)
    assert judgement.status == "crashed"
    assert judgement.failure is not None
    assert (judgement.failure.phase, judgement.failure.kind) == (phase, kind)
    assert judgement.failure.reason == reason
    assert judgement.measurement is None
    assert end.started == ("forked" if start == "forkserver" else "fresh")


def test_a_good_result_is_handed_over(tmp_path: Path, start: str) -> None:
    judgement = judge(run(job(start), tmp_path))
    assert judgement.status == "ok"
    assert judgement.measurement is not None
    assert judgement.measurement.samples[0].duration_ns[0] == 1_000_000
    assert judgement.caveats == []


@pytest.mark.parametrize("options", [{"after": "segfault"}, {"exit": 3}])
def test_a_crash_after_the_result_keeps_it_with_a_caveat(
    tmp_path: Path, start: str, options: dict[str, Any]
) -> None:
    judgement = judge(run(job(start, **options), tmp_path))
    assert judgement.status == "ok"
    assert judgement.measurement is not None
    assert judgement.caveats == ["CRASHED_AT_EXIT"]
    assert "after it had handed over its result" in judgement.notes[0]


def test_a_hang_is_ended_after_its_stack_was_asked_for(
    tmp_path: Path, start: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cases 25 and 40: SIGTERM is ignored, and the clock of the wall stands still."""
    monkeypatch.setattr(process, "TERM_GRACE_S", 0.3)
    monkeypatch.setattr(time, "time", lambda: 0.0)
    limits = Limits(sample_s=0.3)
    judgement = judge(run(job(start, limits, does="hang"), tmp_path))
    assert judgement.status == "timeout"
    assert judgement.failure is not None
    assert judgement.failure.reason == "exceeded its limit of 0.3 s in phase sample"
    assert "limits.sample_s=" in (judgement.failure.hint or "")
    assert b"stack asked for" in log(tmp_path)
    assert gone("fake_worker", str(tmp_path))


def test_going_back_and_forth_gives_no_more_time(tmp_path: Path) -> None:
    path = tmp_path / "outcome.json"
    phases = process._Phases(path, Limits(warmup_s=0.2, sample_s=50.0))

    def enter(*names: str) -> None:
        with phases.path.open("ab") as file:
            file.writelines(b'{"phase": "%s"}\n' % name.encode() for name in names)
        phases.take_in()

    enter("warmup")
    time.sleep(0.05)
    enter("sample")
    enter("warmup")
    assert phases.phase == "warmup"
    assert phases.left_s() < 0.151


def test_a_line_of_phases_that_is_torn_or_odd_is_passed_over(tmp_path: Path) -> None:
    phases = process._Phases(tmp_path / "outcome.json", Limits())
    phases.path.write_bytes(b'{"phase": "compile"}\n{"phase": "lunch"}\n\xff\n[]\n{"phase": "sam')
    phases.take_in()
    assert phases.phase == "compile"


def test_children_end_with_their_worker(tmp_path: Path, start: str) -> None:
    """Also the one that has left the process group."""
    with launcher() as made:
        assert judge(run_with(made, job(start, does="children"), tmp_path)).status == "ok"
        assert gone("sleep", "726")


def run_with(made: Launcher, work: Job, folder: Path) -> JobEnd:
    return made.run_job(
        work,
        outcome_path=folder / "outcome.json",
        log_path=folder / "case.log",
        on_phase=lambda *_: None,
    )


def test_noise_on_stdout_is_no_result(tmp_path: Path, start: str) -> None:
    """Case 53: 20 MB of text, all byte values, GBK, and a line that looks like a result."""
    judgement = judge(run(job(start, does="noise", megabytes=20), tmp_path))
    assert judgement.status == "ok"
    assert judgement.measurement is not None
    assert judgement.measurement.samples
    content = log(tmp_path)
    assert bytes(range(256)) in content
    assert "模型".encode("gbk") in content
    assert content.count(b"x") > 20 * 2**20


def test_the_worker_has_its_variables_before_it_starts(tmp_path: Path, start: str) -> None:
    names = ["OMP_NUM_THREADS", "MINE", "PYTHONHASHSEED", "TORCHINDUCTOR_CACHE_DIR"]
    work = job(start, show=names)
    environment = {**work.settings.environment, "MINE": "yes"}
    settings = msgspec.structs.replace(work.settings, threads=3, environment=environment)
    work = msgspec.structs.replace(work, settings=settings, cache_dir=str(tmp_path / "cache"))
    run(work, tmp_path)
    lines = log(tmp_path).decode().splitlines()
    assert {"OMP_NUM_THREADS=3", "MINE=yes", "PYTHONHASHSEED=0"} <= set(lines)
    assert any(x.startswith(f"TORCHINDUCTOR_CACHE_DIR={tmp_path}/cache") for x in lines)


def test_one_server_serves_jobs_of_one_environment(tmp_path: Path) -> None:
    """Variables read while torch is imported cannot be changed in a server that runs already."""
    parents = []
    with launcher() as made:
        for mine in ("a", "a", "b"):
            work = job("forkserver")
            environment = {**work.settings.environment, "MINE": mine}
            settings = msgspec.structs.replace(work.settings, environment=environment)
            run_with(made, msgspec.structs.replace(work, settings=settings), tmp_path)
            parents.append(log(tmp_path).decode().split(" of ")[1].split()[0])
    assert parents[0] == parents[1] != parents[2]


def test_a_server_that_dies_costs_no_row(tmp_path: Path, start: str) -> None:
    with launcher() as made:
        first = run_with(made, job(start, does="kill server"), tmp_path)
        second = run_with(made, job(start), tmp_path)
    assert judge(first).status == "ok"
    assert "was killed by SIGKILL" in judge(first).notes[0]
    assert judge(second).status == "ok"
    assert judge(second).notes == []
    assert second.started == "fresh"


@pytest.mark.parametrize(
    "source",
    [
        "raise OSError('no driver')",
        "from threading import Timer; t = Timer(9, print); t.daemon = True; t.start()",
    ],
)
def test_where_forking_is_unsound_workers_start_fresh(tmp_path: Path, source: str) -> None:
    (tmp_path / "bad_import.py").write_text(source)
    work = job("forkserver")
    path = os.pathsep.join([str(tmp_path), work.settings.environment["PYTHONPATH"]])
    settings = msgspec.structs.replace(work.settings, environment={"PYTHONPATH": path})
    work = msgspec.structs.replace(work, settings=settings)
    end = run(work, tmp_path, launcher(preload=("bad_import",)))
    assert judge(end).status == "ok"
    assert end.started == "fresh"
    assert "exited with code 1" in end.notes[0]


def test_a_server_that_never_gets_ready_is_ended(tmp_path: Path) -> None:
    (tmp_path / "slow_import.py").write_text("import time; time.sleep(60)")
    work = job("forkserver", Limits(load_s=0.3))
    path = os.pathsep.join([str(tmp_path), work.settings.environment["PYTHONPATH"]])
    settings = msgspec.structs.replace(work.settings, environment={"PYTHONPATH": path})
    work = msgspec.structs.replace(work, settings=settings)
    judgement = judge(run(work, tmp_path, launcher(preload=("slow_import",))))
    assert judgement.failure is not None
    assert judgement.failure.reason == "exceeded its limit of 0.3 s in phase load"
    assert gone("slow_import")


def test_the_parent_sleeps_while_a_worker_samples(tmp_path: Path, start: str) -> None:
    """The peer's parent spins on a core while its worker is timed: under 1 % here."""
    end = run(job(start, does="sleep", seconds=0.8), tmp_path)
    assert end.parent_cpu_share is not None
    assert end.parent_cpu_share < 0.01


def test_phases_are_announced_and_asked_for_again(tmp_path: Path) -> None:
    seen: list[Phase] = []

    def on_phase(phase: Phase, elapsed_s: float, limit_s: float) -> float | None:
        seen.append(phase)
        assert limit_s == Limits().of(phase)
        return 0.1

    run(job("fresh", at="compile", does="sleep", seconds=0.45), tmp_path, on_phase=on_phase)
    assert 3 <= seen.count("compile") <= 6
    assert seen == sorted(seen, key=process.PHASES.index)


def test_an_interrupt_ends_the_worker(tmp_path: Path, start: str) -> None:
    def on_phase(phase: Phase, elapsed_s: float, limit_s: float) -> float | None:
        if phase == "sample":
            os.kill(os.getpid(), signal.SIGINT)
        return None

    with Interrupts() as stop:
        made = launcher(stop=stop)
        end = run(job(start, does="sleep", seconds=60), tmp_path, made, on_phase)
    judgement = judge(end)
    assert judgement.status == "interrupted"
    assert judgement.failure is not None
    assert judgement.failure.reason == "stopped by SIGINT in phase sample"
    assert gone("fake_worker", str(tmp_path))


@pytest.mark.parametrize("way", STARTS)
def test_nothing_outlives_a_parent_that_is_killed(tmp_path: Path, way: str) -> None:
    script = f"""
import sys
sys.path.insert(0, {str(HERE)!r})
from pathlib import Path
from parent_side import job
from benchbench.process import Launcher
folder = Path({str(tmp_path)!r})
with Launcher(entry="fake_worker", preload=()) as made:
    made.run_job(job({way!r}, does="hang"), outcome_path=folder / "o.json",
                 log_path=folder / "case.log", on_phase=lambda *_: None)
"""
    parent = subprocess.Popen([sys.executable, "-c", script])
    deadline = time.monotonic() + 20
    while b"hanging" not in (log(tmp_path) if (tmp_path / "case.log").exists() else b""):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    worker = int(log(tmp_path).split(b"pid ")[1].split()[0])
    server = int(log(tmp_path).split(b" of ")[1].split()[0])
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 10
    while any(running(pid) for pid in (worker, server)):
        assert time.monotonic() < deadline
        time.sleep(0.05)


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_without_servers_workers_are_started_directly(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "_SERVERS_POSSIBLE", False)
    end = run(job("forkserver", does="signal", signal=11), tmp_path)
    assert end.started == "fresh"
    assert end.returncode == -11
    assert alive("benchbench.forkserver", str(tmp_path)) == []


def test_the_log_begins_with_the_command_that_runs_the_job_again(tmp_path: Path) -> None:
    run(job("fresh"), tmp_path)
    command = log(tmp_path).decode().splitlines()[0].split()
    assert command == [
        "$",
        "python",
        "-m",
        "fake_worker",
        f"{tmp_path}/case.job.json",
        "outcome.json",
    ]
    path = job("fresh").settings.environment
    subprocess.run(
        [sys.executable, *command[2:]], cwd=tmp_path, env={**os.environ, **path}, check=True
    )
    content = (tmp_path / "outcome.json").read_bytes()
    assert msgspec.json.decode(content, type=Outcome).measurement is not None


def test_a_huge_message_becomes_one_short_line() -> None:
    failure = Failure(phase="load", kind="RuntimeError", reason="a|b\tc\r\n\x00" * 10**6)
    end = JobEnd(outcome=Outcome(status="failed", failure=failure), phase="load", returncode=1)
    judged = judge(end).failure
    assert judged is not None
    assert len(judged.reason) <= 300
    assert judged.reason.startswith("a/b c a/b c")
    assert judged.reason.endswith(" ...")


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("short", "short"),
        ("two\nlines", "two lines"),
        ("流资源不足", "流资源不足"),
        ("a lone \udcff", "a lone \\udcff"),
        ("", ""),
    ],
)
def test_one_line(text: str, line: str) -> None:
    assert one_line(text) == line
