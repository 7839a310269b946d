"""Series: the values of one metric of one case on one class of machine, run after run.

Pure: records in, series out. A :class:`Point` is a record without what a history does not need;
``warehouse.py`` reads millions of them quickly. What may enter a series is decided here, once:
a row that failed, whose outputs are wrong or unchecked, that is simulated, a diagnosis or a
stand-in has no place in a baseline, and neither has another machine. What is left out is counted,
with the reason.
"""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Literal, NamedTuple

import msgspec

from benchbench.caveats import Caveat
from benchbench.errors import unknown
from benchbench.records import Record

Unit = Literal["s", "items/s", "bytes", "calls", "count"]


class Metric(msgspec.Struct, frozen=True, kw_only=True):
    """One figure that can be followed: its unit, which direction is good, what matters."""

    name: str
    field: str
    """Attribute of a point."""
    unit: Unit
    better: Literal["lower", "higher"]
    margin: float
    """Smallest relative change that matters, a fraction."""
    single: float
    """Smallest relative change that one new run alone may be blamed for, a fraction."""
    timed: bool = True
    """It depends on how the machine felt: rows of starved processes do not enter."""
    primary: bool = True
    """It raises alarms unless the user names other metrics."""

    @property
    def exact(self) -> bool:
        """A count without noise: any change is a change."""
        return self.unit == "count"


METRICS: Mapping[str, Metric] = MappingProxyType(
    {
        metric.name: metric
        for metric in (
            Metric(
                name="latency",
                field="latency_s",
                unit="s",
                better="lower",
                margin=0.02,
                single=0.05,
            ),
            Metric(
                name="throughput",
                field="throughput",
                unit="items/s",
                better="higher",
                margin=0.02,
                single=0.05,
            ),
            Metric(
                name="compile",
                field="compile_s",
                unit="s",
                better="lower",
                margin=0.05,
                single=0.15,
            ),
            Metric(
                name="compile_warm",
                field="compile_warm_s",
                unit="s",
                better="lower",
                margin=0.05,
                single=0.15,
                primary=False,
            ),
            Metric(
                name="memory",
                field="memory_bytes",
                unit="bytes",
                better="lower",
                margin=0.01,
                single=0.05,
                timed=False,
            ),
            Metric(
                name="compile_memory",
                field="compile_memory_bytes",
                unit="bytes",
                better="lower",
                margin=0.02,
                single=0.1,
                timed=False,
                primary=False,
            ),
            Metric(
                name="break_even",
                field="break_even_calls",
                unit="calls",
                better="lower",
                margin=0.1,
                single=0.3,
                primary=False,
            ),
            Metric(
                name="graph_breaks",
                field="graph_breaks",
                unit="count",
                better="lower",
                margin=0.0,
                single=0.0,
                timed=False,
            ),
            Metric(
                name="recompiles",
                field="recompiles",
                unit="count",
                better="lower",
                margin=0.0,
                single=0.0,
                timed=False,
                primary=False,
            ),
        )
    }
)
PRIMARY: tuple[str, ...] = tuple(name for name, metric in METRICS.items() if metric.primary)

# Verdicts of the output check that a row may have in a baseline; all but `pass` state a reason.
ACCEPTED = frozenset({"pass", "off", "random", "not_comparable", "nothing_to_compare"})

_STARVED = frozenset({Caveat.STARVED.name, Caveat.UNSTABLE_THREADS.name})
UNKNOWN_HOST = "unknown machine"


def metric(name: str) -> Metric:
    """Return the metric of that name; raises :class:`ConfigError` with the nearest one."""
    if name not in METRICS:
        raise unknown("metric", name, METRICS)
    return METRICS[name]


