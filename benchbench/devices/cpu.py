"""The CPU: no queue, threads that must not fight, and an allocator that must not fault.

Why ``worker_environment`` sets what it sets (figures in docs/method.md):

* ``GOMP_SPINCOUNT=1000``: with libgomp's default, two threads beside busy neighbours were about a
  hundred times slower in most trials, because waiting threads spin on the core that the working
  thread needs. A short spin cures it and costs nothing on an idle machine.
* ``MALLOC_MMAP_THRESHOLD_``, ``MALLOC_TRIM_THRESHOLD_``: without them each output above 32 MiB is
  mapped and unmapped in every call, 30 times the cost of the work, and a mode that reuses
  buffers looks like a miracle.
* ``TORCH_DEVICE_BACKEND_AUTOLOAD=0``: with torch_npu installed and no CANN, ``import torch``
  itself would fail.
"""

from __future__ import annotations

import ctypes
import gc
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

    from benchbench.devices import Event

_STATUS = Path("/proc/self/status")
_SMAPS = Path("/proc/self/smaps")
_LIBRARY = re.compile(r"\.so(\.\d+)*$")
_CLEAR_REFS = Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # see proc(5): resets the peak resident set size to the current one
_NEVER = str(1 << 32)


class Cpu:
    """Device ``cpu``."""

    kind = "cpu"
    default_dtype = "float32"
    forkable = True
    queued = False

    def __init__(self, index: int = 0) -> None:
        self.index = index
        self.memory_meaning = "peak resident memory above that of the process before the model"
        self._base_bytes = 0
        self._base_code_bytes = 0

    def unavailable(self) -> str | None:
        """Return ``None``: there always is a CPU."""
        return None

    def worker_environment(self, threads: int) -> dict[str, str]:
        """Return the settings under which CPU numbers are true (see the module's text)."""
        return {
            "OMP_NUM_THREADS": str(threads),
            "OPENBLAS_NUM_THREADS": "1",
            "GOMP_SPINCOUNT": "1000",
            "MALLOC_MMAP_THRESHOLD_": _NEVER,
            "MALLOC_TRIM_THRESHOLD_": _NEVER,
            "TORCH_DEVICE_BACKEND_AUTOLOAD": "0",
        }

    def setup(self, threads: int, interop_threads: int) -> None:
        """Set the thread counts: before the first compile, as a later change recompiles."""
        set_threads(threads, interop_threads)

    def torch_device(self) -> torch.device:
        """Return ``torch.device("cpu")``."""
        import torch

        return torch.device("cpu")

    def synchronize(self) -> None:
        """Return at once: a CPU has done its work when the call returns."""

    def describe(self) -> dict[str, Any]:
        """Return what PyTorch uses of this CPU."""
        import torch

        return {
            "name": "cpu",
            "capability": torch.backends.cpu.get_cpu_capability(),
            "mkldnn": bool(torch.backends.mkldnn.is_available()),  # type: ignore[no-untyped-call]
        }

    def mark_memory_base(self) -> None:
        """Take the resident memory of now, everything imported included, as the base."""
        gc.collect()
        self._base_bytes = resident_bytes() or 0
        self._base_code_bytes = _code_bytes()

    def reset_peak_memory(self) -> None:
        """Return free memory to the system and start a new peak."""
        gc.collect()
        return_free_memory()
        if not _reset_peak():
            self.memory_meaning = (
                "peak resident memory of the whole process so far: this system cannot reset it"
            )

    def peak_memory_bytes(self) -> int | None:
        """Return the peak since the last reset above the base, in bytes."""
        peak = _status_bytes("VmHWM") or _rusage_peak_bytes()
        if peak is None:
            return None
        # Code is no weight. A forked worker has its libraries' pages mapped only as it runs into
        # them, a fresh one has most of them from the imports: without this they would differ.
        code = max(0, _code_bytes() - self._base_code_bytes)
        return max(0, peak - self._base_bytes - code)

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Recognise Python's MemoryError and PyTorch's failed CPU allocation."""
        return isinstance(error, MemoryError) or (
            isinstance(error, RuntimeError) and "can't allocate memory" in str(error)
        )

    def event(self) -> Event | None:
        """Return ``None``: no queue, no events."""
        return None

    def hold(self, seconds: float) -> None:
        """Do nothing: there is no queue to get ahead in."""

    def preheat(self) -> None:
        """Do nothing: a CPU's clock rises within the warm-up."""


DEVICE = Cpu


def set_threads(threads: int, interop_threads: int) -> None:
    """Set PyTorch's thread counts; the second can be set only once and only before any work."""
    import torch

    torch.set_num_threads(threads)
    if torch.get_num_interop_threads() != interop_threads:
        torch.set_num_interop_threads(interop_threads)


def resident_bytes() -> int | None:
    """Return the resident memory of this process in bytes."""
    return _status_bytes("VmRSS")


def return_free_memory() -> None:
    """Give the C library's free memory back, so that it counts for no later phase.

    The allocator is told never to do so by itself (it would spoil timings), so a compiler's
    temporary memory would otherwise stay in every later peak.
    """
    if sys.platform != "linux":
        return
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)  # absent in musl
    if trim is not None:
        trim(0)


def _reset_peak() -> bool:
    try:
        _CLEAR_REFS.write_text(_RESET_PEAK, encoding="ascii")
    except OSError:
        return False
    return True


def _status_bytes(name: str) -> int | None:
    try:
        text = _STATUS.read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    for line in text.splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    return None


def _code_bytes() -> int:
    """Return the resident memory of shared libraries; 0 where that cannot be told."""
    total, in_library = 0, False
    try:
        text = _SMAPS.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return 0
    for line in text.splitlines():
        first, *rest = line.split()
        if not first.endswith(":"):
            in_library = bool(_LIBRARY.search(line))
        elif first == "Rss:" and in_library:
            total += int(rest[0]) * 1024
    return total


def _rusage_peak_bytes() -> int | None:
    try:
        import resource
    except ImportError:  # Windows
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024
