"""``torch_compile``: any other torch.compile backend, by its name.

For backends that have no mode of their own: ``mode=torch_compile mode.torch_compile.backend=NAME``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from benchbench.modes.compiled import Compiled
from benchbench.modes.options import Table
from benchbench.modes.options_inductor import INDUCTOR
from benchbench.records import Json

if TYPE_CHECKING:
    from benchbench.devices import Device
    from benchbench.evidence import Watch


class TorchCompile(Compiled):
    """A backend, its options, or (not both) a compile mode."""

    def __init__(
        self,
        name: str,
        backend: str = "inductor",
        fullgraph: bool = False,
        dynamic: bool | None = None,
        stand_in: str | None = None,
        options: Mapping[str, Json] | None = None,
        compile_mode: str | None = None,
    ) -> None:
        super().__init__(name, fullgraph, dynamic, stand_in, options, compile_mode)
        self._backend = backend

    def own_backend(self, device_kind: str) -> str:
        """Return the backend's name, with the compile mode if there is one."""
        return f"{self._backend} {self.compile_mode}" if self.compile_mode else self._backend

    def table(self, device_kind: str) -> Table | None:
        """Return inductor's table for inductor; other backends check their options themselves."""
        return INDUCTOR if self._backend == "inductor" else None

    def compile_mode_problem(self, where: str) -> str | None:
        """Return why compile mode and options cannot be combined: torch refuses the pair."""
        if self.compile_mode is None:
            return None
        if not isinstance(self.compile_mode, str):
            return f"{where}.compile_mode: {self.compile_mode!r} is not a text"
        if self._backend != "inductor":
            return f"{where}.compile_mode: {self._backend} ignores it"
        if any(value is not None for value in self.options.values()):
            return (
                f"{where}: compile_mode={self.compile_mode} and options cannot both be given,"
                " torch.compile refuses the pair\n"
                f"  next: leave one out, e.g. {where}.compile_mode=null"
            )
        return None

    def options_problem(self, device_kind: str) -> str | None:
        """Return what is wrong with inductor's options; others are passed on as they are."""
        if not isinstance(self._backend, str) or not self._backend:
            return f"mode.{self.name}.backend: {self._backend!r} does not name a backend"
        return super().options_problem(device_kind) if self._backend == "inductor" else None

    def compile_arguments(self, device: Device, watch: Watch) -> dict[str, Any]:
        """Return the backend with its compile mode or its options."""
        arguments: dict[str, Any] = {"backend": self._backend}
        if self.compile_mode:
            arguments["mode"] = self.compile_mode
        options = {key: value for key, value in self.options.items() if value is not None}
        if self._backend == "inductor":
            options = INDUCTOR.flatten(options)
        if options:
            arguments["options"] = options
        return arguments
