"""From a configuration to the ordered list of cases: the cross product, and what cannot run here.

Nothing is built or started. The plan asks devices and modes whether they are usable, which looks
at files and packages and never imports torch. A combination that cannot run is part of the plan,
with its reason; a request that makes no sense is a :class:`ConfigError`.
"""

from __future__ import annotations

import itertools
import json
import os
import secrets
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec

from benchbench import converters, devices, loading, npusim, verdicts
from benchbench.config_files import parameters
from benchbench.errors import ConfigError, unknown
from benchbench.modes.compiled import Compiled
from benchbench.modes.options import Option, Table, is_list_option
from benchbench.names import DTYPES, WORKLOADS, canonical_dtype
from benchbench.records import (
    Case,
    ComparisonPolicy,
    DeviceKind,
    Json,
    Limits,
    Plan,
    Settings,
    Target,
    TimingPolicy,
    Workload,
)

if TYPE_CHECKING:
    from benchbench.schema import Conf, ModelConf

AUTO_ORDER = ("npu", "cuda", "cpu")
_GIT_LIMIT_S = 3.0
_MODE_ARGUMENTS = ("backend", "compile_mode", "fullgraph", "dynamic", "stand_in")
_OPTION = "options."
POLICIES: dict[str, tuple[int, ...]] = {
    "quick": (),
    "standard": (5,),
    "thorough": verdicts.LOOKS,
}
"""Policy -> processes after which a verdict is looked for; none compares one process a side."""

