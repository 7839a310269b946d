"""The simulated NPU: the code of ``npu`` on the real torch_npu with a stand-in for CANN.

What runs on it shows that benchbench drives torch_npu and torchair correctly. No time of it is
ever shown: it is not that of any hardware.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import msgspec

from benchbench import npusim
from benchbench.devices.npu import Npu

if TYPE_CHECKING:
    import torch

    from benchbench.npusim import Simulator
    from benchbench.records import GraphEvidence


class NpuSim(Npu):
    """Device ``npu-sim``: everything of :class:`Npu` except where the libraries come from."""

    kind = "npu-sim"
    memory_meaning = "peak memory of the simulated device above that in use before the model"
    _simulator: Simulator | None = None

    def unavailable(self) -> str | None:
        """Return why the simulation cannot run, found without importing torch."""
        return npusim.unavailable()

    def worker_environment(self, threads: int) -> dict[str, str]:
        """Return the settings of an NPU, with the queue off: the simulated kernels run at once."""
        return {
            **super().worker_environment(threads),
            # The stand-in libraries must be in the process before torch_npu is imported.
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "TASK_QUEUE_ENABLE": "0",
        }

    def setup(self, threads: int, interop_threads: int) -> None:
        """Start the simulation, then do what an NPU does."""
        # Before torch is imported: it loads the stand-in libraries that torch_npu links to.
        simulator = npusim.activate(npusim.decode(os.environ.get(npusim.CONFIG_VARIABLE)))
        super().setup(threads, interop_threads)
        simulator.install_kernels()
        self._simulator = simulator

    def prepared(self, backend: str) -> None:
        """Let the simulated Graph Engine run graphs, once a mode has loaded torchair."""
        if backend == "torchair" and self._simulator is not None:
            self._simulator.install_ge()

    def reference_device(self) -> torch.device:
        """Return the CPU: what is simulated is compared with what is not."""
        import torch

        return torch.device("cpu")

    def finish_evidence(self, evidence: GraphEvidence) -> GraphEvidence:
        """Return the evidence with the device's own counts beside those of the libraries."""
        if self._simulator is None:
            return evidence
        calls = self._simulator.calls()
        counts = {
            "npusim captures": calls.captures,
            "npusim replays": calls.executes,
            "npusim GE compiles": calls.compiles,
            "npusim GE runs": calls.graph_runs,
            "npusim peak bytes": self._simulator.peak_bytes(),
        }
        return msgspec.structs.replace(evidence, counters={**evidence.counters, **counts})

    def describe(self) -> dict[str, Any]:
        """Return the facts of an NPU, marked as simulated."""
        return {"simulated": True, **super().describe()}

    def hold(self, seconds: float) -> None:
        """Do nothing: simulated work takes the host's time."""

    def preheat(self) -> None:
        """Do nothing: there is no clock to raise."""

    @property
    def torch_type(self) -> str:
        """Return ``npu``: for torch there is no difference."""
        return "npu"


DEVICE = NpuSim
