"""The verb ``diagnose``: climbs the ladder rung by rung and says whose fault it is. No torch here.

Exit codes: 0 no problem, 1 a problem was found, 2 usage, 4 nothing to say.
"""

from __future__ import annotations

import argparse
import contextlib
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchbench import devices, npusim
from benchbench.coverage.command import NothingToSayError, Parser, Way, job_of
from benchbench.coverage.found import Coverage
from benchbench.diagnose import ladder
from benchbench.diagnose.ladder import Found, Rung, Step, Verdict
from benchbench.ending import judge
from benchbench.errors import ConfigError
from benchbench.format import clean
from benchbench.interrupts import Interrupts
from benchbench.paths import safe_name
from benchbench.plan import build_plan, new_run_id
from benchbench.process import Launcher
from benchbench.progress import Progress
from benchbench.records import Case, Job, Plan

COMMAND = "python -m benchbench diagnose"
EXIT_PROBLEM, EXIT_NOTHING = 1, 4
# Where a bisection says more than the rung itself.
_NOT_BISECTED = ("eager", "eager on the device", "coverage", "lowering")

_EPILOG = """examples:
  {command} model=llama mode=npugraph_ex
  {command} model=my_model.py mode=max-autotune device=npu-sim
  {command} model=my_model.py mode=inductor device=cpu
  {command} model=my_model.py mode=inductor mode.inductor.stand_in=my_backend.py:compile

One model, one mode. Everything that `run` takes as KEY=VALUE is taken here, too.
exit codes: 0 no problem, 1 a problem was found, 2 usage, 4 nothing to say
"""


