"""torchair alone, without torch_npu and without anything that was compiled for this machine.

Tensors live on the CPU, so that torch's dispatch and decompositions are those of a CPU: some ops
differ from what an NPU gets. What comes of it is marked approximate. Worker only, in a process
that has not imported torch_npu.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.util
import sys
import types
from collections.abc import Callable, Sequence
from typing import Any

from benchbench.npusim import SimConfig, ir_definitions, wheel

_MODULE = "torchair.core._torchair"


class _WithoutTorchNpu:
    """Refuses ``import torch_npu``, which torchair tries when imported and in each compile."""

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: Any = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name.partition(".")[0] == "torch_npu":
            raise ModuleNotFoundError(f"No module named '{name}'", name=name)
        return None


class _Graph:
    """In place of the C++ graph: nothing is ever loaded into it."""

    def __init__(self, name: str) -> None:
        self.name = name


def install(config: SimConfig) -> None:
    """Make ``import torchair`` work, with the IR that the wheel and the user's file describe."""
    package = wheel.package_folder()
    assert package is not None
    definitions = ir_definitions.of_wheel(package)
    if config.ir_definitions:
        definitions |= ir_definitions.parse(config.ir_definitions)
    _hide_torch_npu()
    sys.path.insert(0, str(package / "dynamo"))
    sys.modules[_MODULE] = _stand_in(config, definitions)
    torchair = importlib.import_module("torchair")
    torchair.core._torchair = sys.modules[_MODULE]


def _hide_torch_npu() -> None:
    # transformers asks once, and remembers, whether torch_npu is there.
    sys.modules["torch_npu"] = None  # type: ignore[assignment]
    importlib.import_module("torch")
    if importlib.util.find_spec("transformers"):
        importlib.import_module("transformers.utils.import_utils").is_torch_npu_available()
    del sys.modules["torch_npu"]  # torchair asks whether the name is there at all
    sys.meta_path.insert(0, _WithoutTorchNpu())


class _Names:
    """Any attribute is its own name: an enumeration that nobody reads."""

    def __getattr__(self, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


def _stand_in(
    config: SimConfig, definitions: dict[str, ir_definitions.IrDefinition]
) -> types.ModuleType:
    """Return the module that torchair takes for its C++ part."""

    def nothing(*args: Any) -> None:
        return None

    def registered_ir(name: str) -> tuple[str, list[Any], list[Any], list[Any]]:
        found = definitions.get(name)
        if found is None:
            return "ERROR", [], [], []
        return "SUCCESS", list(found.inputs), list(found.outputs), list(found.attributes)

    answers: dict[str, Callable[..., Any]] = {
        "CheckAclnnAvaliable": lambda name: True,
        "GetSocName": lambda: config.soc,
        "as_torch_tensors": lambda *args: [],
        "check_cann_compat": lambda op, inputs, attributes: "",
        "get_registered_ir_def": registered_ir,
    }
    for name in (
        *("InitializeGraphEngine", "FinalizeGraphEngine", "InitDeviceStdoutChannel"),
        *("StupidRepeat", "export", "AclopStartDumpArgs", "AclopStopDumpArgs"),
        *("AclmdlSetDump", "SetDebugLogPath"),
    ):
        answers[name] = nothing
    module = types.ModuleType(_MODULE)
    vars(module).update(answers, TorchNpuGraphBase=_Graph, TorchDataType=_Names())
    return module
