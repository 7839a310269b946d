"""Whole runs on the simulated NPU, through the command line."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from probe_process import probe_environment

pytestmark = [pytest.mark.npusim, pytest.mark.slow]

MODES = "mode=[max-autotune,npugraph_ex,eager]"
TIMES = ("latency", "device_time", "throughput", "compile", "break_even_calls", "interference")


@dataclass(frozen=True, slots=True)
class Ran:
    code: int
    output: str
    rows: dict[str, dict[str, Any]]
    folder: Path


def command(folder: Path, *words: str) -> Ran:
    """Run benchbench on the mlp; return exit code, output and records by mode."""
    done = subprocess.run(
        [sys.executable, "-m", "benchbench", *words, "model=mlp", f"results_dir={folder}"],
        cwd=folder,
        env={**probe_environment(), "BENCHBENCH_LOCK_DIR": str(folder / "locks")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    files = list(folder.rglob("records.jsonl"))
    assert len(files) == 1, done.stderr
    rows = [json.loads(line) for line in files[0].read_text().splitlines()]
    by_mode = {row["case"]["mode"]: row for row in rows}
    return Ran(done.returncode, done.stdout, by_mode, files[0].parent)


def test_rehearsal_has_evidence_and_no_times(built: None, tmp_path: Path) -> None:
    ran = command(tmp_path, "rehearse", MODES, "dtype=float32")
    assert ran.code == 0, ran.output
    assert "3 cases: 3 ready" in ran.output
    assert ran.folder.parent == tmp_path / "rehearsals"
    assert (ran.folder / "rehearsal.txt").read_text() in ran.output
    for row in ran.rows.values():
        assert row["status"] == "ok"
        assert row["simulated"]
        assert not [name for name in TIMES if name in row]
        assert row["accuracy"]["verdict"] == "pass"
        assert row["accuracy"]["max_abs"] < 1e-5
    assert not (ran.folder / "samples.parquet").exists()
    assert ran.rows["npugraph_ex"]["graph"]["captures"] == 1
    counters = ran.rows["npugraph_ex"]["graph"]["counters"]
    assert counters["npusim captures"] == 1
    assert counters["npusim replays"] > 20
    assert ran.rows["max-autotune"]["graph"]["effective"] == "torchair"
    assert sum(ran.rows["max-autotune"]["graph"]["ir_ops"].values()) > 5


def test_injected_faults_end_their_own_row(built: None, tmp_path: Path) -> None:
    faults = "device.options.faults=[capture,ge-compile]"
    ran = command(tmp_path, "run", "device=npu-sim", MODES, "accuracy=false", faults)
    assert ran.code == 1
    assert ran.rows["eager"]["status"] == "ok"
    captured, compiled = ran.rows["npugraph_ex"], ran.rows["max-autotune"]
    assert captured["status"] == compiled["status"] == "failed"
    assert captured["failure"]["phase"] == compiled["failure"]["phase"] == "compile"
    assert "error code 107025" in captured["failure"]["reason"]
    assert "Graph Engine failed (E89999)" in compiled["failure"]["reason"]
    assert "simulated" in ran.output


def test_hang_in_a_replay_ends_at_its_limit(built: None, tmp_path: Path) -> None:
    words = ["device=npu-sim", "mode=[npugraph_ex]", "baseline=null", "accuracy=false"]
    hang = ["device.options.faults=[replay-hang@3]", "limits.timeout_s=60", "limits.warmup_s=5"]
    ran = command(tmp_path, "run", *words, *hang)
    assert ran.code == 1
    assert ran.rows["npugraph_ex"]["status"] == "timeout"
    assert ran.rows["npugraph_ex"]["failure"]["phase"] == "warmup"
    assert not _alive(str(tmp_path))


def test_device_memory_runs_out(built: None, tmp_path: Path) -> None:
    words = ["device=npu-sim", "mode=[eager]", "accuracy=false", "device.options.memory_gb=0.001"]
    ran = command(tmp_path, "run", *words)
    assert ran.rows["eager"]["status"] == "oom"


def _alive(word: str) -> list[str]:
    """Return the processes whose command line has a word in it."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace")
        except OSError:
            continue
        if word in text:
            found.append(text)
    return found
