"""``inductor``: torch.compile's own code generator, with its default settings."""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchbench.modes.compiled import NPU_KINDS, Compiled
from benchbench.modes.options import Table
from benchbench.modes.options_inductor import INDUCTOR
from benchbench.records import Json

if TYPE_CHECKING:
    from benchbench.devices import Device
    from benchbench.evidence import Watch


class Inductor(Compiled):
    """Graph breaks are allowed by default: they are counted and marked."""

    def __init__(
        self,
        name: str,
        fullgraph: bool = False,
        dynamic: bool | None = None,
        stand_in: str | None = None,
        options: Mapping[str, Json] | None = None,
        compile_mode: str | None = None,
    ) -> None:
        super().__init__(name, fullgraph, dynamic, stand_in, options, compile_mode)

    def own_backend(self, device_kind: str) -> str:
        """Return ``inductor``."""
        return "inductor"

    def absent(self, device_kind: str) -> str | None:
        """Return which compiler is missing, if one is."""
        if device_kind in NPU_KINDS:
            return self._missing_on_npu()
        return missing_compiler(device_kind)

    def _missing_on_npu(self) -> str | None:
        chosen = self.options.get("npu_backend") or os.environ.get("TORCHINDUCTOR_NPU_BACKEND")
        if chosen in (None, "default") and importlib.util.find_spec("triton") is None:
            return "inductor on npu needs the package triton-ascend: pip install triton-ascend"
        return None

    def table(self, device_kind: str) -> Table | None:
        """Return inductor's options."""
        return INDUCTOR

    def compile_arguments(self, device: Device, watch: Watch) -> dict[str, Any]:
        """Return the backend and the options that were changed."""
        return inductor_arguments({}, self.changed_options(device.kind))


def inductor_arguments(preset: Mapping[str, Json], changed: Mapping[str, Json]) -> dict[str, Any]:
    """Return the arguments of ``torch.compile`` for inductor; what the user changed wins.

    A compile mode is always opened into its options, because torch forbids giving both.
    """
    options = {**preset, **changed}
    return {"backend": "inductor", **({"options": options} if options else {})}


def compile_mode_options(compile_mode: str) -> dict[str, Json]:
    """Return the inductor options that torch hides behind a compile mode. Imports torch."""
    from torch._inductor import list_mode_options

    return dict(list_mode_options(compile_mode))


def missing_compiler(device_kind: str) -> str | None:
    """Return a sentence when the code that inductor writes could not be compiled here."""
    if device_kind == "cuda" and importlib.util.find_spec("triton") is None:
        return "inductor on cuda needs the package triton: pip install triton"
    if device_kind == "cpu":
        candidates = (os.environ.get("CXX"), "g++", "clang++", "c++", "cl")
        if not any(shutil.which(name) for name in candidates if name):
            return "inductor needs a C++ compiler and none was found: install g++ or set CXX"
    return None
