"""``max-autotune``: the most thorough compiler of each device.

On an NPU that is TorchAir with the Graph Engine, where each op needs a converter to Ascend IR. On
CUDA and on a CPU it is inductor's ``max-autotune``; there the CPU tunes matrix products only when
the weights are constants, so ``freezing`` is on unless somebody turns it off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from benchbench.converters import selection
from benchbench.modes import converting, npu_compat
from benchbench.modes.compiled import NPU_KINDS, Compiled
from benchbench.modes.inductor import compile_mode_options, inductor_arguments, missing_compiler
from benchbench.modes.options import Table, gear_combinations
from benchbench.modes.options_inductor import INDUCTOR
from benchbench.modes.options_npu import TORCHAIR
from benchbench.records import GraphEvidence, Json

if TYPE_CHECKING:
    import torch

    from benchbench.devices import Device
    from benchbench.evidence import Watch
    from benchbench.models import Inputs

# torchair's own default leaves files in the user's folder; ours is quiet (see its table row).
_QUIET = {"ge_config.export_compile_stat": "0"}
_OURS = ("decompositions", "dim_gears")
_FUNCTIONS = ("post_grad_custom_pre_pass", "post_grad_custom_post_pass", "debug.data_dump.filter")
_DUMP_FOLDERS = {
    "debug.graph_dump.type": "debug.graph_dump.path",
    "debug.data_dump.type": "debug.data_dump.path",
    "debug.fx_summary.type": "debug.fx_summary._path",
    "dump_config.enable_dump": "dump_config.dump_path",
    "aoe_config.aoe_mode": "aoe_config.work_path",
}


class MaxAutotune(Compiled):
    """Full graph and fixed shapes by default."""

    _found: converting.Converted | None = None

    @property
    def _converted(self) -> converting.Converted:
        """What ``register_converters`` found out; nothing before."""
        return self._found or converting.Converted()

    def own_backend(self, device_kind: str) -> str:
        """Return ``torchair`` on an NPU, else ``inductor``."""
        return "torchair" if device_kind in NPU_KINDS else "inductor"

    def absent(self, device_kind: str) -> str | None:
        """Return which compiler is missing, if one is."""
        return missing_compiler(device_kind)

    def table(self, device_kind: str) -> Table | None:
        """Return torchair's options on an NPU, else inductor's."""
        return TORCHAIR if device_kind in NPU_KINDS else INDUCTOR

    def other_tables(self, device_kind: str) -> list[Table]:
        """Return the table that this kind of device does not use."""
        return [INDUCTOR if device_kind in NPU_KINDS else TORCHAIR]

    def options_problem(self, device_kind: str) -> str | None:
        """Return what is wrong with the options, the gears' combinations included."""
        return super().options_problem(device_kind) or self._gears_problem()

    def _gears_problem(self) -> str | None:
        flat = TORCHAIR.flatten(self.options)
        gears = flat.get("dim_gears")
        if not gears:
            return None
        where = f"mode.{self.name}.options.dim_gears"
        if problem := TORCHAIR.problem({"dim_gears": gears}, f"mode.{self.name}.options"):
            return problem
        if self.dynamic is not True or not self.fullgraph:
            return (
                f"{where}: gears need one dynamic graph\n"
                f"  next: mode.{self.name}.dynamic=true mode.{self.name}.fullgraph=true"
            )
        policy = flat.get("inference_config.dynamic_gears_merge_policy", "zip")
        problem = gear_combinations(gears, policy)
        return f"{where}: {problem}" if problem else None

    # ---- worker only ---------------------------------------------------------------------------

    def compile_arguments(self, device: Device, watch: Watch) -> dict[str, Any]:
        """Return torchair's backend on an NPU, else inductor with its options opened."""
        changed = self.changed_options(device.kind)
        if device.kind in NPU_KINDS:
            return {"backend": self._torchair_backend(changed, watch)}
        if device.kind == "cpu":
            # No device graphs on a CPU: asking for them would only count a skip.
            preset = compile_mode_options("max-autotune-no-cudagraphs") | {"freezing": True}
            _freeze({**preset, **changed}["freezing"])
        else:
            preset = compile_mode_options("max-autotune")
        return inductor_arguments(preset, changed)

    def register_converters(
        self, module: torch.nn.Module, inputs: Inputs, device: Device, asked: Json
    ) -> None:
        """Register the converters that the model needs, on an NPU; what they are goes into the row.

        Traces the model once or more, without running it.
        """
        if device.kind not in NPU_KINDS or self.stand_in:
            return
        import torch

        changed = self.changed_options(device.kind)
        npu_compat.load("torchair")

        def call(backend: Any) -> object:
            compiled = torch.compile(
                module, fullgraph=self.fullgraph, dynamic=self.dynamic, backend=backend
            )
            return compiled(*inputs.args, **inputs.kwargs)

        self._found = converting.convert(
            call,
            lambda hooks, table: npu_compat.torchair_backend(
                {**self._torchair_options(changed), **hooks}, table
            ),
            selection(asked),
            self._decompositions(changed.get("decompositions", "none")),
        )

    def _torchair_backend(self, changed: dict[str, Json], watch: Watch) -> Any:
        npu_compat.load("torchair", watch)
        watch.watch_lowering()
        if self._converted.note:
            watch.note(self._converted.note)
        decompositions = self._decompositions(changed.get("decompositions", "none"))
        return npu_compat.torchair_backend(
            self._torchair_options(changed), {**decompositions, **self._converted.decompositions}
        )

    def _torchair_options(self, changed: dict[str, Json]) -> dict[str, Any]:
        options: dict[str, Any] = {**_QUIET, **changed}
        for switch, folder in _DUMP_FOLDERS.items():
            if options.get(switch) and not options.get(folder):
                options[folder] = npu_compat.scratch_folder()
        for name in _FUNCTIONS:
            if options.get(name):
                from benchbench.loading import resolve

                options[name] = resolve(options[name])
        for name in _OURS:
            options.pop(name, None)
        return options

    def _decompositions(self, wanted: Json) -> dict[Any, Any]:
        from torch._decomp import core_aten_decompositions, get_decompositions

        if wanted == "none":
            return {}
        if wanted == "core":
            return dict(core_aten_decompositions())
        import torch

        packets = []
        for name in wanted:
            packet: Any = torch.ops
            for part in name.split("."):
                packet = getattr(packet, part)
            packets.append(packet)
        return dict(get_decompositions(packets))

    def mark_inputs(self, inputs: Inputs) -> None:
        """Give the inputs their gears, if any are asked for; refuse a size that is no gear.

        Called for each set of inputs before its first use, outside anything timed.
        """
        gears = TORCHAIR.flatten(self.options).get("dim_gears") or {}
        for key, dims in gears.items():
            number = str(key).isdigit()
            tensor = inputs.args[int(key)] if number else inputs.kwargs[str(key)]
            sizes = {int(dim): list(values) for dim, values in dims.items()}
            for dim, values in sizes.items():
                if tensor.shape[dim] not in values:
                    raise ValueError(
                        f"size {tensor.shape[dim]} of input {key}, dimension {dim},"
                        f" is not among its gears {values}"
                    )
            self._set_gears(tensor, sizes)

    def _set_gears(self, tensor: Any, sizes: dict[int, list[int]]) -> None:
        if self.stand_in:
            import torch

            for dim in sizes:
                torch._dynamo.mark_dynamic(tensor, dim)
            return
        from torchair.inference import set_dim_gears

        set_dim_gears(tensor, sizes)

    def finish_evidence(self, evidence: GraphEvidence, device: Device) -> GraphEvidence:
        """Return the evidence with what was tuned, captured (CUDA) or lowered (NPU)."""
        watch = self._watch
        if watch is None or self.stand_in:
            return evidence
        if device.kind in NPU_KINDS:
            switches = self.diagnosis()
            effective = f"eager ({switches})" if switches else evidence.effective
            return msgspec.structs.replace(
                evidence,
                ir_ops=watch.ir_ops(),
                fx_ops=evidence.fx_ops or self._converted.fx_ops,
                converters={
                    **watch.callbacks(),
                    **evidence.converters,
                    **self._converted.how(),
                },
                effective=effective,
            )
        tuned = watch.counter("inductor", "select_algorithm_autotune")
        captures = watch.cudagraphs(device.index) if device.kind == "cuda" else None
        return msgspec.structs.replace(evidence, tuned=tuned, captures=captures)


def _freeze(wanted: Json) -> None:
    """Set inductor's freezing for the process too: Dynamo reads it there while it traces."""
    import torch._inductor.config

    torch._inductor.config.freezing = bool(wanted)
