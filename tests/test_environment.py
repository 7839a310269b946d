"""Facts, the allow-list of variables, and the readings of /proc."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
from worker_side import make_job

from benchbench import environment, interference
from benchbench.records import Settings


def test_host_facts_are_json_and_need_no_torch() -> None:
    code = (
        "import json, sys; from benchbench.environment import host_facts;"
        "print(json.dumps(host_facts())); assert 'torch' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    assert facts["python"].count(".") == 2
    assert facts["cpu"]["usable_cores"] >= 1
    assert facts["packages"]["torch"]


def test_only_variables_of_the_list_are_ever_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "HF_TOKEN", "USER", "PATH"):
        monkeypatch.setenv(name, "sesame")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    stored = environment.host_facts()["variables"]
    assert stored["OMP_NUM_THREADS"] == "3"
    assert set(stored) <= environment.RECORDED
    assert "sesame" not in json.dumps(environment.host_facts())


@pytest.mark.parametrize(
    ("variables", "named"),
    [
        ({"OMP_WAIT_POLICY": "ACTIVE"}, ["OMP_WAIT_POLICY"]),
        ({"LD_PRELOAD": "/usr/lib/libjemalloc.so"}, ["LD_PRELOAD"]),
        ({"LD_PRELOAD": ""}, []),
        ({"ASCEND_LAUNCH_BLOCKING": "0"}, []),
        ({"ASCEND_LAUNCH_BLOCKING": "1"}, ["ASCEND_LAUNCH_BLOCKING"]),
        ({"OMP_NUM_THREADS": "1", "GOMP_SPINCOUNT": "1000"}, []),
        ({"TORCH_LOGS": "+dynamo", "KMP_BLOCKTIME": "0"}, ["KMP_BLOCKTIME", "TORCH_LOGS"]),
    ],
)
def test_what_spoils_a_row_is_named(variables: dict[str, str], named: list[str]) -> None:
    found = environment.spoiling_variables(variables, {})
    assert [text.partition("=")[0] for text in found] == named


def test_what_was_asked_for_spoils_nothing() -> None:
    asked = {"ATEN_CPU_CAPABILITY": "avx2"}
    assert environment.spoiling_variables(asked, asked) == []
    assert environment.spoiling_variables({"ATEN_CPU_CAPABILITY": "default"}, asked)


def test_the_worker_s_variables_give_true_numbers_by_default() -> None:
    """Case 41: threads of the model and of the compiler are set apart."""
    settings = Settings(threads=3, compile_threads=5, environment={"GOMP_SPINCOUNT": "7"})
    variables = environment.job_variables(make_job("good", settings=settings, cache_dir="/c"))
    assert variables["OMP_NUM_THREADS"] == "3"
    assert variables["TORCHINDUCTOR_COMPILE_THREADS"] == "5"
    assert variables["MALLOC_MMAP_THRESHOLD_"] == "4294967296"
    assert variables["TORCH_DEVICE_BACKEND_AUTOLOAD"] == "0"
    assert variables["TORCHINDUCTOR_CACHE_DIR"] == "/c"
    assert variables["GOMP_SPINCOUNT"] == "7"  # what the user sets wins
    alone = environment.job_variables(make_job("good", settings=Settings(threads=1)))
    assert "TORCHINDUCTOR_COMPILE_THREADS" not in alone  # threads=1 slows no compilation


def test_cores_are_those_we_may_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Physical cores, of the affinity and of the control group's quota."""
    for number in range(8):
        folder = tmp_path / f"cpu{number}" / "topology"
        folder.mkdir(parents=True)
        pair = number // 2 * 2
        (folder / "thread_siblings_list").write_text(f"{pair}-{pair + 1}\n")
    group = tmp_path / "group"
    group.mkdir()
    monkeypatch.setattr(environment, "CPUS", tmp_path)
    monkeypatch.setattr(environment, "cgroup_folders", lambda controller: [group])
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert environment.usable_cores() == 4
    (group / "cpu.max").write_text("250000 100000\n")
    assert environment.usable_cores() == 2
    (group / "cpu.max").write_text("max 100000\n")
    assert environment.usable_cores() == 4
    (group / "cpu.max").unlink()
    (group / "cpu.cfs_quota_us").write_text("50000\n")
    (group / "cpu.cfs_period_us").write_text("100000\n")
    assert environment.usable_cores() == 1
    (group / "cpu.cfs_quota_us").write_text("-1\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {2, 3})
    assert environment.usable_cores() == 1


def test_interference_tells_work_from_waiting() -> None:
    before = interference.read()
    deadline = time.thread_time() + 0.05
    while time.thread_time() < deadline:
        pass
    worked = interference.between(before, interference.read())
    before = interference.read()
    time.sleep(0.05)
    slept = interference.between(before, interference.read())
    assert worked.cpu_over_wall is not None
    assert slept.cpu_over_wall is not None
    assert slept.cpu_over_wall < worked.cpu_over_wall
    if slept.wait_over_wall is not None:  # a model that sleeps is not starved
        assert slept.wait_over_wall < 0.9


def test_interference_works_without_proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interference, "PROC", tmp_path)
    found = interference.between(interference.read(), interference.read())
    assert found.cpu_over_wall is not None
    assert found.wait_over_wall is None
    assert found.steal_s is None
    assert interference.cpu_seconds() > 0


def test_cpu_seconds_count_living_children() -> None:
    code = "import time\nwhile time.process_time() < 0.3: pass\nprint('done', flush=True)\ninput()"
    before = interference.cpu_seconds()
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()
        if Path("/proc/self/stat").exists():
            assert interference.cpu_seconds() - before >= 0.25
        child.communicate(b"\n")
    assert interference.cpu_seconds() - before >= 0.25


def test_throttling_is_read_in_both_layouts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proc, group = tmp_path / "proc", tmp_path / "cgroup"
    (proc / "self").mkdir(parents=True)
    monkeypatch.setattr(interference, "PROC", proc)
    monkeypatch.setattr(interference, "CGROUP", group)
    (group / "a" / "b").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("0::/a/b\n")
    (group / "a" / "cpu.stat").write_text("usage_usec 5\nthrottled_usec 1500000\n")
    assert interference.read().throttled_s == 1.5
    (group / "cpu" / "x").mkdir(parents=True)
    (proc / "self" / "cgroup").write_text("3:cpu,cpuacct:/x\n")
    (group / "cpu" / "x" / "cpu.stat").write_text("throttled_time 2500000000\n")
    assert interference.read().throttled_s == 2.5
