"""The parent's loop: one case after another, each stored before the next one starts.

Torch is never imported here, and while a worker measures the parent sleeps.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import queue
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchbench import device_lock, noise
from benchbench.assemble import (
    Warm,
    compiles,
    exit_code,
    is_simulated,
    measured,
    now,
    unmeasured,
    without_reference,
)
from benchbench.comparison import Comparisons, comparable
from benchbench.early import EarlyServer
from benchbench.ending import JobEnd, Judgement, judge, signal_name
from benchbench.environment import host_facts
from benchbench.errors import StoreError
from benchbench.interrupts import Interrupts
from benchbench.paths import safe_name
from benchbench.process import Launcher
from benchbench.progress import Progress
from benchbench.records import Case, Job, JobKind, Plan, Record, Samples
from benchbench.resume import Earlier
from benchbench.store import RunWriter

TMP = "tmp"
"""Folder below the run's: compile caches, references and outcomes; gone when the run is over."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The rows of a run in the order of its plan, where they are, and the exit code."""

    records: list[Record]
    exit_code: int
    run_dir: Path


def run_plan(
    plan: Plan,
    *,
    results_dir: Path,
    progress: Progress,
    resume: str | None = None,
    stop: Interrupts | None = None,
    make_launcher: Callable[..., Launcher] = Launcher,
    early: EarlyServer | None = None,
) -> RunResult:
    """Run the cases of a plan and return their records, all of them stored already.

    The first SIGINT or SIGTERM ends the running case and leaves the rest as ``not_run``; a second
    one raises ``SystemExit``. Pass ``stop`` to have signals handled beyond this call, too. Raises
    :class:`StoreError` when results cannot be written; what was stored before is intact then.
    """
    earlier = Earlier.load(results_dir, resume)
    compiling = any(compiles(case) for case in plan.cases if case.key not in plan.skipped)
    make_launcher = functools.partial(make_launcher, compiles=compiling)
    if early is not None and len(plan.device_ids) < 2:
        make_launcher = functools.partial(make_launcher, early=early)
    with contextlib.ExitStack() as stack:
        if stop is None:
            stop = stack.enter_context(Interrupts())
        writer = stack.enter_context(RunWriter.create(results_dir, plan))
        tmp = writer.run_dir / TMP
        stack.callback(shutil.rmtree, tmp, ignore_errors=True)
        launcher = stack.enter_context(make_launcher(stop=stop))
        stack.enter_context(progress)
        with _explained(writer.run_dir):
            tmp.mkdir()
            for name in _lock_names(plan):
                held = device_lock.held(
                    name,
                    writer.plan.run_id,
                    say=progress.say,
                    stopped=lambda: stop.signum is not None,
                )
                stack.enter_context(held)
            if len(plan.device_ids) > 1:
                records = _spread(writer, make_launcher, progress, stop, earlier)
            else:
                loop = _Loop(writer, launcher, progress, stop, earlier)
                records = loop.run(list(enumerate(plan.cases, start=1)))
    return RunResult(
        records=records, exit_code=exit_code(records, stop.signum), run_dir=writer.run_dir
    )


def _lock_names(plan: Plan) -> list[str]:
    """Return the devices that the plan measures on, in one order for all runs: no deadlock."""
    measured = [c for c in plan.cases if c.key not in plan.skipped and not is_simulated(c)]
    return sorted(
        {
            f"{case.device}{index}" if case.device != "cpu" else "cpu"
            for case in measured[:1]
            for index in plan.device_ids or [case.device_index]
        }
    )


def _spread(
    writer: RunWriter,
    make_launcher: Callable[..., Launcher],
    progress: Progress,
    stop: Interrupts,
    earlier: Earlier,
) -> list[Record]:
    """Run groups of cases on several devices at the same time, never two on one.

    A group stays on one device: what is compared with one another ran on the same one.
    """
    plan = writer.plan
    waiting: queue.SimpleQueue[list[tuple[int, Case]]] = queue.SimpleQueue()
    numbered = list(enumerate(plan.cases, start=1))
    for _, members in itertools.groupby(numbered, key=lambda item: item[1].group):
        waiting.put(list(members))

    def serve(index: int) -> list[Record]:
        records: list[Record] = []
        with make_launcher(stop=stop) as launcher:
            loop = _Loop(writer, launcher, progress.beside(), stop, earlier, device_index=index)
            with contextlib.suppress(queue.Empty):
                while True:
                    records += loop.run(waiting.get_nowait())
        return records

    with ThreadPoolExecutor(len(plan.device_ids)) as pool:
        parts = list(pool.map(serve, plan.device_ids))
    order = {case.key: number for number, case in numbered}
    return sorted((r for part in parts for r in part), key=lambda record: order[record.case_key])