class Point(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One row of one run: what was asked, what came out, and the facts that may explain it."""

    run_id: str
    """The run that holds the row."""
    origin: str
    """The run that measured it: another one when a resumed run took it over."""
    started_at: str
    case_key: str
    group: str
    model: str
    mode: str
    device: str
    status: str
    workload: str = "forward"
    dtype: str = ""
    batch_size: int = 1
    seq_len: int | None = None
    size: str | None = None
    phase: str | None = None
    kind: str | None = None
    reason: str | None = None
    """Why it failed or was skipped."""
    accuracy: str | None = None
    latency_s: float | None = None
    ci_low_s: float | None = None
    ci_high_s: float | None = None
    p90_s: float | None = None
    n_processes: int = 1
    throughput: float | None = None
    throughput_unit: str | None = None
    compile_s: float | None = None
    compile_warm_s: float | None = None
    break_even_calls: float | None = None
    break_even_word: str | None = None
    memory_bytes: float | None = None
    compile_memory_bytes: float | None = None
    effective: str | None = None
    graphs: float | None = None
    graph_breaks: float | None = None
    recompiles: float | None = None
    fallbacks: int = 0
    in_window: int = 0
    caveats: tuple[str, ...] = ()
    simulated: bool = False
    diagnosis: bool = False
    host_class: str = UNKNOWN_HOST
    sources: str | None = None
    """Hash over the model's source files and weights; ``None`` when neither is known."""
    facts: dict[str, str] = {}
    """Environment, settings and policy, flat: what may explain a change."""

    @property
    def commit(self) -> str:
        """The commit in the run's id, ``nogit`` or ``unknown``."""
        parts = self.origin.split("_")
        return parts[1] if len(parts) > 2 else "unknown"


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """The usable values of one metric of one case on one class of machine, oldest first."""

    case_key: str
    metric: Metric
    host_class: str
    points: tuple[Point, ...]
    values: tuple[float, ...]
    """In the metric's unit; as many as there are points."""
    left_out: dict[str, int] = {}
    """Reason -> rows of this case on this machine that do not enter."""
    other_hosts: dict[str, int] = {}
    """Class of machine -> usable rows of the same case that were measured there."""

    @property
    def label(self) -> str:
        """``case key: metric``."""
        return f"{self.case_key}: {self.metric.name}"


# ---- from records to points ---------------------------------------------------------------------


def point_of(record: Record) -> Point:
    """Return what a history keeps of a record."""
    case, latency, graph, memory = record.case, record.latency, record.graph, record.memory
    compiled, failure, even = record.compile, record.failure, record.break_even_calls
    facts = facts_of(record)
    return Point(
        run_id=record.run_id,
        origin=record.from_run or record.run_id,
        started_at=record.started_at,
        case_key=record.case_key,
        group=case.group,
        model=case.model,
        mode=case.mode,
        device=case.device,
        status=record.status,
        workload=case.workload,
        dtype=case.dtype,
        batch_size=case.batch_size,
        seq_len=case.seq_len,
        size=case.size,
        phase=failure.phase if failure else None,
        kind=failure.kind if failure else None,
        reason=failure.reason if failure else None,
        accuracy=record.accuracy.verdict if record.accuracy else None,
        latency_s=latency.median_s if latency else None,
        ci_low_s=latency.ci_low_s if latency else None,
        ci_high_s=latency.ci_high_s if latency else None,
        p90_s=latency.p90_s if latency else None,
        n_processes=latency.n_processes if latency else 1,
        throughput=record.throughput.value if record.throughput else None,
        throughput_unit=record.throughput.unit if record.throughput else None,
        compile_s=compiled.cold_s if compiled else None,
        compile_warm_s=compiled.warm_s if compiled else None,
        break_even_calls=None if even is None or isinstance(even, str) else float(even),
        break_even_word=even if isinstance(even, str) else None,
        memory_bytes=_float(memory.steady_peak_bytes if memory else None),
        compile_memory_bytes=_float(memory.compile_peak_bytes if memory else None),
        effective=graph.effective if graph else None,
        graphs=float(graph.graphs) if graph else None,
        graph_breaks=float(len(graph.breaks)) if graph else None,
        recompiles=float(len(graph.recompiles)) if graph else None,
        fallbacks=len(graph.fallbacks) if graph else 0,
        in_window=len(graph.in_window) if graph else 0,
        caveats=tuple(record.caveats),
        simulated=record.simulated,
        diagnosis=record.diagnosis,
        host_class=host_class(facts),
        sources=sources_id(record.model_sources, record.weights_hash),
        facts=facts,
    )


def _float(value: float | None) -> float | None:
    return None if value is None else float(value)


# Where a fact is named in more than one place, or by a path that nobody would look for.
_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "torch": "torch",
        "packages.torch": "torch",
        "torch_git": "torch",
        "packages.torch_npu": "torch_npu",
        "device.torch_npu": "torch_npu",
        "device.torch_npu_git": "torch_npu",
        "device.npu_smi": "driver",
        "device.driver": "driver",
        "device.cuda": "CUDA",
        "device.cudnn": "cuDNN",
        "cann": "CANN",
    }
)
# Facts that differ from process to process, or that the host class says already.
_NO_CAUSE = (
    "start",
    "device.index",
    "memory_bytes",
    "policy.",
    "variables.TORCHINDUCTOR_CACHE_DIR",
)


def facts_of(record: Record) -> dict[str, str]:
    """Return environment, settings and policy of a record as one flat dict of texts."""
    from benchbench.compare import facts

    return {
        name: value
        for name, value in facts(record)
        if not name.startswith("model source ") and name != "weights"
    }


def cause_name(fact: str) -> str | None:
    """Return the name under which a changed fact is reported; ``None`` when it explains nothing."""
    if fact.startswith("device.cann"):
        return "CANN"
    if fact in _NAMES:
        return _NAMES[fact]
    if fact.startswith(_NO_CAUSE):
        return None
    return fact.removeprefix("packages.")


