"""The parent's side of a comparison: how many processes, of which kind, and when to stop.

Ratios come from *duet* processes, which hold baseline and candidate and alternate them. Where the
two cannot share a process (they do not fit into memory together, or their libraries break each
other) each block is one process of either, in random order. Every process gives one number;
flagged processes are kept and replaced by a rule that looks at what happened to them, never at
their value.
"""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import msgspec

from benchbench import stats, verdicts
from benchbench.ending import Judgement, one_line
from benchbench.records import (
    Case,
    ComparisonPolicy,
    Job,
    JobKind,
    Paired,
    PairedProcess,
    Record,
    Samples,
)

RunJob = Callable[[Job, str], Judgement]
"""Runs a job under a short name for its log, and says how it ended."""
MakeJob = Callable[..., Job]

# A flagged process is replaced, up to this share of the wanted number; more and it is noisy.
_REPLACED_SHARE = 0.5
# Two processes in a row without a ratio: the third would not have one either.
_FAILURES_IN_A_ROW = 2
_NPU_KINDS = ("npu", "npu-sim")


def may_share(baseline: Case, candidate: Case) -> bool:
    """Say whether both may live in one process.

    torchair (max-autotune on an NPU) and npugraph_ex patch the same operators and break each
    other in one order.
    """
    if candidate.device not in _NPU_KINDS:
        return True
    modules = {case.mode_target.path.rpartition(".")[0] for case in (baseline, candidate)}
    return not {"benchbench.modes.npugraph_ex", "benchbench.modes.max_autotune"} <= modules


def comparable(record: Record) -> bool:
    """Say whether a measured row is worth comparing: it ran, as asked, and is a timing."""
    return (
        record.status == "ok"
        and record.latency is not None
        and not record.simulated
        and not record.diagnosis
    )


@dataclass(slots=True, kw_only=True)
class Comparisons:
    """Runs the comparisons of one run, each within its time."""

    policy: ComparisonPolicy
    make_job: MakeJob
    run_job: RunJob
    stopped: Callable[[], bool]
    clock: Callable[[], float] = time.monotonic
    order: random.Random = field(default_factory=lambda: random.Random(0))

    def compare(
        self, baseline: Case, candidate: Record, cache_dir: Path
    ) -> tuple[Paired | None, list[Samples]]:
        """Return the comparison process by process, and the raw samples of its turns.

        ``None`` when the policy asks for one process a side.
        """
        if not self.policy.looks:
            return None, []
        expected_s = expected_process_s(candidate, self.policy)
        return _Comparison(self, baseline, candidate.case, cache_dir, expected_s).run()

    def left_s(self, begin: float) -> float:
        """Return the seconds that are left for the comparison that is under way since ``begin``."""
        if self.policy.max_time_s is None:
            return math.inf
        return self.policy.max_time_s - (self.clock() - begin)


def expected_process_s(candidate: Record, policy: ComparisonPolicy) -> float:
    """Return the seconds that a duet process of this candidate will take, from its own row."""
    compiled = candidate.compile
    compile_s = 0.0
    if compiled is not None:
        compile_s = compiled.cold_s or 0.0
        if compiled.warm_s is not None:
            compile_s = compiled.warm_s
    known = candidate.phase_s
    turns_s = min(policy.process_max_time_s, 2 * policy.turn_s * policy.rounds)
    return known.get("load", 0.0) + compile_s + 2 * known.get("warmup", 0.0) + turns_s


