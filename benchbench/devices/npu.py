"""Ascend NPUs through ``torch.npu`` of torch_npu."""

from __future__ import annotations

import ctypes.util
import importlib
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from benchbench.devices.accelerator import Accelerator

_DEV = Path("/dev")
_INSTALLED = (Path("/usr/local/Ascend"), Path.home() / "Ascend")
_CANN_MODULES = ("CANN", "RUNTIME", "COMPILER", "HCCL", "TOOLKIT", "OPP", "OPP_KERNEL", "DRIVER")
_NPU_SMI_LIMIT_S = 10.0


class Npu(Accelerator):
    """Device ``npu``."""

    kind = "npu"

    def unavailable(self) -> str | None:
        """Return why no NPU can be used here, found without importing torch."""
        return (
            no_torch_npu()
            or no_cann()
            or (None if list(_DEV.glob("davinci[0-9]*")) else _no_device())
        )

    @property
    def api(self) -> Any:
        """Return ``torch.npu``."""
        import torch

        return torch.npu  # type: ignore[attr-defined]

    def worker_environment(self, threads: int) -> dict[str, str]:
        """Return the host's settings; an op without an NPU kernel must fail, not run on the CPU."""
        return {
            **super().worker_environment(threads),
            "TORCH_NPU_FALLBACK_CPU_DISABLE": "1",
        }

    def setup(self, threads: int, interop_threads: int) -> None:
        """Import torch_npu, select the device and start its context."""
        importlib.import_module("torch_npu")
        super().setup(threads, interop_threads)

    def describe(self) -> dict[str, Any]:
        """Return the device's facts with the versions of torch_npu, CANN and the driver."""
        torch_npu = importlib.import_module("torch_npu")
        facts = super().describe()
        facts["torch_npu"] = str(torch_npu.__version__)
        version = getattr(torch_npu, "version", None)
        facts["torch_npu_git"] = getattr(version, "git_version", None)
        facts["cann"] = _cann_versions()
        facts["task_queue"] = os.environ.get("TASK_QUEUE_ENABLE", "default")
        facts["npu_smi"] = _npu_smi_version()
        return {name: value for name, value in facts.items() if value}


DEVICE = Npu


def no_torch_npu() -> str | None:
    """Return the sentence for a missing torch_npu, else ``None``."""
    if importlib.util.find_spec("torch_npu") is None:
        return "torch_npu is not installed: pip install 'benchbench[npu]' on an Ascend machine"
    return None


def no_cann() -> str | None:
    """Return the sentence for a torch_npu without CANN, else ``None``.

    Without CANN not even ``import torch`` works while torch_npu is installed: PyTorch loads it by
    itself. The library that every part of torch_npu needs is ``libascendcl.so``.
    """
    if os.environ.get("ASCEND_HOME_PATH") or _library_on_path() or _loader_knows():
        return None
    where = next((found for root in _INSTALLED for found in _set_env_scripts(root)), None)
    script = where or "/usr/local/Ascend/ascend-toolkit/set_env.sh"
    found = "it is installed, but not set up" if where else "it was not found"
    return (
        f"torch_npu is installed but CANN is not in reach ({found}): source {script}"
        + ("" if where else ", after installing CANN")
        + "; for CPU work set TORCH_DEVICE_BACKEND_AUTOLOAD=0"
    )


def _no_device() -> str:
    return "no NPU on this machine (/dev/davinci* is missing): is the driver loaded?"


def _library_on_path() -> bool:
    folders = os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep)
    return any((Path(folder) / "libascendcl.so").exists() for folder in folders if folder)


def _loader_knows() -> bool:
    # find_library asks ldconfig and compilers, which takes a while: last of the three questions.
    return ctypes.util.find_library("ascendcl") is not None


def _set_env_scripts(root: Path) -> list[Path]:
    folders = (root, root / "ascend-toolkit", root / "cann", root / "latest")
    return [folder / "set_env.sh" for folder in folders if (folder / "set_env.sh").is_file()]


def _cann_versions() -> dict[str, str]:
    utils = importlib.import_module("torch_npu.npu.utils")
    ask = getattr(utils, "get_cann_version", None)
    if ask is None:
        return {}
    versions = {name: str(ask(name) or "") for name in _CANN_MODULES}
    return {name: version for name, version in versions.items() if version}


def _npu_smi_version() -> str | None:
    """Return the version in the header of ``npu-smi info``, which is the driver's too."""
    tool = shutil.which("npu-smi")
    if tool is None:
        return None
    try:
        done = subprocess.run(
            [tool, "info"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_NPU_SMI_LIMIT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"npu-smi\s+([\w.]+)", done.stdout.decode("utf-8", "replace"))
    return found.group(1) if found else None
