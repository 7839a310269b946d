"""What a simulated NPU is asked to be: its chip, memory, clock and faults. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from benchbench.errors import ConfigError, unknown

DEFAULT_SOC = "Ascend910B3"
DEFAULT_CANN = "8.5.0"

# Names that torch_npu 2.13 knows. The chip decides which kernels torch_npu dispatches to, and so
# what a graph is made of (scaled_dot_product_attention is one op on a 910B and several on a 310P).
SOCS = (
    *(f"Ascend310B{i}" for i in (1, 2, 3, 4)),
    *(f"Ascend310P{i}" for i in (1, 2, 3, 4, 5, 7)),
    *("Ascend910A", "Ascend910B", "Ascend910PremiumA", "Ascend910ProA", "Ascend910ProB"),
    *(f"Ascend910B{i}" for i in ("1", "2", "2C", "3", "4", "4-1")),
    *(f"Ascend910_{i}" for i in (9362, 9363, 9372, 9381, 9382, 9391, 9392)),
    *(f"Ascend950PR_{i}" for i in ("950z", "9579", "957b", "957c", "957d", "9589", "958b", "9599")),
    *(f"Ascend950DT_{i}" for i in ("950x", "950y", "9571", "9572", "9574", "9581", "9582", "9591")),
)

# Cube and vector cores to answer with. Only their being plausible matters.
_CORES = {"Ascend910B3": (20, 40), "Ascend910B4": (20, 40), "Ascend910B4-1": (20, 40)}
_OTHER_CORES = (24, 48)

CONFIG_VARIABLE = "BENCHBENCH_NPUSIM"
"""Carries the configuration to a worker, as JSON."""

FaultKind = Literal["once", "sticky", "lost", "hang"]


class Fault(msgspec.Struct, frozen=True, kw_only=True):
    """A function of the simulated CANN that misbehaves from its ``nth`` call on.

    ``once`` fails that call, ``sticky`` all from it on, ``lost`` every call that needs the device
    from then on, ``hang`` lets the call succeed and the device never finish.
    """

    function: str
    nth: int = 1
    code: int = 500000
    kind: FaultKind = "once"
    text: str = ""


# By name, because the function that has to fail is not obvious.
NAMED_FAULTS: dict[str, Fault] = {
    # Sticky, because torch_npu frees its cache and asks again.
    "oom": Fault(function="npusim:allocate", code=207001, kind="sticky"),
    "streams": Fault(
        function="aclmdlRICaptureBegin",
        code=207008,
        kind="sticky",
        text="[npusim] injected fault: stream resources are insufficient",
    ),
    "capture": Fault(function="aclmdlRICaptureEnd", code=107025),
    "ge-compile": Fault(
        function="ge::CompileGraph",
        code=1343225857,
        text="E89999: [npusim] injected fault while compiling the graph",
    ),
    "ge-run": Fault(function="ge::RunGraph", code=507011),
    "device-lost": Fault(function="npusim:work", code=507010, kind="lost"),
    "kernel": Fault(function="npusim:work", code=507015),
    "hang": Fault(function="npusim:work", code=0, kind="hang"),
    "replay-hang": Fault(function="aclmdlRIExecuteAsync", code=0, kind="hang"),
}


_BY_CODE = "FUNCTION@NTH=CODE"


def parse_fault(text: str) -> Fault:
    """Return the fault that ``name`` or ``name@nth`` means, e.g. ``capture@2``.

    Instead of a name, a function of CANN with a code may be given: ``aclrtMemcpy@3=507899``.
    """
    match = re.fullmatch(r"([\w:-]+)(?:@(\d+))?(?:=(\d+))?", text.strip())
    if match is None:
        raise ConfigError(f"cannot read the fault '{text}'\n  accepted: NAME, NAME@NTH, {_BY_CODE}")
    name, nth, code = match.group(1), int(match.group(2) or 1), match.group(3)
    if code is not None:
        return Fault(function=name, nth=nth, code=int(code))
    if name not in NAMED_FAULTS:
        raise unknown("fault", name, NAMED_FAULTS, next_step=f"or a function of CANN, {_BY_CODE}")
    return msgspec.structs.replace(NAMED_FAULTS[name], nth=nth)


class SimConfig(msgspec.Struct, frozen=True, kw_only=True):
    """A simulated machine with NPUs."""

    soc: str = DEFAULT_SOC
    cann: str = DEFAULT_CANN
    devices: int = 1
    """0 is a machine with torch_npu and no usable NPU."""
    memory_gb: float = 64.0
    """Device memory of each NPU in GiB. Host memory is taken only for what is written to."""
    task_us: float = 0.0
    """Simulated device time of one task in microseconds, for tests of code that measures."""
    compile_ms: float = 0.0
    """Time of one GE compile in milliseconds."""
    faults: tuple[Fault, ...] = ()
    reject: tuple[str, ...] = ()
    """IR types that the simulated GE says it has no kernel for."""
    ir_definitions: str | None = None
    """REG_OP text of further operators (a custom-op project's ``op_proto.h``)."""
    builtin_ir: bool = True
    """Whether GE knows the operators that the torch_npu wheel describes."""
    dump_dir: str | None = None
    """Folder for the graphs that GE is given, as serialised ModelDef."""

    def cores(self) -> tuple[int, int]:
        """Return the numbers of cube and vector cores to answer with."""
        return _CORES.get(self.soc, _OTHER_CORES)

    def check(self) -> None:
        """Raise :class:`ConfigError` for a value that cannot be simulated."""
        if self.soc not in SOCS:
            raise unknown("SoC", self.soc, SOCS)
        if re.match(r"\d+\.\d+", self.cann) is None:
            raise ConfigError(
                f"cannot read the CANN version '{self.cann}'\n  accepted: like {DEFAULT_CANN}"
            )
        if not 0 <= self.devices <= 16:
            raise ConfigError(f"devices={self.devices} is out of range\n  accepted: 0 to 16")
        if self.memory_gb <= 0:
            raise ConfigError(f"memory_gb={self.memory_gb} is out of range\n  accepted: above 0")


# Fields that are not for users: one NPU, CANN's own operators, and no files beside the results.
_NOT_OPTIONS = ("devices", "builtin_ir", "dump_dir")


def from_options(options: Mapping[str, Any]) -> SimConfig:
    """Return what a user's options mean; raise :class:`ConfigError` when they mean nothing.

    Options are the fields of :class:`SimConfig`; faults are texts (see :func:`parse_fault`) and
    ``ir_definitions`` names a file.
    """
    known = [name for name in SimConfig.__struct_fields__ if name not in _NOT_OPTIONS]
    values = {name: value for name, value in options.items() if value is not None}
    for name in values:
        if name not in known:
            raise unknown("option of the simulated NPU", name, known)
    faults = values.get("faults", [])
    values["faults"] = [
        parse_fault(str(f)) for f in ([faults] if isinstance(faults, str) else faults)
    ]
    if "ir_definitions" in values:
        values["ir_definitions"] = _read(str(values["ir_definitions"]))
    try:
        config = msgspec.convert(values, SimConfig)
    except msgspec.ValidationError as error:
        raise ConfigError(f"options of the simulated NPU: {error}") from error
    config.check()
    return config


def _read(path: str) -> str:
    try:
        return Path(path).expanduser().read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"ir_definitions: cannot read {path}: {error.strerror}") from error


def encode(config: SimConfig) -> str:
    """Return the configuration as text for :data:`CONFIG_VARIABLE`."""
    return msgspec.json.encode(config).decode()


def decode(text: str | None) -> SimConfig:
    """Return the configuration from :func:`encode`'s text; the default one for ``None``."""
    return msgspec.json.decode(text, type=SimConfig) if text else SimConfig()
