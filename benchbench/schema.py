"""The schema of a run's configuration: which keys there are, and of which type.

These classes are mutable because OmegaConf needs them so; ``plan.py`` turns them into the frozen
types of ``records.py``. They have no behaviour: no look at the machine, the network or the
environment.
"""

from __future__ import annotations

import typing
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Any

from omegaconf import MISSING

from benchbench.errors import ConfigError, unknown


@dataclass
class ModelConf:
    """One model: how it is built, its sizes and what it can be asked to do."""

    _target_: str = MISSING
    size: str | None = None
    sizes: dict[str, dict[str, Any]] = field(default_factory=dict)
    workloads: list[str] = field(default_factory=lambda: ["forward"])
    batch_size: Any = 1
    seq_len: Any = None
    dtype: Any = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class ModeConf:
    """One mode: its class and options. ``backend`` alone names a torch.compile backend."""

    _target_: str = MISSING
    backend: str | None = None
    compile_mode: str | None = None
    fullgraph: Any = None
    dynamic: Any = None
    stand_in: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class DeviceConf:
    """The device of the whole run."""

    kind: str = "auto"
    index: int = 0
    ids: Any = None
    dtype: str | None = None
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class ConvertersConf:
    """Which converters max-autotune on an NPU may use; ``converters=X`` means ``use``."""

    use: Any = "auto"
    path: Any = None


@dataclass
class MeasureConf:
    """How a worker warms up, samples and stops; the defaults are those of TimingPolicy."""

    min_sample_s: float = 200e-6
    min_samples: int = 20
    max_samples: int = 100_000
    min_time_s: float = 0.3
    max_time_s: float = 2.0
    relative_half_width: float = 0.0025
    warmup_min_calls: int = 5
    warmup_min_time_s: float = 0.3
    warmup_max_time_s: float = 10.0
    steady_tolerance: float = 0.01
    check_calls: int = 3
    warm_compile: bool = True


@dataclass
class ComparisonConf:
    """How a candidate is compared with the baseline; null: what the policy says."""

    policy: str = "standard"
    processes: int | None = None
    turn_s: float = 0.03
    rounds: int = 25
    process_max_time_s: float = 10.0
    max_time_s: float | None = 60.0
    margin: float = 0.02


@dataclass
class LimitsConf:
    """Seconds each phase may take; ``timeout_s`` sets those that are not given."""

    timeout_s: float | None = None
    load_s: float | None = None
    inputs_s: float | None = None
    converters_s: float | None = None
    compile_s: float | None = None
    check_s: float | None = None
    warmup_s: float | None = None
    sample_s: float | None = None
    finish_s: float | None = None


@dataclass
class SettingsConf:
    """Surroundings of every worker that move a number."""

    threads: int = 1
    interop_threads: int = 1
    compile_threads: int | None = None
    grad_mode: str = "no_grad"
    start: str = "auto"
    environment: dict[str, str] = field(default_factory=dict)


@dataclass
class OriginConf:
    """Where the configuration came from; filled by us, not by users."""

    config_dirs: list[str] = field(default_factory=list)
    typed: dict[str, str] = field(default_factory=dict)
    """Canonical mode -> the alias that was typed."""
    notes: dict[str, str] = field(default_factory=dict)
    baseline_added: str | None = None
    """The baseline mode, when it was not among the modes asked for."""
    files: dict[str, str] = field(default_factory=dict)
    """``mode.NAME`` -> its YAML file."""
    contents: dict[str, Any] = field(default_factory=dict)
    """``mode.NAME`` -> the content of its YAML file: the defaults that options are held against."""


@dataclass
class Conf:
    """The whole configuration of a run."""

    model: dict[str, ModelConf] = field(default_factory=dict)
    mode: dict[str, ModeConf] = field(default_factory=dict)
    device: DeviceConf = field(default_factory=DeviceConf)
    baseline: str | None = "eager"
    workload: Any = None
    batch_size: Any = None
    seq_len: Any = None
    dtype: Any = None
    size: str | None = None
    converters: ConvertersConf = field(default_factory=ConvertersConf)
    accuracy: bool = True
    measure: MeasureConf = field(default_factory=MeasureConf)
    comparison: ComparisonConf = field(default_factory=ComparisonConf)
    limits: LimitsConf = field(default_factory=LimitsConf)
    settings: SettingsConf = field(default_factory=SettingsConf)
    plugins: Any = None
    seed: int = 0
    results_dir: str | None = None
    resume: str | None = None
    name: str | None = None
    origin: OriginConf = field(default_factory=OriginConf)


_HIDDEN = frozenset({"origin"})
GENERIC_MODE = "benchbench.modes.torch_compile.TorchCompile"
"""The class behind a mode that gives a backend and no ``_target_``."""


def root_keys() -> list[str]:
    """Return the keys that stand at the top."""
    return [*(item.name for item in fields(Conf) if item.name not in _HIDDEN), "suite"]


def keys_of(group: str) -> list[str]:
    """Return the keys below ``model.NAME`` or ``mode.NAME``."""
    return [item.name for item in fields(ModelConf if group == "model" else ModeConf)]


def class_keys(class_name: str) -> list[str]:
    """Return the keys of a schema class by its name; empty for a class that is not ours."""
    made = globals().get(class_name)
    return [item.name for item in fields(made)] if is_dataclass(made) else []


def check_key(path: list[str]) -> None:
    """Raise the near-match error when a dotted key does not exist.

    Keys of options and sizes are not judged here: they are in the YAML of their model or mode.
    """
    if path[0] == "compile" or (path[0] == "mode" and path[-1] == "mode" and len(path) > 2):
        raise _compile_mode(path)
    if path[0] not in root_keys():
        raise unknown("key", ".".join(path), root_keys(), next_step="python -m benchbench --help")
    if path[0] in ("model", "mode"):
        if len(path) > 2 and path[2] not in keys_of(path[0]):
            raise _unknown_owned(path)
        return
    kind = typing.get_type_hints(Conf)[path[0]]
    if not is_dataclass(kind):
        if len(path) > 1:
            raise unknown("key", ".".join(path), [path[0]])
        return
    if len(path) > 1 and path[1] not in (names := [item.name for item in fields(kind)]):
        raise unknown("key", ".".join(path), [f"{path[0]}.{name}" for name in names])


def _unknown_owned(path: list[str]) -> ConfigError:
    prefix = ".".join(path[:2])
    accepted = [f"{prefix}.{key}" for key in keys_of(path[0])]
    step = f"an option of its own is {prefix}.options.{path[2]}=VALUE"
    return unknown("key", ".".join(path), accepted, next_step=step)


def _compile_mode(path: list[str]) -> ConfigError:
    return ConfigError(
        f"{'.'.join(path)}: torch.compile's `mode` argument cannot be set\n"
        "  a backend such as npugraph_ex ignores it, and torch refuses it beside options\n"
        "  next: select a mode of benchbench: mode=[inductor,cudagraphs,max-autotune]"
    )
