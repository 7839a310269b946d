"""The real torch_npu, torchair and npugraph_ex over the simulated NPU."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from probe_process import probe_command, probe_environment

pytestmark = pytest.mark.npusim
GIB = 1 << 30
Probe = Callable[..., dict[str, Any]]


@pytest.fixture(scope="module")
def runtime(probe: Probe) -> dict[str, Any]:
    return probe("runtime", soc="Ascend910_9391", cann="8.3.0", devices=2, memory_gb=2)


def test_device_is_what_was_asked_for(runtime: dict[str, Any]) -> None:
    assert runtime["name"] == "Ascend910_9391"
    assert runtime["count"] == 2
    assert runtime["total"] == 2 * GIB
    assert runtime["cann"] == "8.3.0"
    assert runtime["ir"]


def test_copies_and_casts_of_torch_npu_are_exact(runtime: dict[str, Any]) -> None:
    assert runtime["transposed"] == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]
    assert runtime["to_half"]
    assert runtime["from_half"]
    assert runtime["to_bfloat"]
    assert runtime["int64"] == [1]
    assert runtime["side"] == [7.5, 7.5]


def test_memory_is_counted_and_runs_out(runtime: dict[str, Any]) -> None:
    assert runtime["peak"] >= 1 << 20
    assert runtime["used"]
    assert runtime["oom"].startswith("OutOfMemoryError")
    assert runtime["alive_after_oom"] == [1.0, 1.0]


def test_without_our_kernels_an_op_computes_nothing(runtime: dict[str, Any]) -> None:
    """Which is why a result must never be shown before they are installed."""
    assert runtime["kernel_without_numbers"] != [2.0]


def test_eager_ops_compute(probe: Probe) -> None:
    found = probe("ops")
    assert found["routed"] > 900
    assert found["in_place"] == [[0.0, 4.0, 6.0], [3.0, 10.0, 12.0]]
    assert found["out"] == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]
    assert found["item"] == 15.0
    assert found["mask"] == [3.0, 4.0, 5.0]
    assert found["topk"] == [[2.0, 1.0], [5.0, 4.0]]
    assert found["view"] == [[1.0, 4.0], [2.0, 5.0]]
    assert "device='npu:0'" in found["print"]
    assert found["random"]
    assert found["module"] < 1e-6
    assert found["gradient"]
    assert found["attention"] < 1e-6
    assert found["rms_norm"] < 1e-6
    assert "no kernel for aclnn" in found["unknown"]
    clock = found["clock"]  # twenty tasks of 0.5 ms; the host is done long before the device
    assert clock["device_ms"] > 9.9
    assert not clock["finished_when_enqueued"]
    assert 0.0099 < clock["total_s"] > clock["enqueue_s"]
    assert clock["value"] == [21.0] * 4


def test_capture_records_and_replay_runs(probe: Probe) -> None:
    found = probe("capture")
    assert found["after_capture"] == [0.0]
    assert found["after_replays"] == [2.0]
    assert found["replayed"] == [12.0] * 4
    assert found["forgotten"]
    assert "107030" in found["item"]
    assert max(found["errors"]) < 1e-6
    assert found["captures"] == [1, 1, 2, 2, 2]
    assert found["executes"] == 5
    assert found["forced"] == [0, 0]
    assert found["forced_error"] < 1e-6
    assert found["state"] == {"errors": [0.0] * 4, "state": 0.0, "captures": 1}


def test_max_autotune_runs_through_the_real_executor(probe: Probe) -> None:
    found = probe("max_autotune")
    for name in ("mlp frozen=False", "mlp frozen=True", "llama frozen=False"):
        assert max(found[name]["errors"]) < 1e-6, name
        assert (found[name]["compiles"], found[name]["runs"]) == (1, 3)
        assert found[name]["ops"]["NetOutput"] == 1
    assert "1" not in found["mlp frozen=False"]["options"]["frozenInput"]
    assert "1" in found["mlp frozen=True"]["options"]["frozenInput"]
    assert found["state"] == {"errors": [0.0] * 4, "state": 0.0, "captures": 0}
    assert found["callbacks"] == ["npu__npu_fusion_attention_v3"]


def test_faults_reach_python(probe: Probe) -> None:
    found = probe("faults", reject=["SoftmaxV2"])
    assert "EZ3003" in found["reject"]
    assert "the simulated NPU has no kernel for aclop:Mish" in found["no reference"]
    assert "kernel failed in a replay: IndexError" in found["in a replay"]
    assert "E89999" in found["ge-compile"]
    assert "507011" in found["ge-run"]
    assert "107025" in found["capture@2"]
    assert "207008" in found["streams"]
    assert found["oom"].startswith("OutOfMemoryError")
    assert "507015" in found["kernel@2"]
    assert "507010" in found["device-lost@2"]
    after = {name: error for name, error in found.items() if name.startswith("after ")}
    assert [name for name, error in after.items() if error] == ["after device-lost@2"]


def test_hang_survives_sigterm_and_dies_by_sigkill(built: None, tmp_path: Path) -> None:
    """torchair and npugraph_ex take over SIGTERM, and the wait is in C: only SIGKILL ends it."""
    ready = tmp_path / "ready"
    config = {"faults": ["replay-hang"], "arguments": {"ready": str(ready)}}
    command = probe_command("hang", tmp_path / "out.json", config)
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=probe_environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        while not ready.exists() and process.poll() is None:
            time.sleep(0.05)
        process.terminate()
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(timeout=2)
        os.killpg(process.pid, signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL
