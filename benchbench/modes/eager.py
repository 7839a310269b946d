"""``eager``: the module is called as it is; nothing is compiled. The usual baseline."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from benchbench.records import GraphEvidence, Json

if TYPE_CHECKING:
    import torch

    from benchbench.devices import Device
    from benchbench.evidence import Watch


class Eager:
    """Op by op, on every device."""

    compiles = False
    captures = False

    def __init__(
        self,
        name: str = "eager",
        fullgraph: bool = False,
        dynamic: bool | None = None,
        stand_in: str | None = None,
        options: Mapping[str, Json] | None = None,
    ) -> None:
        self.name = name
        self.stand_in = stand_in
        self.options = {key: value for key, value in (options or {}).items() if value is not None}

    def unavailable(self, device_kind: str) -> str | None:
        """Return ``None``: eager is everywhere."""
        return None

    def invalid(self, device_kind: str) -> str | None:
        """Return what is wrong with the settings: eager takes none."""
        if self.options:
            return f"mode.{self.name}.options: eager has no options, found {sorted(self.options)}"
        if self.stand_in:
            return f"mode.{self.name}.stand_in: eager has no backend to stand in for"
        return None

    def backend(self, device_kind: str) -> str:
        """Return ``eager``."""
        return "eager"

    def diagnosis(self) -> str | None:
        """Return ``None``: eager has no debug switches."""
        return None

    def prepare(self, module: torch.nn.Module, device: Device, watch: Watch) -> Callable[..., Any]:
        """Return the module itself."""
        return module

    def finish_evidence(self, evidence: GraphEvidence, device: Device) -> GraphEvidence:
        """Return the evidence unchanged."""
        return evidence