class Diagnosis(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What the ladder showed for one case."""

    key: str
    verdict: Verdict
    steps: list[Step]
    found: Found | None = None
    coverage: Coverage | None = None


def main(words: Sequence[str]) -> int:
    """Diagnose the one case that the words select; return the exit code."""
    options = _parser().parse_intermixed_args(list(words))
    plan, results_dir = _plan(options)
    case = _one_case(plan)
    reason = plan.skipped.get(case.key)
    if reason:
        raise NothingToSayError(f"{case.key}: {reason}")
    run_dir = results_dir / new_run_id()
    found = diagnose(case, plan, run_dir)
    _write(found, options, run_dir)
    return 0 if found.verdict.problem == "none" else EXIT_PROBLEM


def _parser() -> Parser:
    parser = Parser(
        prog=COMMAND,
        description="Whose fault it is that a model fails or gives other outputs in a mode: a"
        " ladder of rungs, each in a process of its own.",
        epilog=_EPILOG.format(command=COMMAND),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="KEY=VALUE", help="the model and the mode, as for run")
    add("-cd", "--config-dir", action="append", default=[], metavar="DIR",
        help="a folder with model/, mode/, suite/ of your own")  # fmt: skip
    add("--json", metavar="FILE", help="write JSON; - prints it instead of the report")
    return parser


def _plan(options: argparse.Namespace) -> tuple[Plan, Path]:
    from benchbench.cli import results_folder
    from benchbench.config import compose

    words = list(options.words)
    if not any(word.startswith("mode=") for word in words):
        raise ConfigError(f"no mode is named\n  next: {COMMAND} model=llama mode=max-autotune")
    if not any(word.startswith("device=") for word in words):
        words.append(f"device={_device(words)}")
    conf = compose([*words, "baseline=null"], config_dirs=options.config_dir)
    plan = build_plan(conf, overrides=list(options.words), run_id="")
    return plan, results_folder(conf.results_dir)


def _device(words: Sequence[str]) -> str:
    """Return the device to diagnose on: a simulated NPU for the modes that only an NPU has."""
    npu_mode = any(
        word.startswith("mode=") and any(name in word for name in ("npugraph", "acl", "autotune"))
        for word in words
    )
    real = devices.device("npu").unavailable() is None
    stand_in = any(".stand_in=" in word for word in words)
    if npu_mode and not real and not stand_in and npusim.unavailable() is None:
        return "npu-sim"
    return "auto"


def _one_case(plan: Plan) -> Case:
    if len(plan.cases) != 1:
        keys = "\n    ".join(case.key for case in plan.cases)
        raise ConfigError(
            f"diagnose looks at one case, these words select {len(plan.cases)}:\n    {keys}\n"
            "  next: one model, one mode, one workload and no lists"
        )
    return plan.cases[0]


# ---- the ladder --------------------------------------------------------------------------------


def diagnose(case: Case, plan: Plan, run_dir: Path) -> Diagnosis:
    """Climb until a rung breaks; then look for the op."""
    (run_dir / "logs").mkdir(parents=True)
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="benchbench-")))
        stop = stack.enter_context(Interrupts())
        launcher = stack.enter_context(Launcher(stop=stop))
        progress = stack.enter_context(Progress())
        return _Climb(case, plan, run_dir, folder, launcher, progress, stop).run()


class _Climb:
    def __init__(
        self,
        case: Case,
        plan: Plan,
        run_dir: Path,
        folder: Path,
        launcher: Launcher,
        progress: Progress,
        stop: Interrupts,
    ) -> None:
        self.case = case
        self.plan = plan
        self.run_dir = run_dir
        self.folder = folder
        self.launcher = launcher
        self.progress = progress
        self.stop = stop
        self.reference: str | None = None
        self.coverage: Coverage | None = None

    def run(self) -> Diagnosis:
        """Return what the ladder showed."""
        rungs = ladder.rungs(self.case)
        steps: list[Step] = []
        broken: Rung | None = None
        for index, rung in enumerate(rungs, start=1):
            if broken is not None:
                steps.append(Step(name=rung.name, adds=rung.adds, state="not run"))
                continue
            self.progress.case(index, len(rungs), rung.case)
            step = self.climb(rung)
            steps.append(step)
            if step.state != "ok":
                broken = rung
            if self.stop.signum is not None:
                raise KeyboardInterrupt
        found = self.bisect(broken) if broken and broken.name not in _NOT_BISECTED else None
        return Diagnosis(
            key=self.case.key,
            verdict=ladder.verdict(self.case, steps, self.coverage, found),
            steps=steps,
            found=found,
            coverage=self.coverage,
        )

    def climb(self, rung: Rung) -> Step:
        """Run one rung in a process of its own."""
        if rung.kind == "reference":
            return self.eager(rung)
        if rung.kind in ("coverage", "lowering"):
            return self.cover(rung)
        if rung.kind == "ge-compile":
            return self.step(rung, self.job(rung, "bisect", ask={"what": "ge-compile"}))
        return self.step(rung, self.job(rung, "check"))

    def job(self, rung: Rung, kind: Any, **more: Any) -> Job:
        settings = msgspec.structs.replace(self.plan.settings, start="fresh")
        return Job(
            kind=kind,
            case=rung.case,
            policy=self.plan.policy,
            limits=self.plan.limits,
            settings=settings,
            accuracy=self.reference is not None,
            reference_path=self.reference,
            plugins=self.plan.plugins,
            search_paths=self.plan.search_paths,
            **more,
        )

    def step(self, rung: Rung, job: Job) -> Step:
        """Return a step from how its worker ended."""
        judged, _, log = self.launch(rung, job)
        failure = judged.failure
        accuracy = judged.measurement.accuracy if judged.measurement else None
        wrong = failure is not None and failure.kind == "WrongOutput"
        return Step(
            name=rung.name,
            adds=rung.adds,
            state="wrong" if wrong else "failed" if failure else "ok",
            failure=failure,
            accuracy=accuracy,
            log=log,
        )

    def eager(self, rung: Rung) -> Step:
        """Run the model twice in eager and once in float64; keep what it gives."""
        path = str(self.folder / "reference.pt")
        self.reference = path
        step = self.step(rung, self.job(rung, "reference"))
        if step.state != "ok":
            self.reference = None
            return step
        if step.accuracy is not None and step.accuracy.verdict == "random":
            reason = step.accuracy.reason or "eager disagrees with itself"
            return msgspec.structs.replace(step, state="wrong", note=f"eager is random: {reason}")
        return step

    def cover(self, rung: Rung) -> Step:
        """Lower the model; the first of the two rungs is about ops, the second about the graph."""
        if self.coverage is None:
            route = "device" if self.case.device == "npu" else "simulated"
            way = Way(route, self.case.device)  # type: ignore[arg-type]
            judged, outcome, log = self.launch(rung, job_of(self.case, self.plan, way))
            if outcome is None:
                return Step(
                    name=rung.name, adds=rung.adds, state="failed", failure=judged.failure, log=log
                )
            self.coverage = msgspec.convert(outcome, Coverage)
        found = self.coverage
        if rung.kind == "coverage":
            gaps = ", ".join(f"{op.op} ({op.calls} calls)" for op in found.gaps)
            state = "failed" if gaps else "ok"
            return Step(name=rung.name, adds=rung.adds, state=state, note=gaps or None)  # type: ignore[arg-type]
        missing = found.error or "; ".join(found.breaks) or ("" if found.graphs else "no graph")
        state = "failed" if missing else "ok"
        return Step(name=rung.name, adds=rung.adds, state=state, note=missing or None)  # type: ignore[arg-type]

    def bisect(self, rung: Rung) -> Found | None:
        """Look for the first op at fault; ``None`` where that cannot be told."""
        _, report, _ = self.launch(rung, self.job(rung, "bisect", ask={"what": "graph"}))
        return None if report is None else msgspec.convert(report, Found)

    def launch(self, rung: Rung, job: Job) -> tuple[Any, Any, str]:
        """Run a job; return the judgement, its report if it left one, and its log."""
        self.progress.job(job.kind)
        name = safe_name(f"{rung.name}/{job.kind}")
        log = self.run_dir / "logs" / f"{name}.log"
        cache = self.folder / f"{name}.cache"
        cache.mkdir(exist_ok=True)
        end = self.launcher.run_job(
            msgspec.structs.replace(job, cache_dir=str(cache)),
            outcome_path=self.folder / f"{name}.json",
            log_path=log,
            on_phase=self.progress.phase,
        )
        report = end.outcome.report if end.outcome is not None else None
        return judge(end), report, str(log)


# ---- the report --------------------------------------------------------------------------------


def _write(found: Diagnosis, options: argparse.Namespace, run_dir: Path) -> None:
    from benchbench.durable import write_atomically

    data = msgspec.json.format(msgspec.json.encode(found), indent=2) + b"\n"
    write_atomically(run_dir / "diagnosis.json", data)
    if options.json and options.json != "-":
        write_atomically(Path(options.json).absolute(), data)
    if options.json == "-":
        sys.stdout.write(data.decode())
    else:
        sys.stdout.write(render(found, run_dir))
    sys.stdout.flush()


_MARKS = {"ok": "ok", "failed": "FAILED", "wrong": "WRONG", "not run": "not run"}


def render(found: Diagnosis, run_dir: Path) -> str:
    """Return the ladder and the verdict as text."""
    lines = [found.key, ""]
    for step in found.steps:
        lines.append(f"  {_MARKS[step.state]:<8} {step.name:<20} {step.adds}")
        reason = step.failure.reason if step.failure else step.note
        if reason:
            lines.append(f"           {clean(reason)}")
    bisected = found.found
    if bisected is not None and bisected.kind == "nothing":
        lines += ["", f"  bisection: {bisected.text or 'no op at fault was found'}"]
    elif bisected is not None:
        lines += [
            "",
            f"  bisection: {bisected.op} ({bisected.node}), {bisected.compiles} compiles",
        ]
    verdict = found.verdict
    lines += ["", clean(verdict.sentence), f"  next: {clean(verdict.next)}"]
    return "\n".join([*lines, "", f"logs and diagnosis.json in {run_dir}", ""])
