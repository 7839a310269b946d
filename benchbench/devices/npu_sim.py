"""The simulated NPU: the code of ``npu`` on the real torch_npu with a stand-in for CANN.

What runs on it shows that benchbench drives torch_npu and torchair correctly. Its numbers are
not those of any hardware.
"""

from __future__ import annotations

from benchbench.devices.npu import Npu


class NpuSim(Npu):
    """Device ``npu-sim``: everything of :class:`Npu` except where the libraries come from."""

    kind = "npu-sim"
    memory_meaning = "peak memory of the simulated device above that in use before the model"

    def unavailable(self) -> str | None:
        """Return why the simulation cannot run, found without importing torch."""
        from benchbench import npusim

        return npusim.unavailable()

    def worker_environment(self, threads: int) -> dict[str, str]:
        """Return the settings of an NPU, with the queue off: the simulated kernels run at once."""
        return {
            **super().worker_environment(threads),
            # The stand-in libraries must be in the process before torch_npu is imported.
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
            "TASK_QUEUE_ENABLE": "0",
            # torch_npu runs ops that the simulation has no kernel for through its CPU fallback.
            "TORCH_NPU_FALLBACK_CPU_DISABLE": "0",
        }

    def setup(self, threads: int, interop_threads: int) -> None:
        """Start the simulation, then do what an NPU does."""
        from benchbench import npusim

        # Before torch is imported: it loads the stand-in libraries that torch_npu links to.
        simulator = npusim.activate(npusim.SimConfig())
        super().setup(threads, interop_threads)
        simulator.install_kernels()

    @property
    def torch_type(self) -> str:
        """Return ``npu``: for torch there is no difference."""
        return "npu"


DEVICE = NpuSim
