"""From records to rows that can be read: speedups, break-even, best modes, what differs.

Pure: records in, rows out; no text is formatted here (``format.py``), nothing is read or printed.

Definitions, each in one place: *speedup* is baseline latency / candidate latency (above 1 the
candidate is faster); *percent change* is (after / before - 1) * 100; *break-even* is the number of
calls after which a mode's compile cost, in excess of the baseline's, has been earned back.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from benchbench import stats
from benchbench.caveats import Caveat, caveat
from benchbench.records import (
    SCHEMA_VERSION,
    Case,
    Failure,
    Plan,
    Record,
    Status,
)
from benchbench.verdicts import MARGIN, Decision, Verdict, decide

NEVER = "never"
STATUSES: tuple[Status, ...] = (
    "ok",
    "failed",
    "oom",
    "timeout",
    "crashed",
    "interrupted",
    "not_run",
    "skipped",
)

# Verdicts of the output check under which a speedup may be stated. With the last three nothing
# could be compared and the row says so; `fail` and an output that was never checked withhold it.
_ACCEPTED = frozenset({"pass", "off", "random", "not_comparable", "nothing_to_compare"})

_NOISY = frozenset({Caveat.NOISY.name, Caveat.STARVED.name, Caveat.UNSTABLE_THREADS.name})

# Facts that change from one process to the next without explaining anything.
_VOLATILE = frozenset(
    {"load_average", "free_bytes", "available_bytes", "temperature_c", "clock_mhz", "pid", "time"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One record beside the baseline of its group."""

    record: Record
    baseline: Record | None
    """The group's baseline record, whatever became of it; ``None`` when there is none."""
    is_baseline: bool
    speedup: float | None
    verdict: Verdict | None
    """``None`` for the baseline itself and where no baseline was asked for."""
    reasons: tuple[str, ...] = ()
    """Why there is no verdict, or why it is in doubt."""
    decision: Decision | None = None
    """Interval, spread and smallest visible effect behind the verdict."""
    level_speedup: float | None = None
    """Ratio of the two rows' own latencies; ``speedup`` comes from paired processes if there are
    any, and where the two disagree beyond the margin both are shown."""
    break_even: float | str | None = None
    """Calls, the word ``never`` or ``unclear`` (the difference may be none), or not known."""

    @property
    def mode(self) -> str:
        """The mode with those of its options that differ from the defaults."""
        return mode_label(self.record.case)

    @property
    def group(self) -> str:
        """Model, workload, shape, dtype and device: what the rows of a group share."""
        return self.record.case.group

    @property
    def status(self) -> Status:
        """The record's status."""
        return self.record.status


