"""What CUDA and Ascend devices share: a queue, events, and an allocator with pools.

``torch.npu`` has the shape of ``torch.cuda``, so one class drives both through ``self.api``.
"""

from __future__ import annotations

import gc
import math
import time
from typing import TYPE_CHECKING, Any

from benchbench.devices.cpu import set_threads

if TYPE_CHECKING:
    import torch

    from benchbench.devices import Event

_PREHEAT_S = 0.3
_MATRIX_SIZE = 2048
_PRODUCTS = 20


class QueueEvent:
    """A timing event of ``torch.cuda`` or ``torch.npu``."""

    def __init__(self, event: Any) -> None:
        self._event = event

    def record(self) -> None:
        """Put the mark at the end of the current stream."""
        self._event.record()

    def query(self) -> bool:
        """Say whether the device has come past the mark."""
        return bool(self._event.query())

    def elapsed_s(self, later: Event) -> float:
        """Return the seconds on the device from this mark to ``later``."""
        if not isinstance(later, QueueEvent):
            raise TypeError(f"an event of another device: {type(later).__name__}")
        return float(self._event.elapsed_time(later._event)) / 1e3


class Accelerator:
    """Base of the devices with a queue; a subclass names its kind and its module of torch."""

    kind = ""
    default_dtype = "float16"
    # A context of a driver does not survive a fork, and nobody has shown that importing the
    # device's extension and forking afterwards is sound: a fresh process per case.
    forkable = False
    queued = True
    memory_meaning = "peak device memory above that in use before the model, graph pools included"

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self._base_bytes = 0
        self._outside_base_bytes = 0
        self._product_s = 0.0

    @property
    def api(self) -> Any:
        """Return ``torch.cuda`` or ``torch.npu``."""
        raise NotImplementedError

    def worker_environment(self, threads: int) -> dict[str, str]:
        """Return the settings for the host's side of the work."""
        return {"OMP_NUM_THREADS": str(threads), "GOMP_SPINCOUNT": "1000"}

    def setup(self, threads: int, interop_threads: int) -> None:
        """Set the thread counts, select the device and start its context."""
        set_threads(threads, interop_threads)
        self.api.set_device(self.index)
        self.api.synchronize()

    def torch_device(self) -> torch.device:
        """Return the device with its index."""
        import torch

        return torch.device(self.torch_type, self.index)

    @property
    def torch_type(self) -> str:
        """Return what ``torch.device`` calls this kind."""
        return self.kind

    def synchronize(self) -> None:
        """Wait until the queue is empty."""
        self.api.synchronize()

    def describe(self) -> dict[str, Any]:
        """Return name, size and properties of the device."""
        properties = self.api.get_device_properties(self.index)
        facts: dict[str, Any] = {
            "name": str(self.api.get_device_name(self.index)),
            "count": int(self.api.device_count()),
            "memory_bytes": int(self.api.mem_get_info(self.index)[1]),
        }
        for name in ("multi_processor_count", "cube_core_num", "vector_core_num", "major", "minor"):
            value = getattr(properties, name, None)
            if isinstance(value, (int, str)):
                facts[name] = value
        return facts

    def mark_memory_base(self) -> None:
        """Take what is in use now as the base."""
        self._settle()
        self._base_bytes = int(self.api.memory_allocated(self.index))
        self._outside_base_bytes = self._outside_bytes()

    def reset_peak_memory(self) -> None:
        """Empty the allocator's cache and start a new peak."""
        self._settle()
        self.api.reset_peak_memory_stats(self.index)

    def peak_memory_bytes(self) -> int | None:
        """Return the allocator's peak plus what lies outside of the allocator, in bytes.

        Graph pools count as allocated or reserved, but a graph engine's own memory does not show
        in the allocator at all: it is the free memory that is missing otherwise.
        """
        peak = int(self.api.max_memory_allocated(self.index)) - self._base_bytes
        outside = self._outside_bytes() - self._outside_base_bytes
        return max(0, peak) + max(0, outside)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Recognise the out-of-memory error of the device and of the host."""
        import torch

        if isinstance(error, (MemoryError, torch.OutOfMemoryError)):
            return True
        text = str(error)
        return isinstance(error, RuntimeError) and (
            "out of memory" in text or "can't allocate memory" in text
        )

    def event(self) -> Event | None:
        """Return a new timing event."""
        return QueueEvent(self.api.Event(enable_timing=True))

    def hold(self, seconds: float) -> None:
        """Queue matrix products for at least ``seconds`` of device time; queueing is quick."""
        import torch

        matrix = self._matrix()
        if not self._product_s:
            begin = time.perf_counter()
            for _ in range(_PRODUCTS):
                torch.mm(matrix, matrix)
            self.api.synchronize()
            self._product_s = (time.perf_counter() - begin) / _PRODUCTS
        for _ in range(1 + math.ceil(seconds / self._product_s)):
            torch.mm(matrix, matrix)

    def preheat(self) -> None:
        """Multiply matrices for 0.3 s: the clock drops while a process starts."""
        import torch

        matrix = self._matrix()
        end = time.monotonic() + _PREHEAT_S
        while time.monotonic() < end:
            torch.mm(matrix, matrix)
            self.api.synchronize()

    def _matrix(self) -> torch.Tensor:
        import torch

        shape = (_MATRIX_SIZE, _MATRIX_SIZE)
        return torch.ones(shape, device=self.torch_device(), dtype=torch.float16)

    def _outside_bytes(self) -> int:
        """Return the device memory in use that the allocator does not know of.

        Other processes on the device count here too, which is why the base is subtracted.
        """
        free, total = self.api.mem_get_info(self.index)
        return int(total) - int(free) - int(self.api.memory_reserved(self.index))

    def _settle(self) -> None:
        gc.collect()
        self.api.synchronize()
        self.api.empty_cache()
