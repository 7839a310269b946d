"""Loads the simulated CANN into this process and talks to it. Imports no torch by itself."""

from __future__ import annotations

import ctypes
import os
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from benchbench.errors import BenchbenchError
from benchbench.npusim import builder, ir_definitions, wheel
from benchbench.npusim.config import Fault, SimConfig

if TYPE_CHECKING:
    from benchbench.npusim.graph_engine import GraphEngine
    from benchbench.npusim.kernels import Kernels

_FAULT_KINDS = {"once": 0, "sticky": 1, "lost": 2, "hang": 3}
_GIB = 1 << 30


class ActivationError(BenchbenchError):
    """The simulated NPU cannot be switched on in this process."""


class Calls(msgspec.Struct, frozen=True, kw_only=True):
    """How often torch_npu did what, since the start or the last reset."""

    captures: int
    """Graphs captured, without the empty ones that a backend makes to probe."""
    empty_captures: int
    executes: int
    """Replays of captured graphs."""
    compiles: int
    """Graphs compiled by GE."""
    graph_runs: int
    """Graphs run by GE."""
    syncs: int
    work: int
    """Kernels, replays and GE runs put on streams."""
    functions: dict[str, int]
    """Every simulated function by name."""


class GeGraph(msgspec.Struct, frozen=True, kw_only=True):
    """A graph as GE received it."""

    name: str
    dynamic: bool
    ops: dict[str, int]
    """IR type -> nodes."""
    options: dict[str, str]
    """What torchair asked GE to compile it with."""