@dataclass(frozen=True, slots=True, kw_only=True)
class Best:
    """The quickest mode of a group among the rows that count."""

    group: str
    row: Row
    candidates: int
    """How many rows counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanSpeedup:
    """Geometric mean of one mode's speedups over the groups that are ok in both."""

    mode: str
    value: float | None
    n: int
    """Groups that entered the mean."""
    m: int
    """Groups in which the mode was asked for."""
    low: float | None = None
    high: float | None = None
    """The smallest and the largest single speedup: one huge ratio must be visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A setting in which rows of one group differ, although they are compared."""

    group: str
    name: str
    values: tuple[tuple[str, str], ...]
    """(mode, value) of each row that knows it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What stands below a table."""

    total: int
    counts: dict[Status, int]
    """Status -> rows; the values add up to ``total``."""
    best: tuple[Best, ...]
    means: tuple[MeanSpeedup, ...]
    differences: tuple[Difference, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """Everything that a reporter may show of one run."""

    run_id: str
    baseline: str | None
    rows: tuple[Row, ...]
    summary: Summary
    run_dir: str | None = None
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    damage: tuple[str, ...] = ()
    width: int | None = None
    """Columns of the terminal; ``None`` when it is none."""


def view(
    records: Sequence[Record],
    *,
    baseline: str | None,
    plan: Plan | None = None,
    run_id: str | None = None,
    run_dir: str | None = None,
    warnings: Iterable[str] = (),
    damage: Iterable[str] = (),
    width: int | None = None,
) -> View:
    """Return what a reporter shows of these records, in plan order where there is a plan.

    A case of the plan without a record becomes a row of its own (``skipped`` or ``not_run``), so
    that the counts always add up to what was asked for.
    """
    if plan is not None:
        records = with_missing(records, plan)
    found = rows(records, baseline)
    first = records[0].run_id if records else ""
    return View(
        run_id=run_id or (plan.run_id if plan else first),
        baseline=baseline,
        rows=tuple(found),
        summary=summary(found),
        run_dir=run_dir,
        notes=tuple(plan.notes) if plan else (),
        warnings=tuple(warnings),
        damage=tuple(damage),
        width=width,
    )


def with_missing(records: Sequence[Record], plan: Plan) -> list[Record]:
    """Return the records in plan order, with a record for each case of the plan that has none."""
    known = {record.case_key for record in records}
    position = {case.key: number for number, case in enumerate(plan.cases)}
    missing = [_unrecorded(case, plan) for case in plan.cases if case.key not in known]
    last = len(position)
    return sorted([*records, *missing], key=lambda record: position.get(record.case_key, last))


def _unrecorded(case: Case, plan: Plan) -> Record:
    reason = plan.skipped.get(case.key)
    failure = Failure(
        phase="load",
        kind="unavailable" if reason else "NoRecord",
        reason=reason or "the run ended before this case was recorded",
    )
    return Record(
        schema_version=SCHEMA_VERSION,
        run_id=plan.run_id,
        case_key=case.key,
        started_at="",
        case=case,
        status="skipped" if reason else "not_run",
        failure=failure,
    )


def mode_label(case: Case) -> str:
    """Return the mode with its options as the case key spells them."""
    prefix = f"{case.group}/"
    return case.key[len(prefix) :] if case.key.startswith(prefix) else case.mode


def rows(records: Sequence[Record], baseline: str | None) -> list[Row]:
    """Return one row per record: groups in order of appearance, each with its baseline first."""
    groups: dict[str, list[Record]] = {}
    for record in records:
        groups.setdefault(record.case.group, []).append(record)
    result: list[Row] = []
    for members in groups.values():
        base = _baseline_of(members, baseline)
        ordered = members if base is None else [base, *(r for r in members if r is not base)]
        result += [_row(record, base, asked=baseline) for record in ordered]
    return result


def _baseline_of(members: Sequence[Record], baseline: str | None) -> Record | None:
    same = [record for record in members if record.case.mode == baseline]
    # With several variants of the baseline's mode, the one without options is meant.
    return min(same, key=lambda record: len(record.case.options)) if same else None


def _row(record: Record, base: Record | None, *, asked: str | None) -> Row:
    if record is base:
        return Row(record=record, baseline=base, is_baseline=True, speedup=None, verdict=None)
    if base is None and asked is None:
        return Row(record=record, baseline=None, is_baseline=False, speedup=None, verdict=None)
    reasons = [f"no {asked} row to compare with"] if base is None else obstacles(record, base)
    ratio = None if base is None or reasons else speedup(base, record)
    if base is None or ratio is None:
        return Row(
            record=record,
            baseline=base,
            is_baseline=False,
            speedup=None,
            verdict=Verdict.NOT_COMPARABLE,
            reasons=tuple(reasons),
        )
    decision = judge(record, base, ratio)
    calls = break_even(record, base)
    unsure = isinstance(calls, float) and decision.verdict in (Verdict.SAME, Verdict.UNCLEAR)
    return Row(
        record=record,
        baseline=base,
        is_baseline=False,
        speedup=decision.speedup or ratio,
        verdict=decision.verdict,
        reasons=tuple(_doubts(record, decision, ratio)),
        decision=decision,
        level_speedup=ratio,
        break_even="unclear" if unsure else calls,
    )


# ---- one pair -----------------------------------------------------------------------------


def speedup(baseline: Record, candidate: Record) -> float | None:
    """Return baseline latency / candidate latency, or ``None`` when one is not known."""
    before, after = _median(baseline), _median(candidate)
    return None if before is None or after is None else before / after


def percent_change(before: float, after: float) -> float | None:
    """Return (after / before - 1) * 100; ``None`` when ``before`` is no positive number."""
    if not (math.isfinite(before) and math.isfinite(after) and before > 0):
        return None
    return (after / before - 1.0) * 100.0


def obstacles(candidate: Record, baseline: Record) -> list[str]:
    """Return the reasons why no speedup may be stated; empty when it may."""
    if candidate.simulated:
        return ["the device is simulated: its times say nothing"]
    found = [f"baseline: {text}" for text in _unusable(baseline, is_baseline=True)]
    found += _unusable(candidate, is_baseline=False)
    if baseline.case.group != candidate.case.group:
        found.append("the cases differ in more than the mode")
    return found


def _unusable(record: Record, *, is_baseline: bool) -> Iterator[str]:
    """Yield why this row's latency may not enter a comparison."""
    if record.status != "ok":
        yield record.status.replace("_", " ")
        return
    if record.simulated:
        yield "the device is simulated: its times say nothing"
        return
    if _median(record) is None:
        yield "no latency was recorded"
    if record.diagnosis:
        yield "a debug switch was on: not a timing"
    if record.graph is not None and record.graph.fallbacks:
        yield f"what ran is not what was asked for: {record.graph.fallbacks[0]}"
    if record.graph is not None and record.graph.in_window:
        yield f"{record.graph.in_window[0]} while sampling"
    if record.accuracy is None:
        if not is_baseline:
            yield "outputs were not checked"
    elif record.accuracy.verdict not in _ACCEPTED:
        yield f"outputs are wrong: {record.accuracy.reason or record.accuracy.verdict}"


def _median(record: Record) -> float | None:
    value = record.latency.median_s if record.latency else None
    return value if value is not None and math.isfinite(value) and value > 0 else None


def judge(candidate: Record, baseline: Record, level_ratio: float) -> Decision:
    """Return what may be said of a candidate: from paired processes, else from one a side."""
    paired = candidate.paired
    if paired is None or paired.baseline_key != baseline.case_key or not paired.processes:
        return _one_a_side(candidate, baseline, level_ratio)
    counting = [process for process in paired.processes if process.log_ratio is not None]
    return decide(
        [p.log_ratio for p in counting if p.log_ratio is not None and not p.flags],
        flagged=sum(bool(process.flags) for process in counting),
        usual_sd=paired.usual_sd,
    )


def _one_a_side(candidate: Record, baseline: Record, level_ratio: float) -> Decision:
    """Judge one process of either: advisory, and silent where something speaks against it."""
    decision = decide([math.log(level_ratio)])
    noisy = sorted(_NOISY.intersection([*candidate.caveats, *baseline.caveats]))
    if noisy:
        text = "; ".join(Caveat[name].text for name in noisy)
        return msgspec.structs.replace(decision, verdict=Verdict.NOISY, reason=text)
    if _overlap(candidate, baseline):
        text = "the intervals of the two medians overlap"
        return msgspec.structs.replace(decision, verdict=Verdict.UNCLEAR, reason=text)
    return decision


def _doubts(candidate: Record, decision: Decision, level_ratio: float) -> Iterator[str]:
    """Yield why a verdict is what it is, and what speaks against it."""
    if decision.reason:
        yield decision.reason
    paired = candidate.paired
    if paired is not None and decision.flagged:
        flags = dict.fromkeys(flag for process in paired.processes for flag in process.flags)
        known = {flag: caveat(flag) for flag in flags}
        yield "left out: " + ", ".join(one.text if one else flag for flag, one in known.items())
    if paired is not None and paired.stopped:
        yield f"{decision.n} processes: {paired.stopped}"
    speedup = None if decision.advisory else decision.speedup
    if speedup is not None and levels_disagree(speedup, level_ratio):
        yield (
            f"the rows' own latencies give {level_ratio:.2f}x, one process each at another time; "
            "the speedup is from pairs"
        )


def levels_disagree(paired: float, level: float) -> bool:
    """Say whether the ratio of paired processes and that of the rows' own latencies differ."""
    return abs(math.log(paired / level)) > math.log1p(MARGIN)


def _overlap(candidate: Record, baseline: Record) -> bool:
    a, b = candidate.latency, baseline.latency
    if a is None or b is None or None in (a.ci_low_s, a.ci_high_s, b.ci_low_s, b.ci_high_s):
        return False
    assert a.ci_low_s is not None
    assert a.ci_high_s is not None
    assert b.ci_low_s is not None
    assert b.ci_high_s is not None
    return a.ci_low_s <= b.ci_high_s and b.ci_low_s <= a.ci_high_s


def break_even(record: Record, baseline_record: Record | None) -> float | str | None:
    """Return the calls after which compiling has paid for itself, or the word ``never``.

    (cold compile - the baseline's cold compile) / (baseline latency - latency). ``None`` when the
    two may not be compared, the compile cost is not known, or it is the baseline itself.
    """
    if baseline_record is None or record is baseline_record:
        return None
    if obstacles(record, baseline_record):
        return None
    cost = record.compile.cold_s if record.compile else None
    before, after = _median(baseline_record), _median(record)
    if cost is None or before is None or after is None or not math.isfinite(cost):
        return None
    base_cost = (baseline_record.compile.cold_s if baseline_record.compile else None) or 0.0
    if after >= before:
        return NEVER
    return max(0.0, (cost - base_cost) / (before - after))


# ---- below the table ------------------------------------------------------------------------


def summary(found: Sequence[Row]) -> Summary:
    """Return counts, best modes, mean speedups and differences of these rows."""
    counted = Counter(row.status for row in found)
    return Summary(
        total=len(found),
        counts={status: counted[status] for status in STATUSES if counted[status]},
        best=tuple(_best_modes(found)),
        means=tuple(_means(found)),
        differences=tuple(_differences(found)),
    )


def counts(row: Row) -> bool:
    """Say whether a row's latency counts: it may be the best, and enter a comparison."""
    return next(_unusable(row.record, is_baseline=row.is_baseline), None) is None


def _by_group(found: Iterable[Row]) -> dict[str, list[Row]]:
    groups: dict[str, list[Row]] = {}
    for row in found:
        groups.setdefault(row.group, []).append(row)
    return groups


def _best_modes(found: Sequence[Row]) -> Iterator[Best]:
    for group, members in _by_group(found).items():
        passed = [row for row in members if counts(row)]
        if passed:
            best = min(passed, key=_pace(passed))
            yield Best(group=group, row=best, candidates=len(passed))


def _pace(members: Sequence[Row]) -> Callable[[Row], float]:
    """Return what to order rows by: the stated speedups where all have one, else the latencies.

    The speedups come from paired processes and the latencies do not, so the two may disagree; the
    best mode must never be one that the table calls slower.
    """
    if all(row.is_baseline or row.speedup for row in members):
        return lambda row: 1.0 / row.speedup if row.speedup else 1.0
    return lambda row: _median(row.record) or math.inf


def _means(found: Sequence[Row]) -> Iterator[MeanSpeedup]:
    """Yield one mean per mode and options, over the groups where both sides count."""
    modes: dict[str, list[Row]] = {}
    for row in found:
        if not row.is_baseline and row.verdict is not None:
            modes.setdefault(row.mode, []).append(row)
    for mode, members in modes.items():
        if all(row.status == "skipped" for row in members):
            continue
        ratios = [row.speedup for row in members if row.speedup is not None]
        yield MeanSpeedup(
            mode=mode,
            value=stats.geometric_mean(ratios),
            n=len(ratios),
            m=len(members),
            low=min(ratios, default=None),
            high=max(ratios, default=None),
        )


def _differences(found: Sequence[Row]) -> Iterator[Difference]:
    """Yield each known fact that is not the same in all rows of a group."""
    for group, members in _by_group(found).items():
        known: dict[str, list[tuple[str, str]]] = {}
        for row in members:
            for name, value in facts(row.record):
                known.setdefault(name, []).append((row.mode, value))
        for name, values in known.items():
            if len({value for _, value in values}) > 1:
                yield Difference(group=group, name=name, values=tuple(values))


def facts(record: Record) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of everything that may explain a difference, except the case itself."""
    yield from _flat(record.environment, "")
    for name in ("settings", "policy"):
        part = getattr(record, name)
        if part is not None:
            filled = {field: getattr(part, field) for field in part.__struct_fields__}
            yield from _flat(msgspec.to_builtins(filled), f"{name}.")
    for source, digest in record.model_sources.items():
        yield f"model source {source}", digest[:12]
    if record.weights_hash is not None:
        yield "weights", record.weights_hash[:12]


def _flat(values: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, str]]:
    for name, value in values.items():
        if name in _VOLATILE or value is None:
            continue
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", str(value)
