"""Records from what a worker left: pure, so that every row can be made in a test without one."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any

import msgspec

from benchbench import stats
from benchbench.caveats import TIMING
from benchbench.ending import JobEnd, Judgement, one_line
from benchbench.records import (
    FAILED_STATUSES,
    SCHEMA_VERSION,
    AccuracyResult,
    Case,
    CompileCost,
    Failure,
    Harness,
    Latency,
    Measurement,
    Plan,
    Record,
    Status,
)

# Options of the command line that name one value of a case; a swept one is fixed to the case's.
_SWEPT = ("workload", "batch_size", "seq_len", "dtype")
_NOT_REPEATED = ("model", "mode", "baseline", "resume", "name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Warm:
    """What came of compiling once more on the filled cache: seconds of the phase, or a word."""

    phase_s: float | None = None
    word: str | None = None
    notes: list[str] = field(default_factory=list)


def now() -> str:
    """Return this moment as ISO 8601 in UTC."""
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds")


def measured(
    plan: Plan,
    case: Case,
    judgement: Judgement,
    end: JobEnd,
    *,
    started_at: str,
    log: str,
    facts: dict[str, Any],
    warm: Warm,
) -> Record:
    """Return the record of a case that was started. ``facts`` stand in when a worker left none."""
    partial = judgement.measurement or Measurement(phase_s={})
    simulated = is_simulated(case)
    timed = judgement.status == "ok" and not simulated
    latency = stats.latency(partial.samples, partial.stop_reason) if timed else None
    record = Record(
        **_common(plan, case),
        started_at=started_at,
        status=judgement.status,
        failure=_with_way_back(judgement.failure, plan, case, log),
        latency=latency,
        device_time=None if simulated else partial.device_time,
        throughput=stats.throughput(partial.items, partial.item, latency) if latency else None,
        compile=compile_cost(partial, latency, warm),
        graph=partial.graph,
        memory=partial.memory,
        accuracy=partial.accuracy,
        steady=partial.steady,
        interference=None if simulated else partial.interference,
        phase_s=partial.phase_s,
        caveats=_caveats([*partial.caveats, *judgement.caveats], simulated),
        notes=list(dict.fromkeys([*partial.notes, *judgement.notes, *warm.notes])),
        environment=_environment(partial, end, facts),
        harness=Harness(overhead_s=partial.overhead_s, parent_cpu_share=end.parent_cpu_share),
        model_sources=partial.model_sources,
        weights_hash=partial.weights_hash,
        duration_s=end.duration_s,
    )
    return _without_wrong_outputs(record)


def is_simulated(case: Case) -> bool:
    """Say whether the case's device is a simulated one, of which no time is ever shown."""
    return case.device == "npu-sim"


def _caveats(names: Iterable[str], simulated: bool) -> list[str]:
    without = {caveat.name for caveat in TIMING} if simulated else set()
    return [name for name in dict.fromkeys(names) if name not in without]


def unmeasured(plan: Plan, case: Case, status: Status, reason: str) -> Record:
    """Return the record of a case that was never started: ``skipped`` or ``not_run``."""
    failure = Failure(phase="load", kind=status, reason=one_line(reason))
    if status == "not_run":
        failure = msgspec.structs.replace(failure, rerun=rerun_command(plan, case))
    return Record(**_common(plan, case), started_at=now(), status=status, failure=failure)


def compile_cost(
    measurement: Measurement, latency: Latency | None, warm: Warm
) -> CompileCost | None:
    """Return what compiling cost beyond one steady call; ``None`` where nothing was compiled."""
    graph = measurement.graph
    phase_s = measurement.phase_s.get("compile")
    if phase_s is None or latency is None or graph is None or not graph.compile_events:
        return None
    return CompileCost(
        cold_s=max(0.0, phase_s - latency.median_s),
        warm_s=None if warm.phase_s is None else max(0.0, warm.phase_s - latency.median_s),
        warm_word=warm.word,
        cold_cpu_s=measurement.phase_cpu_s.get("compile"),
        stages=measurement.compile_stages_s,
    )