class _Loop:
    """One pass over the cases of a plan."""

    def __init__(
        self,
        writer: RunWriter,
        launcher: Launcher,
        progress: Progress,
        stop: Interrupts,
        earlier: Earlier,
        device_index: int | None = None,
    ) -> None:
        self._writer = writer
        self._device_index = device_index
        self._plan = writer.plan
        self._launcher = launcher
        self._progress = progress
        self._stop = stop
        self._earlier = earlier
        self._facts = host_facts()
        self._references: dict[str, _Reference] = {}
        self._baselines: dict[str, Record] = {}
        self._comparisons = Comparisons(
            policy=self._plan.comparison,
            make_job=self._job,
            run_job=lambda job, name: self._run(job, self._writer.log_path(name))[1],
            stopped=lambda: self._stop.signum is not None,
        )

    def run(self, cases: list[tuple[int, Case]]) -> list[Record]:
        """Run these cases of the plan, given with their numbers in it."""
        records = []
        for index, planned in cases:
            case = planned
            if self._device_index is not None:
                case = msgspec.structs.replace(planned, device_index=self._device_index)
            self._progress.case(index, len(self._plan.cases), case)
            record, samples = self._row(case)
            stored = self._writer.append(record, samples)
            records.append(stored)
            self._progress.done(stored)
            if case.mode == self._plan.baseline and stored.status == "ok":
                self._baselines[case.group] = stored
        return records

    def _row(self, case: Case) -> tuple[Record, list[Samples]]:
        reason = self._plan.skipped.get(case.key)
        if reason is not None:
            return unmeasured(self._plan, case, "skipped", reason), []
        earlier = self._taken_over(case)
        if earlier is not None:
            return earlier, self._earlier.samples.get(case.key, [])
        if self._stop.signum is not None:
            reason = f"the run was stopped by {signal_name(self._stop.signum)} before this case"
            return unmeasured(self._plan, case, "not_run", reason), []
        return self._measure(case)

    def _taken_over(self, case: Case) -> Record | None:
        return self._earlier.take_over(self._plan, case, self._facts)

    def _measure(self, case: Case) -> tuple[Record, list[Samples]]:
        """Run the jobs of one case: the reference if its group needs one, the measurement, and
        the second compilation."""
        started_at = now()
        reference = self._reference(case)
        with self._cache(case) as cache:
            job = self._job(
                "measure",
                case,
                accuracy=self._plan.accuracy and reference.failed is None,
                reference_path=reference.path,
                cache_dir=str(cache),
            )
            end, judgement = self._run(job, self._writer.log_path(case))
            warm = self._warm(job, judgement)
            record = measured(
                self._plan,
                case,
                judgement,
                end,
                started_at=started_at,
                log=self._writer.log_path(case).relative_to(self._writer.run_dir).as_posix(),
                facts=self._facts,
                warm=warm,
            )
            if reference.failed is not None and record.status == "ok":
                record = without_reference(record, reference.failed)
            record, turns = self._compared(record, cache)
        record = self._with_break_even(record)
        ok = record.status == "ok" and judgement.measurement and not record.simulated
        own = judgement.measurement.samples if ok and judgement.measurement else []
        return record, [*own, *turns]

    def _compared(self, record: Record, cache: Path) -> tuple[Record, list[Samples]]:
        """Add the comparison with the group's baseline, where both rows allow one."""
        baseline = self._baselines.get(record.case.group)
        if baseline is None or not (comparable(record) and comparable(baseline)):
            return record, []
        paired, turns = self._comparisons.compare(baseline.case, record, cache)
        usual = noise.load()
        if paired is not None and usual is not None and record.case.device == "cpu":
            paired = msgspec.structs.replace(paired, usual_sd=usual.duet_sd)
        return msgspec.structs.replace(record, paired=paired), turns

    def _reference(self, case: Case) -> _Reference:
        """Return the reference outputs of the case's group; made once, when first needed."""
        if not self._plan.accuracy or not self._needs_reference(case.group):
            return _Reference()
        if case.group not in self._references:
            self._references[case.group] = self._make_reference(case)
        return self._references[case.group]

    def _needs_reference(self, group: str) -> bool:
        # On a simulated device the baseline has to prove itself, too: against the CPU.
        return any(
            (case.mode != self._plan.baseline or is_simulated(case))
            and case.key not in self._plan.skipped
            and self._taken_over(case) is None
            for case in self._plan.cases
            if case.group == group
        )

    def _make_reference(self, case: Case) -> _Reference:
        path = self._tmp(case.group, ".reference.pt")
        log = self._writer.log_path(f"{case.group}/reference")
        with self._cache(case) as cache:
            job = self._job("reference", case, reference_path=str(path), cache_dir=str(cache))
            _, judgement = self._run(job, log)
        if judgement.failure is None and path.exists():
            return _Reference(path=str(path))
        why = judgement.failure.reason if judgement.failure else "it left no outputs"
        return _Reference(failed=f"eager's outputs to compare with: {why} (see logs/{log.name})")

    def _warm(self, job: Job, judgement: Judgement) -> Warm:
        """Compile once more in a new process, where the first compilation filled a cache."""
        measurement = judgement.measurement
        if judgement.status != "ok" or measurement is None:
            return Warm()
        if measurement.graph is None or not measurement.graph.compile_events:
            return Warm()
        if measurement.cache != "cold":
            return Warm(word="not cached")
        if not job.policy.warm_compile or self._stop.signum is not None:
            return Warm(word="skipped")
        again = msgspec.structs.replace(
            job, kind="warm_compile", accuracy=False, reference_path=None
        )
        log = self._writer.log_path(f"{job.case.key}/warm")
        _, second = self._run(again, log)
        if second.status == "interrupted":
            return Warm(word="skipped")
        if second.status != "ok" or second.measurement is None:
            reason = second.failure.reason if second.failure else second.status
            return Warm(word="failed", notes=[f"warm compile: {reason} (see logs/{log.name})"])
        return Warm(phase_s=second.measurement.phase_s.get("compile"))

    def _with_break_even(self, record: Record) -> Record:
        # Late, so that a run of a single mode never needs the comparison.
        from benchbench.compare import break_even

        baseline = self._baselines.get(record.case.group)
        if record.status != "ok" or baseline is None or record.compile is None:
            return record
        return msgspec.structs.replace(record, break_even_calls=break_even(record, baseline))

    def _job(self, kind: JobKind, case: Case, **others: Any) -> Job:
        plan = self._plan
        return Job(
            kind=kind,
            case=case,
            policy=plan.policy,
            limits=plan.limits,
            settings=plan.settings,
            plugins=plan.plugins,
            search_paths=plan.search_paths,
            **others,
        )

    def _run(self, job: Job, log_path: Path) -> tuple[JobEnd, Judgement]:
        outcome_path = self._tmp(f"{job.case.key}/{job.kind}", ".json")
        self._progress.job(job.kind)
        end = self._launcher.run_job(
            job,
            outcome_path=outcome_path,
            log_path=log_path,
            on_phase=self._progress.phase,
        )
        outcome_path.unlink(missing_ok=True)
        return end, judge(end)

    @contextlib.contextmanager
    def _cache(self, case: Case) -> Iterator[Path]:
        """Give one case compile caches of its own, so that cold means cold for each."""
        folder = self._tmp(case.key, ".cache")
        folder.mkdir()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _tmp(self, name: str, suffix: str) -> Path:
        return (self._writer.run_dir / TMP / (safe_name(name) + suffix)).absolute()


@dataclass(frozen=True, slots=True)
class _Reference:
    path: str | None = None
    failed: str | None = None
    """Why there is none although it was needed."""


@contextlib.contextmanager
def _explained(folder: Path) -> Iterator[None]:
    """Turn an operating system's refusal to write into one sentence."""
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"cannot write to {error.filename or folder}: {error.strerror or error}\n"
            "  what was stored before is intact; free some space or choose another folder: "
            "results_dir=DIR"
        ) from error