def host_class(facts: Mapping[str, str]) -> str:
    """Return the class of machine that makes two values comparable: CPU, threads, device."""
    threads = facts.get("threads.intra_op") or facts.get("settings.threads")
    parts = [
        facts.get("cpu.model") or facts.get("machine"),
        f"{facts['cpu.logical']} CPUs" if "cpu.logical" in facts else None,
        f"{threads} threads" if threads and threads != "1" else "1 thread" if threads else None,
    ]
    kind, name = facts.get("device.kind"), facts.get("device.name")
    if kind and kind != "cpu":
        parts.append(name or kind)
    known = [part for part in parts if part]
    return ", ".join(known) if known else UNKNOWN_HOST


def sources_id(model_sources: Mapping[str, str], weights_hash: str | None) -> str | None:
    """Return one short hash over the model's files and weights."""
    if not model_sources and weights_hash is None:
        return None
    content = repr((sorted(model_sources.items()), weights_hash))
    return hashlib.sha256(content.encode("utf-8", "backslashreplace")).hexdigest()[:12]


# ---- what may enter -----------------------------------------------------------------------------


def obstacle(point: Point, metric: Metric) -> str | None:
    """Return why this row's value may not enter a series, ``None`` when it may."""
    whole = _row_obstacle(point)
    if whole is not None:
        return whole
    if metric.timed and _STARVED.intersection(point.caveats):
        return "the process was starved of its core"
    if metric.name == "compile" and Caveat.WARM_CACHE.name in point.caveats:
        return "the compile cache was not empty"
    value = getattr(point, metric.field)
    if value is None:
        if metric.name == "break_even" and point.break_even_word:
            return f"break-even {point.break_even_word}"
        return "not measured"
    if not math.isfinite(value) or (value <= 0 and not metric.exact):
        return "not a positive number"
    return None


def _row_obstacle(point: Point) -> str | None:
    if point.status != "ok":
        return point.status.replace("_", " ")
    if point.diagnosis:
        return "a debug switch was on"
    if point.simulated:
        return "simulated device"
    if Caveat.STAND_IN.name in point.caveats:
        return "a stand-in backend ran"
    if point.fallbacks or point.in_window:
        return "what ran is not what was asked for"
    if point.accuracy is None:
        # Eager is what the others are compared with; it has nothing to be compared with itself.
        return None if point.mode == "eager" else "outputs were not checked"
    if point.accuracy not in ACCEPTED:
        return f"accuracy {point.accuracy}"
    return None


# ---- series -------------------------------------------------------------------------------------


class _Slot(NamedTuple):
    points: list[Point]
    left_out: Counter[str]


def in_order(points: Iterable[Point]) -> list[Point]:
    """Return points by the run that measured them, each measurement once.

    A run id begins with its time, so its order needs no clock; rows that a resumed run took over
    stand where they were measured. Of two rows of one case in one run the last one counts.
    """
    found: dict[tuple[str, str], Point] = {}
    for point in points:
        key = (point.origin, point.case_key)
        if key in found and point.run_id != point.origin and found[key].run_id == point.origin:
            continue  # a copy of a row that is here already
        found[key] = point
    return sorted(found.values(), key=lambda point: point.origin)


def series_of(points: Iterable[Point], metric: Metric | str) -> list[Series]:
    """Return one series per case and class of machine, in the order of first appearance.

    A class of machine with no usable value gives a series without values that says what was left
    out, so that "no data" can be told from "no change".
    """
    chosen = METRICS[metric] if isinstance(metric, str) else metric
    slots: dict[tuple[str, str], _Slot] = {}
    hosts: dict[str, Counter[str]] = {}
    for point in in_order(points):
        slot = slots.setdefault((point.case_key, point.host_class), _Slot([], Counter()))
        reason = obstacle(point, chosen)
        if reason is None:
            slot.points.append(point)
            hosts.setdefault(point.case_key, Counter())[point.host_class] += 1
        else:
            slot.left_out[reason] += 1
    return [
        Series(
            case_key=case_key,
            metric=chosen,
            host_class=host,
            points=tuple(slot.points),
            values=tuple(float(getattr(point, chosen.field)) for point in slot.points),
            left_out=dict(slot.left_out),
            other_hosts={
                other: number
                for other, number in hosts.get(case_key, Counter()).items()
                if other != host
            },
        )
        for (case_key, host), slot in slots.items()
    ]


def percent(before: float, after: float) -> float | None:
    """Return (after / before - 1) * 100, the one definition of a percent change."""
    from benchbench.compare import percent_change

    return percent_change(before, after)


def is_worse(metric: Metric, before: float, after: float) -> bool:
    """Say whether going from ``before`` to ``after`` is against the metric's direction."""
    return after > before if metric.better == "lower" else after < before


def statuses(points: Sequence[Point]) -> dict[str, list[Point]]:
    """Return case key -> its rows in order, whatever their status and machine."""
    found: dict[str, list[Point]] = {}
    for point in in_order(points):
        found.setdefault(point.case_key, []).append(point)
    return found