def exit_code(records: Iterable[Record], interrupted: int | None = None) -> int:
    """Return the exit code of a run: 0, 1, 4, or 128 + the signal that stopped it."""
    if interrupted is not None:
        return 128 + interrupted
    statuses = {record.status for record in records}
    if statuses & FAILED_STATUSES:
        return 1
    return 0 if "ok" in statuses else 4


def rerun_command(plan: Plan, case: Case) -> str:
    """Return a command line that measures just this case, with the options of this run."""
    words: list[str] = []
    swept: set[str] = set()
    made_here: set[str] = set()
    for override in plan.overrides:
        key = override.partition("=")[0].lstrip("+")
        if key in _SWEPT:
            swept.add(key)
        elif key not in _NOT_REPEATED and _concerns(key, case):
            words.append(override)
            if key.endswith("._target_") or key.endswith(".backend"):
                made_here.add(key.partition(".")[0])
    for group, name in (("model", case.model), ("mode", case.mode)):
        if group not in made_here:
            words.append(f"{group}={name}")
    words += [f"{key}={getattr(case, key)}" for key in _SWEPT if key in swept]
    if plan.baseline is not None and plan.baseline != case.mode:
        words.append("baseline=null")
    return shlex.join(["python", "-m", "benchbench", *words])


def _concerns(key: str, case: Case) -> bool:
    """Say whether an option is for every case or for the model or mode of this one."""
    for group, name in (("model", case.model), ("mode", case.mode)):
        if key.startswith(f"{group}."):
            return key.startswith((f"{group}.{name}.", f"{group}.[{name}]."))
    return key not in ("-m", "--multirun")


def _common(plan: Plan, case: Case) -> dict[str, Any]:
    return {
        "schema_version": SCHEMA_VERSION,
        "run_id": plan.run_id,
        "case_key": case.key,
        "case": case,
        "settings": plan.settings,
        "policy": plan.policy,
        "simulated": is_simulated(case),
        "diagnosis": _is_diagnosis(case),
    }


def _is_diagnosis(case: Case) -> bool:
    """Ask our own modes; a user's file may import torch, which the parent never does."""
    from benchbench import loading

    if not case.mode_target.path.startswith("benchbench."):
        return False
    return loading.build_mode(case.mode_target).diagnosis() is not None


def compiles(case: Case) -> bool:
    """Say whether the case's mode compiles, or may do so as far as the parent can tell."""
    from benchbench import loading

    target = case.mode_target
    return not target.path.startswith("benchbench.") or loading.build_mode(target).compiles


def _environment(partial: Measurement, end: JobEnd, facts: dict[str, Any]) -> dict[str, Any]:
    left = partial.environment or (end.outcome.environment if end.outcome else {}) or facts
    return {**left, "start": end.started}


def _with_way_back(failure: Failure | None, plan: Plan, case: Case, log: str) -> Failure | None:
    """Return the failure with the log to read and the command to type."""
    if failure is None:
        return None
    return msgspec.structs.replace(failure, log=log, rerun=rerun_command(plan, case))


def _without_wrong_outputs(record: Record) -> Record:
    """A row whose outputs differ from eager's is a failed row, however it was handed over."""
    accuracy = record.accuracy
    if record.status != "ok" or accuracy is None or accuracy.verdict != "fail":
        return record
    failure = Failure(
        phase="check",
        kind="WrongOutput",
        reason=one_line(accuracy.reason or "outputs differ from eager's"),
    )
    return msgspec.structs.replace(record, status="failed", failure=failure)


def without_reference(record: Record, reason: str) -> Record:
    """Return the record of a row whose outputs had nothing to be compared with."""
    verdict = AccuracyResult(verdict="not_comparable", reason=one_line(reason))
    return msgspec.structs.replace(record, accuracy=verdict)
