"""Modes: how ``forward`` is executed. One mode is one Python file and one YAML file.

A mode's class is named by ``_target_`` in its YAML; its constructor takes the YAML's other keys.
Importing a mode module never imports torch, because the parent asks ``unavailable`` of each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from benchbench.records import GraphEvidence

if TYPE_CHECKING:
    import torch

    from benchbench.devices import Device
    from benchbench.evidence import Watch


class Mode(Protocol):
    """What the harness needs of a mode."""

    name: str
    compiles: bool
    """Whether the first call compiles (False for eager)."""
    captures: bool
    """Whether a device graph must have been captured for the row to be what it says."""

    def unavailable(self, device_kind: str) -> str | None:
        """Return why this mode cannot run on a kind of device, else ``None``. Torch-free."""

    def invalid(self, device_kind: str) -> str | None:
        """Return what is wrong with the options (a usage error), else ``None``. Torch-free."""

    def backend(self, device_kind: str) -> str:
        """Return the name of what will really run: ``eager``, ``inductor``, ``torchair``, ..."""

    def diagnosis(self) -> str | None:
        """Return the debug switch that makes this row no timing, else ``None``."""

    # ---- worker only ----------------------------------------------------------------------

    def prepare(self, module: torch.nn.Module, device: Device, watch: Watch) -> Callable[..., Any]:
        """Return the callable that is measured. Compiling may be left to its first call."""

    def finish_evidence(self, evidence: GraphEvidence, device: Device) -> GraphEvidence:
        """Return the evidence with what only this mode can tell added."""
