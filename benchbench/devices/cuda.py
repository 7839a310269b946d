"""NVIDIA GPUs through ``torch.cuda``."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

from benchbench.devices.accelerator import Accelerator

_DEV = Path("/dev")


class Cuda(Accelerator):
    """Device ``cuda``."""

    kind = "cuda"

    def unavailable(self) -> str | None:
        """Return why no GPU can be used here, found without importing torch."""
        build = torch_cuda_build()
        if build is None:
            return "torch is not installed: pip install torch"
        if not build:
            return (
                "this torch is built without CUDA: install a CUDA build "
                "(https://pytorch.org/get-started/locally/)"
            )
        if not any((_DEV / name).exists() for name in ("nvidiactl", "dxg")):
            return "no NVIDIA device (/dev/nvidiactl is missing): is the driver loaded?"
        # A container may be given any one of the machine's devices: its number says nothing.
        if (_DEV / "nvidiactl").exists() and not list(_DEV.glob("nvidia[0-9]*")):
            return "no NVIDIA device (/dev/nvidia*): give the container one (--gpus)"
        return None

    @property
    def api(self) -> Any:
        """Return ``torch.cuda``."""
        import torch

        return torch.cuda

    def worker_environment(self, threads: int) -> dict[str, str]:
        """Return the host's settings; another extension must not be loaded beside CUDA's."""
        return {
            **super().worker_environment(threads),
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }

    def describe(self) -> dict[str, Any]:
        """Return the device's facts with the CUDA, cuDNN and driver versions."""
        import torch

        facts = super().describe()
        facts["cuda"] = torch.version.cuda
        facts["cudnn"] = torch.backends.cudnn.version()  # type: ignore[no-untyped-call]
        facts["driver"] = _driver_version()
        facts["allow_tf32"] = bool(torch.backends.cuda.matmul.allow_tf32)
        return {name: value for name, value in facts.items() if value is not None}


DEVICE = Cuda


def torch_cuda_build() -> str | None:
    """Return the CUDA version of the installed torch, "" for a CPU build, ``None`` without torch.

    Read from the text of ``torch/version.py``: importing torch takes a second, in the parent.
    """
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    try:
        text = Path(spec.origin).with_name("version.py").read_text(encoding="utf-8")
    except OSError:
        return ""
    found = re.search(r"^cuda[^=\n]*=\s*'([^']+)'", text, re.MULTILINE)
    return found.group(1) if found else ""


def _driver_version() -> str | None:
    try:
        text = Path("/proc/driver/nvidia/version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    found = re.search(r"Kernel Module\s+(?:for \S+\s+)?([\d.]+)", text)
    return found.group(1) if found else None
