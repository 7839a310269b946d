"""The parts of the simulated NPU that need neither torch_npu nor a compiler."""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from benchbench import npusim
from benchbench.errors import ConfigError
from benchbench.npusim import builder, ir_definitions, wheel


def test_importing_it_does_not_import_torch() -> None:
    code = "import sys, benchbench.npusim as n; n.unavailable(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_fault_names() -> None:
    assert npusim.parse_fault("capture@3").nth == 3
    assert npusim.parse_fault("oom").code == 207001
    own = npusim.parse_fault("aclrtMemcpy@2=507899")
    assert (own.function, own.nth, own.code) == ("aclrtMemcpy", 2, 507899)
    with pytest.raises(ConfigError, match="did you mean 'capture'"):
        npusim.parse_fault("captur")
    with pytest.raises(ConfigError, match="cannot read"):
        npusim.parse_fault("capture at 3")


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (npusim.SimConfig(soc="Ascend910B33"), "did you mean 'Ascend910B3'"),
        (npusim.SimConfig(cann="new"), "CANN version 'new'"),
        (npusim.SimConfig(devices=17), "devices=17"),
        (npusim.SimConfig(memory_gb=0), "memory_gb=0"),
    ],
)
def test_config_that_cannot_be(config: npusim.SimConfig, text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        config.check()


def test_unavailable_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    monkeypatch.delenv("ASCEND_TOOLKIT_HOME", raising=False)
    monkeypatch.delenv("LD_LIBRARY_PATH", raising=False)
    monkeypatch.setattr(wheel, "package_folder", lambda: None)
    assert "pip install --no-deps torch-npu" in str(npusim.unavailable())
    monkeypatch.setattr(wheel, "package_folder", lambda: tmp_path)
    versions = {"torch": "2.9.1", "torch_npu": "2.13.0", "PyYAML": "6.0"}
    monkeypatch.setattr(wheel, "version", lambda name="torch_npu": versions.get(name))
    assert "does not fit torch 2.9.1" in str(npusim.unavailable())
    versions["torch"] = "2.13.0+cpu"
    assert "pip install protobuf" in str(npusim.unavailable())
    versions["protobuf"] = "7.0"
    monkeypatch.setattr(builder, "is_built", lambda: False)
    monkeypatch.setattr(builder, "compiler", lambda: None)
    assert "g++" in str(npusim.unavailable())
    monkeypatch.setattr(builder, "compiler", lambda: "/usr/bin/g++")
    assert npusim.unavailable() is None


def test_real_cann_is_not_shadowed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "lib64").mkdir()
    (tmp_path / "lib64" / "libascendcl.so").touch()
    monkeypatch.setattr(wheel, "package_folder", lambda: tmp_path)
    monkeypatch.setattr(wheel, "version", lambda name="torch_npu": "2.13.0")
    monkeypatch.setattr(builder, "is_built", lambda: True)
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert "device=npu runs for real" in str(npusim.unavailable())
    monkeypatch.setenv(npusim.FORCE_VARIABLE, "1")
    assert npusim.unavailable() is None


def test_two_processes_may_build_at_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    both_inside = threading.Barrier(2)

    def slow_build(work: Path) -> None:
        both_inside.wait(timeout=30)
        (work / builder.MANIFEST).write_text("liba.so\n")

    monkeypatch.setattr(builder, "_build_into", slow_build)
    results: list[Path] = []
    threads = [threading.Thread(target=lambda: results.append(builder.build())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(timeout=60)
    assert results == [builder.folder()] * 2
    assert [path.name for path in builder.folder().parent.iterdir()] == [builder.folder().name]


def test_failed_build_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(wheel, "package_folder", lambda: tmp_path)
    failing = tmp_path / "compiler"
    failing.write_text("#!/bin/sh\necho no such header >&2\nexit 1\n")
    failing.chmod(0o755)
    monkeypatch.setenv("CXX", str(failing))
    with pytest.raises(npusim.BuildError, match="no such header"):
        builder.build()
    assert not any(builder.folder().parent.iterdir())


def test_reg_op_text() -> None:
    text = """
    REG_OP(Blend)
      .INPUT(x, TensorType({DT_FLOAT}))
      .OPTIONAL_INPUT(mask, TensorType::ALL())
      .DYNAMIC_INPUT(parts, TensorType::ALL())
      .OUTPUT(y, TensorType::ALL())
      .ATTR(alpha, Float, 1.0)
      .REQUIRED_ATTR(dims, ListInt)
      .OP_END_FACTORY_REG(Blend)
    REG_OP(Other).DYNAMIC_OUTPUT(ys, T).OP_END_FACTORY_REG(Other)
    """
    found = ir_definitions.parse(text)
    assert sorted(found) == ["Blend", "Other"]
    assert (
        found["Blend"].line()
        == "Blend|x:required,mask:optional,parts:dynamic|y:required|alpha:VT_FLOAT,dims:VT_LIST_INT"
    )
    assert found["Other"].line() == "Other||ys:dynamic|"


def test_elf_reader_reads_this_python() -> None:
    with pytest.raises(wheel.NotElfError):
        wheel.read_elf(b"#!/bin/sh\n")
    if sys.platform != "linux":
        pytest.skip("ELF is Linux's format")
    import _ctypes

    module = Path(_ctypes.__file__)
    elf = wheel.read_elf(module.read_bytes())
    assert "PyInit__ctypes" in elf.defined
    assert any(name.startswith("libc.so") for name in elf.needed)
    assert any(name.startswith("Py") for name in elf.undefined)
