"""Devices: the only place that knows how a device synchronises, keeps time and counts memory.

One device is one module named after its kind, with a class ``DEVICE`` points to. Importing a
device module never imports torch, because the parent asks ``unavailable`` of each.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    import torch

KINDS = tuple(
    sorted(
        path.stem.replace("_", "-")
        for path in Path(__file__).parent.glob("*.py")
        if "\nDEVICE = " in path.read_text(encoding="utf-8")
    )
)
"""All kinds: the modules of this folder that say ``DEVICE = ...``."""


class Event(Protocol):
    """A mark in the queue of a device."""

    def record(self) -> None:
        """Put the mark at the end of the queue."""

    def query(self) -> bool:
        """Say whether the device has come past the mark."""

    def elapsed_s(self, later: Event) -> float:
        """Return the device seconds from this mark to a later one, after a synchronisation."""


class Device(Protocol):
    """What the harness needs of a device. Methods below the line run in the worker only."""

    kind: str
    index: int
    default_dtype: str
    forkable: bool
    """Whether a worker may be forked from a process that has imported torch already."""
    queued: bool
    """Whether a call returns before its work is done: such a device has events and a queue."""

    def unavailable(self) -> str | None:
        """Return the reason and the fix when this device cannot be used here, else ``None``.

        Runs in the parent: looks at files and packages, never imports torch.
        """

    def worker_environment(self, threads: int) -> dict[str, str]:
        """Return the variables that a worker needs before it imports torch."""

    # ---- worker only ----------------------------------------------------------------------

    def setup(self, threads: int, interop_threads: int) -> None:
        """Import what the device needs, select it, set the thread counts."""

    def torch_device(self) -> torch.device:
        """Return the ``torch.device`` that models and inputs are made on."""

    def synchronize(self) -> None:
        """Wait until all queued work is done. A no-op on a CPU."""

    def describe(self) -> dict[str, Any]:
        """Return the facts of device, driver and toolkit that belong into the environment."""

    def mark_memory_base(self) -> None:
        """Take what is in use now as the base of all peaks: called right before the model loads."""

    def reset_peak_memory(self) -> None:
        """Give back what nobody uses any more and start a new peak."""

    def peak_memory_bytes(self) -> int | None:
        """Return the peak since the last reset, in bytes above the process's base."""

    memory_meaning: str
    """What ``peak_memory_bytes`` counts, in a few words."""

    def is_out_of_memory(self, error: BaseException) -> bool:
        """Say whether an exception means that memory ran out."""

    def event(self) -> Event | None:
        """Return a new timing event, or ``None`` where there is no queue to put it into."""

    def hold(self, seconds: float) -> None:
        """Queue work for about that long, so that the host gets ahead. A no-op on a CPU."""

    def preheat(self) -> None:
        """Raise a clock that drops while the device idles. A no-op on a CPU."""


def device(kind: str, index: int = 0) -> Device:
    """Return the device of this kind; raise ``KeyError`` for an unknown kind."""
    if kind not in KINDS:
        raise KeyError(kind)
    module = importlib.import_module(f"benchbench.devices.{kind.replace('-', '_')}")
    made: Device = module.DEVICE(index=index)
    return made
