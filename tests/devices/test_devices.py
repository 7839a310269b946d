"""Devices: what the parent asks of them without torch, and the CPU for real."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchbench import devices
from benchbench.devices import KINDS, accelerator, cpu, cuda, npu


def test_the_parent_s_questions_import_no_torch() -> None:
    code = (
        "import json, sys; from benchbench import devices;"
        "made = [devices.device(kind) for kind in devices.KINDS];"
        "print(json.dumps({d.kind: [d.unavailable(), d.worker_environment(2)] for d in made}));"
        "assert 'torch' not in sys.modules and 'torch_npu' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    answers = json.loads(done.stdout)
    assert list(answers) == list(KINDS)
    assert answers["cpu"][0] is None
    assert all(variables["OMP_NUM_THREADS"] == "2" for _, variables in answers.values())
    for reason, _ in answers.values():
        assert reason is None or "\n" not in reason


def test_an_unknown_kind_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        devices.device("tpu")


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without devices, CANN or GPUs, with torch and torch_npu installed."""
    monkeypatch.setattr(cuda, "_DEV", tmp_path)
    monkeypatch.setattr(npu, "_DEV", tmp_path)
    monkeypatch.setattr(npu, "_INSTALLED", (tmp_path / "Ascend",))
    monkeypatch.setattr(npu, "_loader_knows", lambda: False)
    monkeypatch.setattr(npu, "no_torch_npu", lambda: None)
    monkeypatch.setattr(cuda, "torch_cuda_build", lambda: "12.8")
    for name in ("ASCEND_HOME_PATH", "LD_LIBRARY_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_cuda_says_what_is_missing(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    device = devices.device("cuda")
    assert "driver" in str(device.unavailable())
    (machine / "nvidiactl").touch()
    assert "container" in str(device.unavailable())
    (machine / "nvidia3").touch()
    assert device.unavailable() is None
    monkeypatch.setattr(cuda, "torch_cuda_build", lambda: "")
    assert "built without CUDA" in str(device.unavailable())
    monkeypatch.setattr(cuda, "torch_cuda_build", lambda: None)
    assert "pip install torch" in str(device.unavailable())


def test_the_cuda_build_is_read_from_text() -> None:
    import torch

    assert cuda.torch_cuda_build() == (torch.version.cuda or "")


def test_torch_npu_without_cann_is_one_sentence_with_the_fix(
    machine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = devices.device("npu")
    reason = str(device.unavailable())
    assert "CANN" in reason
    assert "set_env.sh" in reason
    script = machine / "Ascend" / "ascend-toolkit" / "set_env.sh"
    script.parent.mkdir(parents=True)
    script.touch()
    assert f"source {script}" in str(device.unavailable())
    (machine / "lib").mkdir()
    (machine / "lib" / "libascendcl.so").touch()
    monkeypatch.setenv("LD_LIBRARY_PATH", f"/nowhere:{machine / 'lib'}")
    assert "davinci" in str(device.unavailable())
    (machine / "davinci0").touch()
    assert device.unavailable() is None


def test_npu_without_torch_npu(machine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(npu, "no_torch_npu", lambda: "torch_npu is not installed")
    assert devices.device("npu").unavailable() == "torch_npu is not installed"


def test_npu_fails_instead_of_running_ops_on_the_cpu() -> None:
    assert devices.device("npu").worker_environment(1)["TORCH_NPU_FALLBACK_CPU_DISABLE"] == "1"


def test_only_the_cpu_may_be_forked() -> None:
    assert [kind for kind in KINDS if devices.device(kind).forkable] == ["cpu"]
    assert [kind for kind in KINDS if not devices.device(kind).queued] == ["cpu"]


# ---- CPU ----------------------------------------------------------------------------------


@pytest.mark.skipif(sys.platform != "linux", reason="peaks are reset through /proc")
def test_the_peak_is_of_the_time_since_its_reset() -> None:
    """Case 47: what was needed and given back before is in no later peak."""
    import torch

    device = cpu.Cpu()
    device.mark_memory_base()
    kept = torch.ones(16 << 20)  # 64 MiB
    torch.ones(32 << 20)
    high = device.peak_memory_bytes()
    device.reset_peak_memory()
    torch.ones(4 << 20)
    low = device.peak_memory_bytes()
    assert high is not None
    assert low is not None
    assert high >= 190 << 20
    assert 75 << 20 <= low < 140 << 20
    assert kept.numel()


def test_a_system_that_cannot_reset_peaks_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu, "_CLEAR_REFS", tmp_path / "absent" / "file")
    monkeypatch.setattr(cpu, "_STATUS", tmp_path / "absent")
    device = cpu.Cpu()
    device.reset_peak_memory()
    assert "cannot reset" in device.memory_meaning
    assert device.peak_memory_bytes()


def test_both_kinds_of_memory_error_are_known() -> None:
    device = cpu.Cpu()
    assert device.is_out_of_memory(MemoryError())
    text = "[enforce fail at alloc_cpu.cpp:127] . DefaultCPUAllocator: can't allocate memory: 1"
    assert device.is_out_of_memory(RuntimeError(text))
    assert not device.is_out_of_memory(RuntimeError("shapes differ"))


# ---- accelerators, on a stand-in for torch.cuda ---------------------------------------------


class FakeApi:
    """The functions of ``torch.cuda`` that count memory."""

    def __init__(self) -> None:
        self.allocated = self.reserved = self.peak = 0
        self.free, self.total = 1000, 1000
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        values = {
            "memory_allocated": self.allocated,
            "memory_reserved": self.reserved,
            "max_memory_allocated": self.peak,
            "mem_get_info": (self.free, self.total),
        }

        def answer(*_: Any) -> Any:
            self.calls.append(name)
            return values.get(name)

        return answer


class FakeAccelerator(accelerator.Accelerator):
    kind = "fake"
    fake = FakeApi()

    @property
    def api(self) -> Any:
        return self.fake


def test_memory_outside_of_the_allocator_counts() -> None:
    """A graph engine's own memory shows only in what is missing from the free memory."""
    device = FakeAccelerator()
    device.fake = api = FakeApi()
    api.free = 900  # another process has 100
    device.mark_memory_base()
    api.allocated, api.reserved, api.peak = 150, 200, 180
    api.free = 900 - 200 - 50
    device.reset_peak_memory()
    assert device.peak_memory_bytes() == 180 + 50
    assert "reset_peak_memory_stats" in api.calls


def test_out_of_memory_of_a_device_is_known() -> None:
    import torch

    device = FakeAccelerator()
    assert device.is_out_of_memory(torch.OutOfMemoryError("NPU out of memory"))
    assert device.is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert not device.is_out_of_memory(RuntimeError("shapes differ"))
