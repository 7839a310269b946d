"""``aot_eager``: the graph is traced through AOTAutograd and then run op by op.

Not quicker than eager: it says whether a model gets into one graph at all, which is the first
thing to know when another mode fails.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchbench.modes.compiled import Compiled

if TYPE_CHECKING:
    from benchbench.devices import Device
    from benchbench.evidence import Watch


class AotEager(Compiled):
    """Full graph by default; no options."""

    def own_backend(self, device_kind: str) -> str:
        """Return ``aot_eager``."""
        return "aot_eager"

    def compile_arguments(self, device: Device, watch: Watch) -> dict[str, Any]:
        """Return the backend's name."""
        return {"backend": "aot_eager"}