class Simulator:
    """The simulated NPU of this process; made by :func:`activate`, once per process."""

    def __init__(self, library: ctypes.CDLL, config: SimConfig) -> None:
        self.config = config
        self.kernels: Kernels | None = None
        self.graph_engine: GraphEngine | None = None
        self._library = library
        for name in ("npusim_calls", "npusim_registered_ir", "npusim_graphs"):
            getattr(library, name).restype = ctypes.c_char_p
        for name in ("npusim_used_bytes", "npusim_peak_bytes"):
            getattr(library, name).restype = ctypes.c_size_t

    # ---- what happened ---------------------------------------------------------------------

    def calls(self) -> Calls:
        """Return the call counts."""
        counts: Counter[str] = Counter()
        for line in self._text("npusim_calls").splitlines():
            name, _, count = line.rpartition(" ")
            counts[name] = int(count)
        return Calls(
            captures=counts["npusim:capture"],
            empty_captures=counts["npusim:empty_capture"],
            executes=counts["aclmdlRIExecuteAsync"],
            compiles=counts["ge::CompileGraph"],
            graph_runs=counts["ge::RunGraph"],
            syncs=sum(n for name, n in counts.items() if name.startswith("aclrtSynchronize")),
            work=counts["npusim:work"],
            functions={n: counts[n] for n in sorted(counts) if not n.startswith("npusim:")},
        )

    def reset_calls(self) -> None:
        """Count from zero again. Faults count from here, too."""
        self._library.npusim_reset_calls()

    def graphs(self) -> list[GeGraph]:
        """Return the graphs that GE received so far, in order."""
        made: list[GeGraph] = []
        for line in self._text("npusim_graphs").splitlines():
            kind, name, *rest = line.split("\t")
            if kind == "option":
                made[-1].options[name] = rest[0]
                continue
            ops = dict(Counter(rest[1].split()))
            made.append(GeGraph(name=name, dynamic=rest[0] == "dynamic", ops=ops, options={}))
        return made

    def used_bytes(self, device: int = 0) -> int:
        """Return the device memory that torch_npu and GE hold."""
        return int(self._library.npusim_used_bytes(device))

    def peak_bytes(self, device: int = 0) -> int:
        """Return the most device memory that was ever held."""
        return int(self._library.npusim_peak_bytes(device))

    def registered_ir(self) -> list[str]:
        """Return the IR types that GE knows."""
        return self._text("npusim_registered_ir").split()

    # ---- what it does ----------------------------------------------------------------------

    def set_task_us(self, microseconds: float) -> None:
        """Set the simulated device time of one task."""
        self._configure("task_us", repr(microseconds))

    def add_fault(self, fault: Fault) -> None:
        """Inject a fault. Its call is counted from the start or the last reset."""
        self._library.npusim_add_fault(
            fault.function.encode(),
            ctypes.c_long(fault.nth),
            fault.code,
            _FAULT_KINDS[fault.kind],
            fault.text.encode(),
        )

    def clear_faults(self) -> None:
        """Take all faults back. A device that is lost or hangs stays so."""
        self._library.npusim_clear_faults()

    def register_ir(self, text: str) -> list[str]:
        """Make the operators of a ``REG_OP`` text known to GE; return their types."""
        definitions = ir_definitions.parse(text)
        self._register(definitions.values())
        return sorted(definitions)

    def install_kernels(self) -> Kernels:
        """Let every op compute on the CPU, over device memory. After ``import torch``."""
        if self.kernels is None:
            from benchbench.npusim.kernels import Kernels

            self.kernels = Kernels(self._library)
            # From here on a kernel that computes nothing would be a wrong number.
            self._configure("refuse_opaque", "1")
        return self.kernels

    def install_ge(self) -> GraphEngine:
        """Let GE run graphs (max-autotune). After :meth:`install_kernels`.

        A graph is run by running the FX graph that it was lowered from. So the inputs that torchair
        assembles, the outputs it allocates and the state it updates are real, but the IR is not
        interpreted: **a wrong converter is not noticed**.
        """
        if self.graph_engine is None:
            from benchbench.npusim.graph_engine import GraphEngine

            self.graph_engine = GraphEngine(self._library, self.register_ir)
        return self.graph_engine

    # ---- below -----------------------------------------------------------------------------

    def apply(self, config: SimConfig) -> None:
        """Hand the configuration to the library. Before torch_npu is imported."""
        cube, vector = config.cores()
        values = {
            "soc": config.soc,
            "cann": config.cann,
            "devices": config.devices,
            "memory_bytes": int(config.memory_gb * _GIB),
            "cube_cores": cube,
            "vector_cores": vector,
            "task_us": config.task_us,
            "compile_ms": config.compile_ms,
            "reject": ",".join(config.reject),
            "dump_dir": config.dump_dir or "",
        }
        for key, value in values.items():
            self._configure(key, str(value))
        for fault in config.faults:
            self.add_fault(fault)
        package = wheel.package_folder()
        if config.builtin_ir and package is not None:
            self._register(ir_definitions.of_wheel(package).values())
        if config.ir_definitions:
            self.register_ir(config.ir_definitions)

    def _configure(self, key: str, value: str) -> None:
        if self._library.npusim_configure(key.encode(), value.encode()):
            raise KeyError(key)

    def _register(self, definitions: Iterable[ir_definitions.IrDefinition]) -> None:
        text = "\n".join(definition.line() for definition in definitions)
        self._library.npusim_register_ir(text.encode())

    def _text(self, function: str) -> str:
        text: bytes = getattr(self._library, function)()
        return text.decode()


def activate(config: SimConfig) -> Simulator:
    """Load the simulated CANN and return its handle. Before ``import torch``, once per process.

    Importing torch afterwards imports torch_npu as on a machine with NPUs.
    """
    config.check()
    if "torch_npu" in sys.modules:
        raise ActivationError("the simulated NPU must be activated before torch is imported")
    library_folder = builder.build()
    # The kernels of ours read device memory when they are called, so torch_npu must not defer its
    # own copies to a queue.
    os.environ["TASK_QUEUE_ENABLE"] = "0"
    library = _load(library_folder / builder.LIBRARY)
    for name in (library_folder / builder.MANIFEST).read_text().split():
        _load(library_folder / name)
    simulator = Simulator(library, config)
    simulator.apply(config)
    return simulator


def _load(path: Path) -> ctypes.CDLL:
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
