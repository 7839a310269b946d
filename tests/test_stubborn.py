"""Eight models that misbehave, and a good one, in one run (cases 25, 49, 52, 53, 55, 58)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from parent_side import HERE, gone

from benchbench.records import Record
from benchbench.store import load_run

MODELS = [
    "segfault",
    "os_exit",
    "sys_exit",
    "hang",
    "memory_error",
    "garbage",
    "long_message",
    "sigkill",
    "good",
]
OPTIONS = [
    "mode=eager",
    "device=cpu",
    "measure.max_time_s=0.3",
    "measure.warmup_max_time_s=1",
]

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def run(
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Path, subprocess.CompletedProcess[bytes], float]:
    start = os.environ.get("BENCHBENCH_TEST_START", "auto")  # by hand also: fresh
    folder = tmp_path_factory.mktemp("stubborn")
    models = ",".join(str(HERE / "stubborn" / f"{name}.py") for name in MODELS)
    started = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "benchbench", f"model=[{models}]", *OPTIONS,
         "limits.warmup_s=3", f"settings.start={start}", f"results_dir={folder}/results"],
        capture_output=True, cwd=folder, timeout=400,
        env={**os.environ, "PYTHONPATH": str(HERE.parent), "LC_ALL": "C"},
    )  # fmt: skip
    return folder, done, time.monotonic() - started


def records(folder: Path) -> dict[str, Record]:
    (run_dir,) = (folder / "results").iterdir()
    stored = load_run(run_dir)
    assert stored.damage == []
    return {record.case.model: record for record in stored.records}


EXPECTED = {
    "segfault": ("crashed", "compile", "killed by SIGSEGV"),
    "os_exit": ("crashed", "load", "exited with code 0 without a result"),
    "sys_exit": ("failed", "compile", "sys.exit(0)"),
    "hang": ("timeout", "warmup", "exceeded its limit of 3 s in phase warmup"),
    "memory_error": ("oom", "warmup", "the third call wants more than there is"),
    "long_message": ("failed", "compile", "流资源不足 / not enough streams"),
    "sigkill": ("crashed", "warmup", "killed by SIGKILL (often out of memory)"),
}


def test_each_has_its_status_phase_and_sentence(run) -> None:  # type: ignore[no-untyped-def]
    folder, done, _ = run
    rows = records(folder)
    assert list(rows) == MODELS, done.stderr.decode()
    for name, (status, phase, sentence) in EXPECTED.items():
        failure = rows[name].failure
        assert failure is not None, name
        assert (name, rows[name].status, failure.phase) == (name, status, phase)
        assert sentence in failure.reason
        assert len(failure.reason) <= 300
        assert not set("\n\t|\r") & set(failure.reason)
        assert f"/{name}.py" in (failure.rerun or "")
    assert done.returncode == 1


def test_the_good_ones_are_measured(run) -> None:  # type: ignore[no-untyped-def]
    folder, _, _ = run
    rows = records(folder)
    for name in ("garbage", "good"):
        assert rows[name].status == "ok"
        latency = rows[name].latency
        assert latency is not None
        assert 0 < latency.median_s < 0.1


def test_logs_keep_what_was_said(run) -> None:  # type: ignore[no-untyped-def]
    folder, _, _ = run
    (run_dir,) = (folder / "results").iterdir()
    rows = records(folder)

    def log(name: str) -> bytes:
        failure = rows[name].failure
        files = list((run_dir / "logs").glob(f"{name}*eager*.log"))
        assert failure is None or run_dir / (failure.log or "") == files[0]
        return files[0].read_bytes()

    assert bytes(range(256)) in log("garbage")
    assert "流资源不足".encode("gbk") in log("garbage")
    assert log("garbage").count(b"x") > 20 * 2**20
    assert b"segfault.py" in log("segfault")  # faulthandler's stack
    assert b"hang.py" in log("hang")
    assert len(log("long_message")) > 5 * 2**20


def test_time_is_bounded_and_nothing_is_left(run) -> None:  # type: ignore[no-untyped-def]
    folder, done, seconds = run
    assert seconds < 300
    assert gone(str(folder))
    (run_dir,) = (folder / "results").iterdir()
    assert {"table.md", "table.csv", "records.jsonl"} <= {p.name for p in run_dir.iterdir()}
    assert not (run_dir / "tmp").exists()
    assert "Traceback" not in done.stderr.decode()
    lines = (run_dir / "table.md").read_text(encoding="utf-8").splitlines()
    assert sum(any(name in line for name in MODELS) for line in lines) >= len(MODELS)


def test_an_interrupted_run_still_has_its_table(tmp_path: Path) -> None:
    """Case 55, through the whole command."""
    models = ",".join(str(HERE / "stubborn" / f"{name}.py") for name in ("good", "hang", "garbage"))
    process = subprocess.Popen(
        [sys.executable, "-m", "benchbench", f"model=[{models}]", *OPTIONS,
         "limits.warmup_s=200", f"results_dir={tmp_path}/results"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE.parent)},
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if b"hang" in line and b"measuring" in line:
            break
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 143, err.decode()
    assert [record.status for record in records(tmp_path).values()] == [
        "ok",
        "interrupted",
        "not_run",
    ]
    assert "interrupted" in out.decode()
    (table,) = (tmp_path / "results").glob("*/table.md")
    assert "not run" in table.read_text(encoding="utf-8").replace("_", " ")
    assert gone(str(tmp_path))
