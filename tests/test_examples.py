"""Every example runs as its own text says, and none is without a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples"
QUICK = ["mode=eager", "measure.max_time_s=0.3", "measure.min_time_s=0.1"]
TESTED = {
    "python_api.py",
    "my_model/towers.py",
    "my_model/layers.py",
    "my_model/configs/model/towers.yaml",
    "my_model/configs/suite/towers.yaml",
}


def run(arguments: list[str], results: Path) -> tuple[str, list[dict]]:
    environment = {**os.environ, "BENCHBENCH_RESULTS": str(results), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [
        line
        for file in results.rglob("records.jsonl")
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    return done.stdout, [json.loads(line) for line in lines]


def test_every_example_has_a_test() -> None:
    files = {
        path.relative_to(EXAMPLES).as_posix()
        for path in EXAMPLES.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert files == TESTED


@pytest.mark.slow
def test_python_api(tmp_path: Path) -> None:
    printed, records = run(["examples/python_api.py", "model=mlp", *QUICK], tmp_path)
    assert [record["status"] for record in records] == ["ok"]
    assert "| eager" in printed
    assert f"eager: {records[0]['latency']['median_s'] * 1e3:.3f} ms" in printed


@pytest.mark.slow
def test_my_model(tmp_path: Path) -> None:
    """A model outside the repository's own folders, with a helper file and a suite beside it."""
    command = ["-m", "benchbench", "--config-dir", "examples/my_model/configs", "suite=towers"]
    printed, records = run([*command, *QUICK], tmp_path)
    assert [record["status"] for record in records] == ["ok", "ok"]
    assert [record["case"]["batch_size"] for record in records] == [1, 32]
    assert all(set(record["model_sources"]) == {"towers.py", "layers.py"} for record in records)
    assert records[1]["throughput"]["unit"] == "samples/s"
    assert "towers[small]/forward/b32/float32/cpu" in printed