class _Comparison:
    """One candidate against its baseline."""

    def __init__(
        self,
        owner: Comparisons,
        baseline: Case,
        candidate: Case,
        cache_dir: Path,
        expected_s: float,
    ) -> None:
        self.owner = owner
        self.baseline = baseline
        self.candidate = candidate
        self.cache_dir = cache_dir
        self.design: Literal["duet", "blocks"] = "blocks"
        if may_share(baseline, candidate):
            self.design = "duet"
        self.processes: list[PairedProcess] = []
        self.samples: list[Samples] = []
        self.begin = owner.clock()
        self.longest_s = expected_s

    def run(self) -> tuple[Paired, list[Samples]]:
        stopped = None
        looks = self.owner.policy.looks
        for look in looks:
            stopped = self.until(look)
            if stopped is not None or verdicts.decided(self.decision(len(looks))):
                break
        paired = Paired(
            baseline_key=self.baseline.key,
            design=self.design,
            processes=self.processes,
            stopped=stopped,
        )
        return paired, self.samples

    def decision(self, looks: int) -> verdicts.Decision:
        counting = [p for p in self.processes if p.log_ratio is not None]
        return verdicts.decide(
            [p.log_ratio for p in counting if p.log_ratio is not None and not p.flags],
            flagged=sum(bool(p.flags) for p in counting),
            margin=self.owner.policy.margin,
            confidence=verdicts.LOOK_CONFIDENCE if looks > 1 else verdicts.CONFIDENCE,
        )

    def until(self, wanted: int) -> str | None:
        """Run processes until ``wanted`` of them count; return why it stopped before, or None."""
        most = wanted + math.ceil(wanted * _REPLACED_SHARE)
        while self.counting() < wanted and len(self.processes) < most:
            if self.owner.stopped():
                return "the run was stopped"
            if self.owner.left_s(self.begin) < self.longest_s:
                limit = self.owner.policy.max_time_s
                return f"the next process ({self.longest_s:.0f} s) would pass the {limit:g} s limit"
            begin = self.owner.clock()
            self.processes.append(self.one(len(self.processes)))
            self.longest_s = self.owner.clock() - begin
            last = self.processes[-_FAILURES_IN_A_ROW:]
            if len(last) == _FAILURES_IN_A_ROW and all(p.failed for p in last):
                return f"{_FAILURES_IN_A_ROW} processes in a row gave no ratio"
        return None

    def counting(self) -> int:
        return sum(not p.flags and p.log_ratio is not None for p in self.processes)

    def one(self, number: int) -> PairedProcess:
        if self.design == "duet":
            judgement = self.job("duet", self.candidate, number, partner=self.baseline)
            if judgement.status != "oom":
                return self.duet(judgement, number)
            # Both do not fit into memory together: a process for each from here on.
            self.design = "blocks"
        return self.block(number)

    def duet(self, judgement: Judgement, number: int) -> PairedProcess:
        measurement = judgement.measurement
        if judgement.status != "ok" or measurement is None or measurement.paired is None:
            return PairedProcess(round=number, failed=_why(judgement))
        self.samples += measurement.samples
        return measurement.paired

    def block(self, number: int) -> PairedProcess:
        """Run one process of either in random order; their medians make the ratio."""
        sides = [(self.baseline, "duet_baseline"), (self.candidate, "duet_candidate")]
        self.owner.order.shuffle(sides)
        medians: dict[str, float] = {}
        flags: list[str] = []
        for case, phase in sides:
            judgement = self.job("measure", case, number)
            measurement = judgement.measurement
            latency = stats.latency(measurement.samples) if measurement else None
            if judgement.status != "ok" or measurement is None or latency is None:
                return PairedProcess(round=number, failed=_why(judgement))
            medians[case.key] = latency.median_s
            flags += [name for name in measurement.caveats if name in _FLAGS]
            self.samples += [
                msgspec.structs.replace(part, phase=phase, round=number)
                for part in measurement.samples
                if part.phase == "sample"
            ]
        before, after = medians[self.baseline.key], medians[self.candidate.key]
        return PairedProcess(
            round=number,
            log_ratio=math.log(before / after),
            baseline_median_s=before,
            candidate_median_s=after,
            rounds=1,
            flags=sorted(set(flags)),
        )

    def job(self, kind: JobKind, case: Case, number: int, partner: Case | None = None) -> Judgement:
        job = self.owner.make_job(
            kind,
            case,
            partner=partner,
            comparison=self.owner.policy,
            round=number,
            accuracy=False,
            cache_dir=str(self.cache_dir),
        )
        return self.owner.run_job(job, f"{self.candidate.key}/process{number}")


# Caveats of a whole process for which it is left out of an interval.
_FLAGS = frozenset({"STARVED", "NOT_STEADY", "UNSTABLE_THREADS"})


def _why(judgement: Judgement) -> str:
    failure = judgement.failure
    return one_line(failure.reason) if failure else judgement.status
