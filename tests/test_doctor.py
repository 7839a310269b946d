"""doctor: what can run here, and for everything else the reason and the fix, without torch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from benchbench import devices, doctor

CODE = """
import sys
from benchbench import doctor
code = doctor.main(sys.argv[1:])
assert not {"torch", "torch_npu"} & set(sys.modules), "the parent never imports torch"
sys.exit(code)
"""


def run(*words: str, **variables: str) -> tuple[int, str]:
    done = subprocess.run(
        [sys.executable, "-c", CODE, *words],
        capture_output=True,
        check=False,
        env={**os.environ, **variables},
    )
    assert b"Traceback" not in done.stderr, done.stderr.decode()
    return done.returncode, done.stdout.decode("utf-8")


def as_json(*words: str, **variables: str) -> tuple[int, dict[str, Any]]:
    code, out = run("--json", *words, **variables)
    return code, json.loads(out)


def test_json_has_every_device_with_a_reason_or_none(tmp_path: Path) -> None:
    code, report = as_json("--results-dir", str(tmp_path / "new" / "results"))
    assert code == 0
    states = {state["kind"]: state for state in report["devices"]}
    assert tuple(states) == devices.KINDS
    assert "problem" not in states["cpu"]
    assert states["cpu"]["modes"]["eager"] is None
    assert states["cpu"]["modes"]["npugraph_ex"]
    assert report["clock"]["read_s"] > 0
    assert report["clock"]["resolution_s"] > 0
    assert report["host"]["usable_cores"] >= 1
    assert report["disk"]["free_bytes"] > 0
    assert not (tmp_path / "new").exists()


def test_text_says_the_same_in_lines(tmp_path: Path) -> None:
    code, out = run("--results-dir", str(tmp_path))
    assert code == 0
    for needed in ("devices:", "packages:", "machine:", "clock", "load average", "cpu  "):
        assert needed in out
    assert "None" not in out
    assert out.rstrip().splitlines()[-1].startswith(("problem: ", "no problems"))


@pytest.fixture
def torch_npu_without_cann(tmp_path: Path) -> dict[str, str]:
    """Return variables of an installation with torch_npu, whose import would fail."""
    site = tmp_path / "site"
    (site / "torch_npu" / "dynamo" / "torchair").mkdir(parents=True)
    (site / "torch_npu" / "__init__.py").write_text("raise ImportError('libhccl.so')\n")
    info = site / "torch_npu-2.9.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_npu\nVersion: 2.9.0\n")
    known = {"ASCEND_HOME_PATH": "", "LD_LIBRARY_PATH": "", "HOME": str(tmp_path)}
    path = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return {**known, "PYTHONPATH": path}


@pytest.mark.skipif(Path("/usr/local/Ascend").exists(), reason="CANN is installed here")
def test_torch_npu_without_cann_is_one_sentence(torch_npu_without_cann: dict[str, str]) -> None:
    code, report = as_json(**torch_npu_without_cann)
    assert code == 0
    assert report["packages"]["torch_npu"] == "2.9.0"
    assert report["packages"]["torchair"] == "inside torch_npu 2.9.0"
    (state,) = [state for state in report["devices"] if state["kind"] == "npu"]
    (problem,) = [text for text in report["problems"] if "CANN" in text]
    assert state["problem"] == problem
    assert "set_env.sh" in problem
    assert "\n" not in problem


def test_compiler_that_works() -> None:
    found = doctor.check_compiler()
    if found.problem is None:
        assert found.version


@pytest.mark.parametrize(
    ("command", "said"),
    [("/no/such/g++", "does not start"), ("false", "does not work"), ("", "")],
)
def test_compiler_that_does_not(command: str, said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if not command:
        monkeypatch.delenv("CXX", raising=False)
        monkeypatch.setenv("PATH", "")
        said = "no C++ compiler found"
    found = doctor.check_compiler(command)
    assert found.problem is not None
    assert said in found.problem
    assert "g++" in found.problem


def test_broken_compiler_stops_the_modes_that_need_it() -> None:
    code, report = as_json(CXX="false")
    assert code == 0
    (cpu,) = [state for state in report["devices"] if state["kind"] == "cpu"]
    assert "C++ compiler false" in cpu["modes"]["inductor"]
    assert cpu["modes"]["eager"] is None
    assert any("C++ compiler" in text for text in report["problems"])


def test_results_folder_in_the_way(tmp_path: Path) -> None:
    (tmp_path / "results").write_text("mine")
    found = doctor.check_disk(tmp_path / "results")
    assert found.problem is not None
    assert "is a file" in found.problem
    assert (tmp_path / "results").read_text() == "mine"


def test_nothing_can_run_exits_with_4() -> None:
    state = doctor.DeviceState(kind="cpu", problem="broken")
    report = doctor.examine(Path("results"))
    assert report.exit_code == 0
    assert msgspec.structs.replace(report, devices=[state]).exit_code == 4


def test_noise_is_a_problem_with_a_fix() -> None:
    report = doctor.examine(Path("results"))
    slow = doctor.Clock(name="perf_counter_ns", read_s=5e-6, resolution_s=1e-6)
    busy = doctor.Host(load_average=9.0, usable_cores=2, governor="powersave")
    problems = doctor._problems(
        {**report.packages, "torch": doctor.NOT_INSTALLED},
        report.compiler,
        slow,
        busy,
        doctor.Disk(path="/x", free_bytes=10),
        doctor.Torch(problem="import torch fails: x"),
    )
    text = "\n".join(problems)
    for needed in ("pip install torch", "clocksource", "load average 9.0", "governor", "free for"):
        assert needed in text


def test_deep_asks_torch_in_a_process_of_its_own() -> None:
    code, report = as_json("--deep")
    assert code == 0
    assert report["torch"]["version"] == report["packages"]["torch"]


def test_a_variable_that_spoils_numbers_is_named() -> None:
    _, report = as_json(OMP_WAIT_POLICY="ACTIVE")
    assert any(text.startswith("OMP_WAIT_POLICY") for text in report["problems"])