# A simulated device is not timed: a few calls after the check show that nothing is compiled or
# captured again.
_REHEARSAL: dict[str, Any] = {
    "min_sample_s": 1e-9,
    "min_samples": 20,
    "max_samples": 20,
    "min_time_s": 0.0,
    "warmup_min_calls": 2,
    "warmup_min_time_s": 0.0,
    "warmup_max_time_s": 1.0,
    "warm_compile": False,
}
_GIVEN_BY_US = frozenset({"device", "dtype", "batch_size", "seq_len", "workload", "seed"})
"""Arguments of a model's function that come from the case, never from its options."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Variant:
    """One mode with one value per option."""

    name: str
    target: Target
    options: dict[str, Any]
    """What differs from the defaults, dotted names."""
    skipped: str | None

    @property
    def text(self) -> str:
        return self.name + _braced(self.options)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """One model, workload, shape and dtype."""

    model: str
    target: Target
    options: dict[str, Any]
    size: str | None
    workload: Workload
    batch_size: int
    seq_len: int | None
    dtype: str
    skipped: str | None = None

    @property
    def text(self) -> str:
        inside = [*([self.size] if self.size else []), *_pairs(self.options)]
        model = f"{self.model}[{','.join(inside)}]" if inside else self.model
        length = "" if self.seq_len is None else f"s{self.seq_len}"
        return f"{model}/{self.workload}/b{self.batch_size}{length}/{self.dtype}"


def build_plan(conf: Conf, *, overrides: list[str], run_id: str, cwd: Path | None = None) -> Plan:
    """Return the plan for a configuration; raise :class:`ConfigError` for what makes no sense."""
    here = cwd or Path.cwd()
    notes = list(conf.origin.notes.values())
    kind = _device_kind(conf)
    device = devices.device(kind, conf.device.index)
    absent = device.unavailable()
    variants = [v for name in conf.mode for v in _variants(conf, name, kind, here)]
    variants.sort(key=lambda variant: variant.name != conf.baseline)
    asked = [v for v in variants if v.name != conf.origin.baseline_added]
    if asked and all(variant.skipped for variant in asked):
        variants = asked  # nothing to compare: a baseline that nobody asked for is left out
        notes = [note for key, note in conf.origin.notes.items() if key != "baseline"]
    groups = list(_groups(conf, device.default_dtype, here, notes))
    cases: dict[str, Case] = {}
    skipped: dict[str, str] = {}
    for group, variant in itertools.product(groups, variants):
        case = _case(conf, kind, group, variant)
        if case.key in cases:
            notes.append(f"{case.key} was asked for twice and runs once")
            continue
        cases[case.key] = case
        reason = group.skipped or absent or variant.skipped
        if reason:
            skipped[case.key] = reason
    return Plan(
        run_id=run_id,
        name=conf.name,
        cases=list(cases.values()),
        device_ids=_device_ids(conf, kind),
        skipped=skipped,
        baseline=conf.baseline,
        accuracy=conf.accuracy,
        policy=_policy(conf, kind),
        comparison=_comparison(conf),
        limits=_limits(conf),
        settings=_settings(conf, kind),
        plugins=[_plugin(item, here) for item in _texts(conf.plugins, "plugins")],
        search_paths=list(dict.fromkeys([str(here), *conf.origin.config_dirs])),
        overrides=overrides,
        notes=list(dict.fromkeys(notes)),
    )


def auto_device() -> DeviceKind:
    """Return the kind that ``device=auto`` takes on this machine."""
    for kind in AUTO_ORDER:
        if devices.device(kind).unavailable() is None:
            return kind
    return "cpu"


def new_run_id(cwd: Path | None = None, *, now: datetime | None = None) -> str:
    """Return ``<UTC time>_<short commit or nogit>[-dirty]_<4 hex>``, unique on any machine."""
    moment = now or datetime.now(timezone.utc)
    commit = _git(["rev-parse", "--short=8", "HEAD"], cwd) or "nogit"
    dirty = commit != "nogit" and _git(["status", "--porcelain", "--untracked-files=no"], cwd)
    mark = "-dirty" if dirty else ""
    return f"{moment:%Y%m%dT%H%M%SZ}_{commit}{mark}_{secrets.token_hex(2)}"


def _git(arguments: list[str], cwd: Path | None) -> str | None:
    """Return what git prints, or ``None`` when there is no git, no repository or no answer."""
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=cwd,
            capture_output=True,
            timeout=_GIT_LIMIT_S,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.decode("utf-8", "replace").strip()


# ---- devices and modes ------------------------------------------------------------------------


def _device_kind(conf: Conf) -> DeviceKind:
    if conf.device.index < 0:
        raise ConfigError(f"device.index: {conf.device.index} is negative; devices count from 0")
    if conf.device.kind == "auto":
        return auto_device()
    if conf.device.kind not in devices.KINDS:
        raise unknown("device", conf.device.kind, [*devices.KINDS, "auto"])
    return conf.device.kind


def _device_ids(conf: Conf, kind: DeviceKind) -> list[int]:
    """Return the devices that cases are spread over; empty for a run on one."""
    if conf.device.ids is None:
        return []
    given = conf.device.ids if isinstance(conf.device.ids, list) else [conf.device.ids]
    for item in given:
        if isinstance(item, bool) or not isinstance(item, int) or item < 0:
            raise ConfigError(
                f"device.ids: {item!r} is no number of a device, which count from 0\n"
                "  next: device.ids=[0,1]"
            )
    if kind == "cpu":
        raise ConfigError(
            "device.ids: the processor is one device: cases on it are never run at the same time\n"
            "  next: leave device.ids out, or device=npu, device=cuda"
        )
    if len(set(given)) < len(given):
        raise ConfigError(
            f"device.ids={given} names a device twice; two cases never share one\n"
            f"  next: device.ids={sorted(set(given))}"
        )
    return given


def _variants(conf: Conf, name: str, kind: DeviceKind, here: Path) -> Iterator[_Variant]:
    """Yield one variant of a mode per combination of swept values."""
    key = f"mode.{name}"
    entry = conf.mode[name]
    defaults = conf.origin.contents.get(key, {})
    path = _target_path(entry._target_, key, conf, here)
    # Null means "the class's own default" unless the mode's file lists the argument.
    arguments = {
        field: getattr(entry, field)
        for field in _MODE_ARGUMENTS
        if getattr(entry, field) is not None or field in defaults
    }
    _check_stand_in(arguments.get("stand_in"), key, [here, *map(Path, conf.origin.config_dirs)])
    tables = _tables(Target(path=path, options={"name": name, **_scalars(arguments)}), kind)
    given = arguments | _marked(tables.flat(entry.options))
    usual = {field: defaults.get(field) for field in _MODE_ARGUMENTS}
    usual |= _marked(tables.flat(defaults.get("options") or {}))
    for values in _sweep(
        given, usual, lambda option: tables.takes_list(option.removeprefix(_OPTION))
    ):
        options = {k.removeprefix(_OPTION): v for k, v in values.items() if k.startswith(_OPTION)}
        scalars = {k: v for k, v in values.items() if not k.startswith(_OPTION)}
        if options or "options" in defaults:
            scalars["options"] = options
        target = Target(path=path, options={"name": name, **scalars})
        yield _Variant(
            name=name,
            target=target,
            options={
                tables.short(option.removeprefix(_OPTION)): value
                for option, value in values.items()
                if not _equal(value, usual.get(option))
            },
            skipped=_mode_reason(target, kind),
        )


def _check_stand_in(given: Any, key: str, folders: list[Path]) -> None:
    """Refuse a stand-in whose file is in none of the folders that workers look in."""
    for text in given if isinstance(given, list) else [given]:
        file = str(text).rpartition(":")[0]
        if not file.endswith(".py") or any(
            (f / Path(file).expanduser()).is_file() for f in folders
        ):
            continue
        raise ConfigError(
            f"{key}.stand_in: no such file: {folders[0] / file}\n"
            f"  next: {key}.stand_in=FILE.py:NAME_OF_A_BACKEND_IN_IT"
        )


def _marked(options: Mapping[str, Any]) -> dict[str, Any]:
    return {f"{_OPTION}{name}": value for name, value in options.items()}


def _scalars(arguments: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v[0] if isinstance(v, list) and v else v for k, v in arguments.items()}


def _equal(value: Any, other: Any) -> bool:
    """Say whether two option values are the same; ``1`` is not ``true``."""
    return value == other and type(value) is type(other)


@dataclass(frozen=True, slots=True)
class _Tables:
    """What a mode of ours knows of its options' names and types; empty for a user's mode."""

    tables: tuple[Table, ...] = ()

    def flat(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return full option name -> value, so that two spellings are one option."""
        if not self.tables:
            return dict(options)
        return dict(self._walk(options, ""))

    def _walk(self, options: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
        for key, value in options.items():
            name = f"{prefix}{key}"
            found = self._find(name)
            if found is not None:
                yield found[1].path, value
            elif isinstance(value, Mapping) and value:
                yield from self._walk(value, f"{name}.")
            else:
                yield name, value

    def short(self, name: str) -> str:
        """Return the name of an option as case keys show it."""
        found = self._find(name)
        return found[0].short(found[1]) if found else name

    def takes_list(self, name: str) -> bool:
        """Say whether a list is one value of the option."""
        found = self._find(name)
        return found is not None and is_list_option(found[1])

    def _find(self, name: str) -> tuple[Table, Option] | None:
        for table in self.tables:
            option = table.find(name)
            if option is not None:
                return table, option
        return None


def _tables(target: Target, kind: DeviceKind) -> _Tables:
    if not _ours(target.path):
        return _Tables()
    mode = loading.build_mode(target)
    if not isinstance(mode, Compiled):
        return _Tables()
    own = mode.table(kind)
    return _Tables((*([own] if own else []), *mode.other_tables(kind)))


def _ours(path: str) -> bool:
    return path.startswith("benchbench.")


def _mode_reason(target: Target, kind: DeviceKind) -> str | None:
    """Return why a mode cannot run on this kind of device; refuse options that are wrong.

    Only our own modes are asked: a user's file may import torch, which the parent never does.
    """
    if not _ours(target.path):
        return None
    mode = loading.build_mode(target)
    wrong = mode.invalid(kind)
    if wrong:
        raise ConfigError(wrong)
    return mode.unavailable(kind)


def _sweep(
    given: Mapping[str, Any], usual: Mapping[str, Any], takes_list: Callable[[str], bool]
) -> Iterator[dict[str, Any]]:
    """Yield every combination of the values that were given as lists for scalar options."""
    swept = {
        name: value
        for name, value in given.items()
        if isinstance(value, list)
        and value
        and not isinstance(usual.get(name), list)
        and not takes_list(name)
    }
    for combination in itertools.product(*swept.values()):
        yield {**given, **dict(zip(swept, combination, strict=True))}


# ---- models, workloads, shapes, dtypes --------------------------------------------------------


def _groups(conf: Conf, default_dtype: str, here: Path, notes: list[str]) -> Iterator[_Group]:
    asked = _workloads(conf)
    for name, entry in conf.model.items():
        key = f"model.{name}"
        defaults = conf.origin.contents.get(key, {})
        path = _target_path(entry._target_, key, conf, here)
        size, preset = _size(conf, name, entry)
        batch_sizes = _numbers(*_shape(conf, "batch_size", key, entry.batch_size, defaults), notes)
        lengths = _lengths(conf, name, entry, defaults, notes)
        dtypes = _dtypes(conf, key, entry, default_dtype)
        lists = {**preset, **(defaults.get("options") or {})}
        _check_model_options(key, path, entry, lists)
        for options in _sweep(entry.options, lists, lambda option: False):
            changed = {o: v for o, v in options.items() if o not in lists or lists[o] != v}
            target = Target(path=path, options={**preset, **options})
            combinations = itertools.product(
                asked or entry.workloads[:1], batch_sizes, lengths, dtypes
            )
            for workload, batch_size, seq_len, dtype in combinations:
                offered = workload in entry.workloads
                yield _Group(
                    model=name,
                    target=target,
                    options=changed,
                    size=size,
                    workload=cast(Workload, workload),
                    batch_size=batch_size,
                    seq_len=seq_len,
                    dtype=dtype,
                    skipped=None if offered else f"{name} offers {', '.join(entry.workloads)} only",
                )


def _check_model_options(key: str, path: str, entry: ModelConf, listed: Mapping[str, Any]) -> None:
    """Refuse options that neither the model's file nor its function's signature knows."""
    signature = parameters(path)
    if signature is None and not listed:
        return
    named, open_ended = signature or (set(), True)
    if open_ended and not listed:
        return
    accepted = {*listed, *named} - _GIVEN_BY_US
    for option in entry.options:
        if option not in accepted:
            raise unknown(f"option in {key}.options", option, accepted)


def _workloads(conf: Conf) -> list[str]:
    """Return the workloads asked for; refuse those that no selected model offers."""
    asked = list(dict.fromkeys(_texts(conf.workload, "workload")))
    for entry in conf.model.values():
        for word in entry.workloads:
            if word not in WORKLOADS:
                raise unknown("workload", str(word), WORKLOADS)
    for word in asked:
        if word not in WORKLOADS:
            raise unknown("workload", word, WORKLOADS)
        if not any(word in entry.workloads for entry in conf.model.values()):
            offers = "; ".join(f"{n}: {', '.join(e.workloads)}" for n, e in conf.model.items())
            raise ConfigError(
                f"workload={word}: no selected model offers it\n  available: {offers}"
            )
    return asked


def _size(conf: Conf, name: str, entry: ModelConf) -> tuple[str | None, dict[str, Any]]:
    """Return the preset's name and values."""
    size = conf.size if conf.size is not None and entry.sizes else entry.size
    if size is None:
        return None, {}
    if size not in entry.sizes:
        raise unknown(f"size of model {name}", size, entry.sizes)
    return size, dict(entry.sizes[size])


def _shape(
    conf: Conf, key: str, owner: str, own: Any, defaults: Mapping[str, Any]
) -> tuple[Any, str]:
    """Return the value in force and its key: set for this model, else for all, else its default."""
    for_all = getattr(conf, key)
    if for_all is not None and own == defaults.get(key, own):
        return for_all, key
    return own, f"{owner}.{key}"


def _lengths(
    conf: Conf, name: str, entry: ModelConf, defaults: Mapping[str, Any], notes: list[str]
) -> list[int | None]:
    fixed = defaults and defaults.get("seq_len") is None and entry.seq_len is None
    if fixed:
        if conf.seq_len is not None:
            _numbers(conf.seq_len, "seq_len", [])  # what is ignored must still be right
            notes.append(f"{name} has no sequence length: seq_len is ignored for it")
        return [None]
    value, key = _shape(conf, "seq_len", f"model.{name}", entry.seq_len, defaults)
    return [None] if value is None else list(_numbers(value, key, notes))


def _dtypes(conf: Conf, key: str, entry: ModelConf, default: str) -> list[str]:
    for value, name in (
        (conf.dtype, "dtype"),
        (entry.dtype, f"{key}.dtype"),
        (conf.device.dtype, "device.dtype"),
    ):
        words = _texts(value, name)
        if not words:
            continue
        made = [canonical_dtype(word) for word in words]
        for word, dtype in zip(words, made, strict=True):
            if dtype not in DTYPES:
                raise unknown(name, word, DTYPES)
        return list(dict.fromkeys(made))
    return [default]


def _numbers(value: Any, key: str, notes: list[str]) -> list[int]:
    """Return positive whole numbers from one or a list of them."""
    items = value if isinstance(value, list) else [value]
    if not items:
        raise ConfigError(f"{key}=[] holds no value\n  next: {key}=[1,8]")
    for item in items:
        if isinstance(item, bool) or not isinstance(item, int) or item < 1:
            raise _bad_number(item, key)
    once = list(dict.fromkeys(items))
    if len(once) < len(items):
        twice = sorted({item for item in items if items.count(item) > 1})
        notes.append(f"{key}: {', '.join(map(str, twice))} is given twice and runs once")
    return once


def _bad_number(item: Any, key: str) -> ConfigError:
    if isinstance(item, str) and item.isascii() and item.isdigit() and not item.startswith("0"):
        return ConfigError(f"{key}: '{item}' is text, not a number\n  next: {key}={item}")
    if isinstance(item, str) and item.isascii() and item.lstrip("+-").isdigit():
        return ConfigError(
            f"{key}: '{item}' has a leading zero; YAML readers take that for octal\n"
            f"  next: {key}={int(item)}"
        )
    return ConfigError(
        f"{key}: {_shown(item)} is not a whole number above 0\n"
        f"  next: {key}=1, or a list: {key}=[1,8]"
    )


# ---- the run-wide parts -----------------------------------------------------------------------


def _policy(conf: Conf, kind: DeviceKind) -> TimingPolicy:
    policy = TimingPolicy(**vars(conf.measure))
    if kind == "npu-sim":
        policy = msgspec.structs.replace(policy, **_REHEARSAL)
    for name, value in vars(conf.measure).items():
        low = (
            0
            if name in ("check_calls", "warmup_min_calls", "warmup_min_time_s", "min_time_s")
            else None
        )
        if isinstance(value, bool):
            continue
        if value < 0 or (low is None and value == 0) or value != value:
            raise ConfigError(f"measure.{name}: {value} must be above 0")
    for low_name, high_name in (
        ("min_samples", "max_samples"),
        ("min_time_s", "max_time_s"),
        ("warmup_min_time_s", "warmup_max_time_s"),
    ):
        low_value, high_value = getattr(policy, low_name), getattr(policy, high_name)
        if low_value > high_value:
            raise ConfigError(
                f"measure.{low_name}={low_value:g} is above measure.{high_name}={high_value:g}\n"
                f"  next: measure.{low_name}={high_value:g} measure.{high_name}={high_value:g}"
            )
    return policy


def _comparison(conf: Conf) -> ComparisonPolicy:
    given = conf.comparison
    if given.policy not in POLICIES:
        raise unknown("comparison.policy", given.policy, POLICIES)
    looks = POLICIES[given.policy]
    if given.processes is not None:
        if given.processes < 0:
            raise ConfigError(
                f"comparison.processes: {given.processes} must be 0 or more\n"
                "  next: comparison.processes=5; 0 compares one process a side"
            )
        looks = (given.processes,) if given.processes else ()
    for name in ("turn_s", "rounds", "process_max_time_s", "margin"):
        if not getattr(given, name) > 0:
            raise ConfigError(f"comparison.{name}: {getattr(given, name)} must be above 0")
    return ComparisonPolicy(
        name=given.policy,  # type: ignore[arg-type]  # one of POLICIES, see above
        looks=looks,
        turn_s=given.turn_s,
        rounds=given.rounds,
        process_max_time_s=given.process_max_time_s,
        max_time_s=given.max_time_s,
        margin=given.margin,
    )


def _limits(conf: Conf) -> Limits:
    given = dict(vars(conf.limits))
    everywhere = given.pop("timeout_s")
    for name, value in [*given.items(), ("timeout_s", everywhere)]:
        if value is not None and not value > 0:
            raise ConfigError(f"limits.{name}: {value:g} must be above 0 seconds")
    if everywhere is not None:
        given = {name: everywhere if value is None else value for name, value in given.items()}
    return Limits(**{name: float(value) for name, value in given.items() if value is not None})


def _settings(conf: Conf, kind: DeviceKind) -> Settings:
    given = dict(vars(conf.settings))
    given["environment"] = {**_simulation(conf, kind), **given["environment"]}
    for name in ("threads", "interop_threads", "compile_threads"):
        if given[name] is not None and given[name] < 1:
            raise ConfigError(f"settings.{name}: {given[name]} must be at least 1")
    for name, accepted in (
        ("grad_mode", ("no_grad", "inference_mode")),
        ("start", ("auto", "forkserver", "fresh")),
    ):
        if given[name] not in accepted:
            raise unknown(f"settings.{name}", given[name], accepted)
    return msgspec.convert(given, Settings)


def _simulation(conf: Conf, kind: DeviceKind) -> dict[str, str]:
    """Return what tells the workers which NPU to simulate."""
    if kind == "npu-sim":
        return {npusim.CONFIG_VARIABLE: npusim.encode(npusim.from_options(conf.device.options))}
    if conf.device.options:
        raise ConfigError(f"device.options: {kind} has none\n  next: device=npu-sim has options")
    return {}


def _converters(conf: Conf) -> Json:
    """Return what is asked of converters, checked: ``auto`` where nothing is."""
    use, place = conf.converters.use, conf.converters.path
    path = [str(Path(text).expanduser().absolute()) for text in _texts(place, "converters.path")]
    asked = converters.selection({"use": use, "path": path})
    converters.needed({}, lambda op: "none", converters.available(asked.path), asked.use)
    return "auto" if asked == converters.Selection() else {"use": asked.use, "path": path}


def _plugin(text: str, here: Path) -> str:
    if not text.endswith(".py"):
        return text
    path = here / Path(text).expanduser()
    if not path.is_file():
        raise ConfigError(f"plugins: no such file: {path}")
    return str(path)


def _target_path(text: str, key: str, conf: Conf, here: Path) -> str:
    """Return a target with an absolute file; a dotted path comes back as it is."""
    file, separator, attribute = text.rpartition(":")
    if not separator or not file.endswith(".py"):
        _check_dotted(text, key)
        return text
    beside = Path(conf.origin.files[key]).parent if key in conf.origin.files else here
    for folder in (here, beside):
        path = (folder / Path(file).expanduser()).resolve()
        if path.is_file():
            return f"{path}:{attribute}"
    raise ConfigError(
        f"{key}._target_: no such file: {here / file}\n  next: {key}._target_=FILE.py:NAME_IN_IT"
    )


def _check_dotted(text: str, key: str) -> None:
    if (
        text.endswith(".py")
        or not all(part.isidentifier() for part in text.split("."))
        or "." not in text
    ):
        raise ConfigError(
            f"{key}._target_: '{text}' names nothing that can be built\n"
            f"  next: {key}._target_=package.module.name or {key}._target_=FILE.py:name"
        )


def _texts(value: Any, key: str) -> list[str]:
    """Return the words of a key that takes null, one word or a list."""
    if value is None:
        return []
    items = value if isinstance(value, list) else [value]
    if not items:
        raise ConfigError(f"{key}=[] holds no value")
    for item in items:
        if not isinstance(item, str):
            raise ConfigError(f"{key}: {_shown(item)} is not a name\n  next: quote it if it is one")
    return items


# ---- cases and keys ---------------------------------------------------------------------------


def _case(conf: Conf, kind: DeviceKind, group: _Group, variant: _Variant) -> Case:
    shared = f"{group.text}/{kind}"
    return Case(
        key=f"{shared}/{variant.text}",
        group=shared,
        model=group.model,
        model_target=group.target,
        mode=variant.name,
        mode_target=variant.target,
        device=kind,
        device_index=conf.device.index,
        workload=group.workload,
        dtype=group.dtype,
        batch_size=group.batch_size,
        seq_len=group.seq_len,
        size=group.size,
        mode_typed=conf.origin.typed.get(variant.name),
        options=variant.options,
        model_options=group.options,
        converters=_converters(conf),
        seed=conf.seed,
    )


def _pairs(options: Mapping[str, Any]) -> list[str]:
    return [f"{name}={_shown(value)}" for name, value in sorted(options.items())]


def _braced(options: Mapping[str, Any]) -> str:
    return "{" + ",".join(_pairs(options)) + "}" if options else ""


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)
