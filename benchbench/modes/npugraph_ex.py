"""``npugraph_ex``: torch_npu's captured NPU graphs (aclgraph).

The FX graph runs its eager kernels once under capture; later calls replay the captured graph. Needs
no converters. With a torch_npu that has no such backend, torchair's ``reduce-overhead`` runs in its
place, and the row says so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from benchbench.modes import npu_compat
from benchbench.modes.compiled import NPU_KINDS, Compiled, without_capture
from benchbench.modes.options import Table
from benchbench.modes.options_npu import NPUGRAPH_EX
from benchbench.records import GraphEvidence, Json

if TYPE_CHECKING:
    from benchbench.devices import Device
    from benchbench.evidence import Watch


class NpugraphEx(Compiled):
    """Full graph and fixed shapes by default, as the vendor recommends."""

    captures = True

    def own_backend(self, device_kind: str) -> str:
        """Return the backend that the installed torch_npu has for this."""
        if npu_compat.seems_to_have_npugraph_ex():
            return npu_compat.NPUGRAPH_EX
        return npu_compat.LEGACY_BACKEND

    def absent(self, device_kind: str) -> str | None:
        """Return what to do instead: only NPUs have NPU graphs."""
        if device_kind in NPU_KINDS:
            return None
        if device_kind == "cuda":
            return "captures NPU graphs; there are none on cuda: use cudagraphs"
        return (
            "captures NPU graphs; there is nothing to capture on a CPU: "
            "use inductor, or rehearse with device=npu-sim"
        )

    def table(self, device_kind: str) -> Table | None:
        """Return npugraph_ex's options."""
        return NPUGRAPH_EX

    def compile_arguments(self, device: Device, watch: Watch) -> dict[str, Any]:
        """Return the backend with its options, or torchair's older way to the same thing."""
        options = runnable(self.changed_options(device.kind))
        if npu_compat.has_npugraph_ex():
            npu_compat.load(npu_compat.NPUGRAPH_EX, watch)
            return {"backend": npu_compat.NPUGRAPH_EX, **({"options": options} if options else {})}
        npu_compat.load("torchair", watch)
        translated, lost = npu_compat.legacy_options(options)
        watch.note("this torch_npu has no npugraph_ex: torchair's reduce-overhead ran in its place")
        if lost:
            watch.note(f"options without a counterpart in reduce-overhead: {', '.join(lost)}")
        return {"backend": npu_compat.torchair_backend(translated, {})}

    def finish_evidence(self, evidence: GraphEvidence, device: Device) -> GraphEvidence:
        """Return the evidence with captures and recaptures, or why nothing was captured."""
        watch = self._watch
        if watch is None:
            return evidence
        captures = watch.npu_captures()
        if switches := self.diagnosis():
            text = f"eager ({switches})" if "force_eager" in switches else evidence.effective
            return msgspec.structs.replace(evidence, captures=captures, effective=text)
        if self.stand_in:  # a stand-in may count its captures as the real backend does
            return msgspec.structs.replace(evidence, captures=captures or None)
        return without_capture(evidence, captures, evidence.skips)


def runnable(options: dict[str, Json]) -> dict[str, Any]:
    """Return options as the library takes them: functions resolved, dumps kept out of the way."""
    from benchbench.loading import resolve

    ready: dict[str, Any] = dict(options)
    for name in ("post_grad_custom_pre_pass", "post_grad_custom_post_pass"):
        if ready.get(name):
            ready[name] = resolve(ready[name])
    if ready.get("dump_tensor_data") and not ready.get("data_dump_dir"):
        ready["data_dump_dir"] = npu_compat.scratch_folder()
    return ready
