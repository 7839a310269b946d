"""``cudagraphs``: inductor, with each graph captured and replayed as a CUDA graph.

torch skips the capture without an error when it does not like a graph (a mutated input, a CPU
node). So the captures are counted, and a row without any is a failed one with torch's reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchbench.modes.compiled import NPU_KINDS, Compiled, without_capture
from benchbench.modes.inductor import compile_mode_options, inductor_arguments, missing_compiler
from benchbench.modes.options import Table
from benchbench.modes.options_inductor import INDUCTOR
from benchbench.records import GraphEvidence, Json

if TYPE_CHECKING:
    from benchbench.devices import Device
    from benchbench.evidence import Watch


class Cudagraphs(Compiled):
    """inductor's ``reduce-overhead``, with the capture proved."""

    captures = True

    def __init__(
        self,
        name: str,
        fullgraph: bool = True,
        dynamic: bool | None = False,
        stand_in: str | None = None,
        options: Mapping[str, Json] | None = None,
        compile_mode: str | None = None,
    ) -> None:
        super().__init__(name, fullgraph, dynamic, stand_in, options, compile_mode)

    def own_backend(self, device_kind: str) -> str:
        """Return ``inductor cudagraphs``."""
        return "inductor cudagraphs"

    def absent(self, device_kind: str) -> str | None:
        """Return where to look instead: only CUDA has CUDA graphs."""
        if device_kind == "cpu":
            return "captures CUDA graphs; nothing is captured on a CPU: use inductor"
        if device_kind in NPU_KINDS:
            return "captures CUDA graphs; on an NPU the graph capture is npugraph_ex: use that mode"
        return missing_compiler(device_kind)

    def table(self, device_kind: str) -> Table | None:
        """Return inductor's options."""
        return INDUCTOR

    def compile_arguments(self, device: Device, watch: Watch) -> dict[str, Any]:
        """Return inductor with the options of ``reduce-overhead``."""
        preset = compile_mode_options("reduce-overhead")
        return inductor_arguments(preset, self.changed_options(device.kind))

    def finish_evidence(self, evidence: GraphEvidence, device: Device) -> GraphEvidence:
        """Return the evidence with the captures, or with why there were none."""
        watch = self._watch
        if self.stand_in or watch is None:
            return evidence
        # The first call compiles and runs uncaptured; the second one records.
        captures = watch.cudagraphs(device.index)
        return without_capture(evidence, captures, evidence.skips, complete=watch.measured)
