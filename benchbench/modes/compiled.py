"""What all compiling modes share: options, stand-ins, and the one call of ``torch.compile``.

The callable that is measured is exactly what ``torch.compile`` returns. Nothing of ours runs in a
call; everything that is counted hooks into compiling, or is read afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from benchbench.modes import npu_compat
from benchbench.modes.options import Table
from benchbench.records import GraphEvidence, Json

if TYPE_CHECKING:
    import torch

    from benchbench.devices import Device
    from benchbench.evidence import Watch

NPU_KINDS = ("npu", "npu-sim")


class Compiled:
    """Base of the modes that call ``torch.compile``; a subclass says with what.

    ``stand_in`` takes the place of the mode's own backend, so that a mode can be rehearsed on a
    machine that lacks it: ``package.module.function`` or ``file.py:function`` of a torch.compile
    backend ``(gm, example_inputs, **options)``, or the name of a registered backend.
    """

    compiles = True
    captures = False

    def __init__(
        self,
        name: str,
        fullgraph: bool = True,
        dynamic: bool | None = False,
        stand_in: str | None = None,
        options: Mapping[str, Json] | None = None,
        compile_mode: str | None = None,
    ) -> None:
        self.name = name
        self.fullgraph = fullgraph
        self.dynamic = dynamic
        self.stand_in = stand_in
        # What a stand-in captures is its own affair.
        self.captures = type(self).captures and not stand_in
        self.options = dict(options or {})
        self.compile_mode = compile_mode
        self._watch: Watch | None = None

    # ---- what a subclass says ---------------------------------------------------------------

    def own_backend(self, device_kind: str) -> str:
        """Return the name of the backend without a stand-in."""
        raise NotImplementedError

    def absent(self, device_kind: str) -> str | None:
        """Return why the mode is not there on a kind of device, stand-ins left aside."""
        return None

    def table(self, device_kind: str) -> Table | None:
        """Return the option table for a kind of device; ``None`` means there are no options."""
        return None

    def other_tables(self, device_kind: str) -> list[Table]:
        """Return the tables of the other devices, whose defaults the mode's file also lists."""
        return []

    def compile_arguments(self, device: Device, watch: Watch) -> dict[str, Any]:
        """Return the arguments of ``torch.compile`` beside ``fullgraph`` and ``dynamic``."""
        raise NotImplementedError

    # ---- the protocol, torch-free part ---------------------------------------------------------

    def backend(self, device_kind: str) -> str:
        """Return the name of what will really run."""
        return f"stand-in {self.stand_in}" if self.stand_in else self.own_backend(device_kind)

    def unavailable(self, device_kind: str) -> str | None:
        """Return why this mode cannot run on a kind of device, else ``None``."""
        if self.stand_in:
            return None
        return self.absent(device_kind) or self._options_of_other_device(device_kind)

    def invalid(self, device_kind: str) -> str | None:
        """Return what is wrong with the mode's settings (a usage error), else ``None``."""
        where = f"mode.{self.name}"
        if not isinstance(self.fullgraph, bool):
            return f"{where}.fullgraph: {self.fullgraph!r} is not true or false"
        if self.dynamic is not None and not isinstance(self.dynamic, bool):
            return f"{where}.dynamic: {self.dynamic!r} is not true, false or null"
        if self.stand_in is not None and (not isinstance(self.stand_in, str) or not self.stand_in):
            return f"{where}.stand_in: {self.stand_in!r} does not name a backend function"
        return self.compile_mode_problem(where) or self.options_problem(device_kind)

    def compile_mode_problem(self, where: str) -> str | None:
        """Return why a compile mode cannot be given; only ``torch_compile`` takes one."""
        if self.compile_mode is None:
            return None
        return (
            f"{where}.compile_mode: {self.compile_mode!r} is ignored here or makes it another mode"
            "\n  next: choose the mode with mode=NAME, or mode=torch_compile with a backend"
        )

    def options_problem(self, device_kind: str) -> str | None:
        """Return what is wrong with the options, checked against the table of the device."""
        if self._options_of_other_device(device_kind):
            return None  # not wrong, only not for this device: ``unavailable`` says so
        where = f"mode.{self.name}.options"
        mine = self.given(device_kind)
        table = self.table(device_kind)
        if table is None:
            return f"{where}: {self.name} has no options on {device_kind}" if mine else None
        version = npu_compat.installed_version() if device_kind in NPU_KINDS else None
        return table.problem(mine, where, version)

    def diagnosis(self) -> str | None:
        """Return the debug switches that make this row no timing, else ``None``."""
        for kind in ("npu", "cpu"):
            table = self.table(kind)
            switches = table.diagnosis(self.given(kind)) if table else None
            if switches:
                return switches
        return None

    def given(self, device_kind: str) -> dict[str, Json]:
        """Return the options that are set, without the unchanged ones of other devices.

        The mode's file lists the options of all devices; those of another device stay at their
        defaults unless somebody turned them, and then this is not the device for them.
        """
        table = self.table(device_kind)
        set_ones = {key: value for key, value in self.options.items() if value is not None}
        flat = table.flatten(self.options) if table else set_ones
        for other in self.other_tables(device_kind):
            changed = other.changed(self.options)
            for name in list(flat):
                option = None if table and table.find(name) else other.find(name)
                if option and (option.path not in changed or self.stand_in):
                    del flat[name]
        return flat

    def _options_of_other_device(self, device_kind: str) -> str | None:
        table = self.table(device_kind)
        for other in self.other_tables(device_kind):
            for path in other.changed(self.options):
                if other.find(path) and not (table and table.find(path)):
                    return f"option {path} belongs to {other.title}, not to {device_kind}"
        return None

    # ---- worker only ---------------------------------------------------------------------------

    def prepare(self, module: torch.nn.Module, device: Device, watch: Watch) -> Callable[..., Any]:
        """Return what ``torch.compile`` returns, unwrapped. The first call compiles."""
        import torch

        self._watch = watch
        if self.stand_in:
            arguments = self._stand_in_arguments(device)
        else:
            arguments = self.compile_arguments(device, watch)
        compiled: Callable[..., Any] = torch.compile(
            module, fullgraph=self.fullgraph, dynamic=self.dynamic, **arguments
        )
        return compiled

    def finish_evidence(self, evidence: GraphEvidence, device: Device) -> GraphEvidence:
        """Return the evidence unchanged; modes that capture or tune add to it."""
        return evidence

    def changed_options(self, device_kind: str) -> dict[str, Json]:
        """Return the options that differ from the backend's defaults, by full path."""
        table = self.table(device_kind)
        return table.changed(self.given(device_kind)) if table else {}

    def _stand_in_arguments(self, device: Device) -> dict[str, Any]:
        stand_in = self.stand_in or ""
        backend: Any = stand_in
        if "." in stand_in or ":" in stand_in:
            from benchbench.loading import resolve

            backend = resolve(stand_in)
        arguments: dict[str, Any] = {"backend": backend}
        changed: dict[str, Json] = {}
        for table in (self.table("npu"), self.table(device.kind)):
            changed |= table.changed(self.options) if table else {}
        if changed:
            arguments["options"] = changed
        return arguments


def without_capture(
    evidence: GraphEvidence, captures: int, why: list[str], *, complete: bool = True
) -> GraphEvidence:
    """Return the evidence of a mode that had to capture: none captured is a fallback.

    While the evidence is not ``complete`` a capture may still come, unless there is a reason why
    it will not.
    """
    if captures:
        return msgspec.structs.replace(evidence, captures=captures)
    if not why and not complete:
        return msgspec.structs.replace(evidence, captures=0)
    reason = "; ".join(why) or "no reason was given"
    text = f"no device graph captured: {reason}"
    fallbacks = evidence.fallbacks if text in evidence.fallbacks else [*evidence.fallbacks, text]
    return msgspec.structs.replace(evidence, captures=0, fallbacks=fallbacks, effective=text)
