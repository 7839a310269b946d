"""A simulated NPU: runs the real torch_npu, torchair and npugraph_ex without a device or CANN.

torch_npu is loaded over a small library of ours in place of CANN. Its Python and C++ run as they
are: dispatch, allocator, streams, capture and replay, lowering to Ascend IR, the executors. Ops
compute on the CPU. What it is good for: rehearsing a benchmark before an NPU is booked, and testing
code that drives NPUs.

What it is not: it says nothing about speed, about which operators CANN supports, or about whether
a converter's IR computes the right thing. No time measured over it may be shown as a latency.

Importing this package imports no torch::

    simulator = npusim.activate(npusim.SimConfig())
    import torch
    simulator.install_kernels()
    torch.ones(2, device="npu") + 1
"""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

from benchbench.npusim import builder, wheel
from benchbench.npusim.builder import BuildError, build
from benchbench.npusim.config import (
    CONFIG_VARIABLE,
    NAMED_FAULTS,
    SOCS,
    Fault,
    SimConfig,
    decode,
    encode,
    from_options,
    parse_fault,
)
from benchbench.npusim.simulator import ActivationError, Calls, GeGraph, Simulator, activate

__all__ = [
    "CONFIG_VARIABLE",
    "NAMED_FAULTS",
    "SOCS",
    "ActivationError",
    "BuildError",
    "Calls",
    "Fault",
    "GeGraph",
    "SimConfig",
    "Simulator",
    "activate",
    "build",
    "decode",
    "encode",
    "from_options",
    "parse_fault",
    "real_cann",
    "unavailable",
]

FORCE_VARIABLE = "BENCHBENCH_NPUSIM_FORCE"
"""Set to 1 to use the simulated NPU although CANN is installed."""

_CANN_VARIABLES = ("ASCEND_HOME_PATH", "ASCEND_TOOLKIT_HOME")
_CANN_FOLDERS = (Path("/usr/local/Ascend/ascend-toolkit/latest"), Path("/usr/local/Ascend/cann"))
_CANN_LIBRARY = "libascendcl.so"


def unavailable() -> str | None:
    """Return why the simulated NPU cannot be used here and what to do, else ``None``.

    Looks at files and package metadata; imports neither torch nor torch_npu.
    """
    if sys.platform != "linux" or sys.maxsize <= 1 << 32:
        return f"the simulated NPU needs 64-bit Linux, this is {platform.system()}"
    if wheel.package_folder() is None:
        return (
            "the simulated NPU needs torch_npu, which is not installed"
            " (pip install --no-deps torch-npu, in the version of your torch)"
        )
    torch, torch_npu = wheel.version("torch"), wheel.version()
    if torch and torch_npu and wheel.series(torch) != wheel.series(torch_npu):
        return (
            f"torch_npu {torch_npu} does not fit torch {torch}"
            f" (pip install --no-deps torch-npu=={wheel.series(torch)}.*)"
        )
    missing = [name for name in ("protobuf", "PyYAML") if wheel.version(name) is None]
    if missing:
        return (
            f"torchair needs {' and '.join(missing)}, which torch_npu does not bring along"
            f" (pip install {' '.join(missing)})"
        )
    found = real_cann()
    if found and os.environ.get(FORCE_VARIABLE) != "1":
        return (
            f"CANN is installed ({found}), so device=npu runs for real"
            f" ({FORCE_VARIABLE}=1 simulates all the same)"
        )
    if not builder.is_built() and builder.compiler() is None:
        return "the simulated NPU needs g++ once, to be built (apt install g++, or set CXX)"
    return None


def real_cann() -> Path | None:
    """Return the file that shows that CANN is installed here, else ``None``."""
    homes = [Path(os.environ[name]) for name in _CANN_VARIABLES if os.environ.get(name)]
    searched = [Path(part) for part in os.environ.get("LD_LIBRARY_PATH", "").split(":") if part]
    for folder in (*searched, *(home / "lib64" for home in (*homes, *_CANN_FOLDERS))):
        if (folder / _CANN_LIBRARY).exists():
            return folder / _CANN_LIBRARY
    return None
