"""The verb ``coverage``: overrides in, one worker per model, a report out. Never imports torch.

Exit codes: 0 no gap, 1 gaps, 2 usage, 4 nothing to say.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

import msgspec

from benchbench import devices, npusim
from benchbench.coverage.found import NOT_NEEDED, Coverage, Route
from benchbench.ending import judge
from benchbench.errors import BenchbenchError, ConfigError
from benchbench.interrupts import Interrupts
from benchbench.npusim import wheel
from benchbench.overrides import quote
from benchbench.paths import safe_name
from benchbench.plan import build_plan, new_run_id
from benchbench.process import Launcher
from benchbench.progress import Progress
from benchbench.records import Case, Job, Plan

COMMAND = "python -m benchbench coverage"
MODE = "max-autotune"
EXIT_GAPS, EXIT_NOTHING = 1, 4
_TARGET = "max_autotune.MaxAutotune"

_EPILOG = """examples:
  {command} model=llama 'workload=[prefill,decode]'
  {command} model=my_model.py --op-proto op_proto.h
  {command} model=bert --soc Ascend310P3 --cann-version 8.3.0 --json coverage.json
  {command} model=llama size=full --dump graph.txt
  {command} --skeleton aten.histc.default > converters/histc.py

Everything that `run` takes as KEY=VALUE is taken here, too: model, size, batch_size, converters,
mode.max-autotune.options..., plugins.
exit codes: 0 no gap, 1 gaps, 2 usage, 4 nothing to say
"""


class NothingToSayError(BenchbenchError):
    """There is no way to lower anything here."""

    exit_code = EXIT_NOTHING


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise ConfigError(f"{message}\n  next: {self.prog} --help")


def main(words: Sequence[str]) -> int:
    """Report the converter coverage of what the words select; return the exit code."""
    options = _parser().parse_intermixed_args(list(words))
    way = choose_route(options.words)
    plan, results_dir = _plan(options, way)
    cases = [case for case in plan.cases if case.mode_target.path.endswith(_TARGET)]
    if not cases:
        raise NothingToSayError(f"{NOT_NEEDED}\n  next: leave mode out, or mode={MODE}")
    if options.skeleton:
        return _skeleton(options.skeleton, cases[0], plan, way, explicit=_names_model(options))
    dump = Path(options.dump).absolute() if options.dump else None
    found, run_dir = _cover(cases, plan, way, results_dir, dump)
    _report(found, options, run_dir)
    return exit_code(found)


def _parser() -> Parser:
    parser = Parser(
        prog=COMMAND,
        description="Which ops of a model enter the Ascend graph (max-autotune on an NPU), how, and"
        " why the others do not. Needs no NPU.",
        epilog=_EPILOG.format(command=COMMAND),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="KEY=VALUE", help="what to look at, as for run")
    add("-cd", "--config-dir", action="append", default=[], metavar="DIR",
        help="a folder with model/, mode/, suite/ of your own")  # fmt: skip
    add("--soc", metavar="NAME", help="the chip to lower for (default Ascend910B3)")
    add("--cann-version", metavar="X.Y.Z", help="the CANN to lower for (default 8.5.0)")
    add("--op-proto", metavar="FILE", help="REG_OP definitions of operators of your own")
    add("--dump", metavar="FILE", help="write the lowered graphs (text; FILE.pb is binary)")
    add("--json", metavar="FILE", help="write JSON; - prints it instead of the report")
    add("--markdown", metavar="FILE", help="write the report as Markdown")
    add("--skeleton", metavar="OP", help="print a converter file to start from, for one op")
    return parser


# ---- how to lower here -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Way:
    """How models are lowered on this machine, and why not in a better way."""

    route: Route
    device: str
    note: str | None = None


def choose_route(words: Sequence[str]) -> Way:
    """Return the best way to lower; raise :class:`NothingToSayError` when there is none."""
    asked = next((word.split("=", 1)[1] for word in words if word.startswith("device=")), None)
    if asked not in (None, "npu", "npu-sim", "auto"):
        raise ConfigError(
            f"device={asked}: coverage lowers for an NPU\n  next: leave device out, or device=npu"
        )
    if asked == "npu":
        reason = devices.device("npu").unavailable()
        if reason:
            raise NothingToSayError(f"{reason}\n  next: leave device out: no NPU is needed")
        return Way("device", "npu")
    reason = npusim.unavailable()
    if reason is None:
        return Way("simulated", "npu-sim")
    if devices.device("npu").unavailable() is None:
        return Way("device", "npu")
    if _torchair_is_there():
        return Way("approximate", "npu-sim", f"approximate, because {reason}")
    raise NothingToSayError(
        f"converter coverage needs torchair, which is a part of torch_npu: {reason}"
    )


def _torchair_is_there() -> bool:
    package = wheel.package_folder()
    torch, torch_npu = wheel.version("torch"), wheel.version()
    return (
        package is not None
        and (package / "dynamo" / "torchair").is_dir()
        and torch is not None
        and torch_npu is not None
        and wheel.series(torch) == wheel.series(torch_npu)
    )


def _plan(options: argparse.Namespace, way: Way) -> tuple[Plan, Path]:
    from benchbench.cli import results_folder
    from benchbench.config import compose

    words = [word for word in options.words if not word.startswith("device=")]
    if not any(word.startswith("mode=") for word in words):
        words.append(f"mode={MODE}")
    words += ["baseline=null", f"device={way.device}"]
    given = {
        "soc": options.soc,
        "cann": options.cann_version,
        "ir_definitions": str(Path(options.op_proto).absolute()) if options.op_proto else None,
    }
    for name, value in given.items():
        if value is None:
            continue
        if way.route == "device":
            raise ConfigError(f"--{name}: on a real NPU its own chip, CANN and IR count")
        words.append(f"device.options.{name}={quote(value)}")
    conf = compose(words, config_dirs=options.config_dir)
    plan = build_plan(conf, overrides=list(options.words), run_id="")
    return plan, results_folder(conf.results_dir)


def _names_model(options: argparse.Namespace) -> bool:
    return any(word.startswith(("model=", "model.")) for word in options.words)


# ---- workers -----------------------------------------------------------------------------------


def job_of(case: Case, plan: Plan, way: Way, **ask: object) -> Job:
    """Return the job that lowers one case."""
    environment = dict(plan.settings.environment)
    if way.route == "approximate":
        environment["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
    return Job(
        kind="coverage",
        case=case,
        policy=plan.policy,
        limits=plan.limits,
        settings=msgspec.structs.replace(plan.settings, start="fresh", environment=environment),
        plugins=plan.plugins,
        search_paths=plan.search_paths,
        ask={"route": way.route, **ask},
    )


def _cover(
    cases: Sequence[Case], plan: Plan, way: Way, results_dir: Path, dump: Path | None
) -> tuple[list[Coverage], Path]:
    """Lower each case in a worker of its own; keep what was found in a folder of results."""
    from benchbench.coverage.text import as_json
    from benchbench.durable import explained, write_atomically

    run_dir = results_dir / new_run_id()
    with explained("create", run_dir):
        (run_dir / "logs").mkdir(parents=True)
    found: list[Coverage] = []
    with Interrupts() as stop, Launcher(stop=stop) as launcher, Progress() as progress:
        for index, case in enumerate(cases, start=1):
            progress.case(index, len(cases), case)
            progress.job("coverage")
            target = None
            if dump is not None:
                target = dump if index == 1 else dump.with_stem(f"{dump.stem}_case{index}")
            job = job_of(case, plan, way, dump=str(target) if target else None)
            found.append(_one(launcher, progress, job, run_dir, way))
            if stop.signum is not None:
                raise KeyboardInterrupt
    write_atomically(run_dir / "coverage.json", as_json(found))
    return found, run_dir


def _one(launcher: Launcher, progress: Progress, job: Job, run_dir: Path, way: Way) -> Coverage:
    name = safe_name(job.case.key)
    log = run_dir / "logs" / f"{name}.log"
    outcome = (run_dir / f"{name}.outcome.json").absolute()
    end = launcher.run_job(job, outcome_path=outcome, log_path=log, on_phase=progress.phase)
    for path in run_dir.glob(f"{name}.outcome*"):
        path.unlink()
    if end.outcome is not None and end.outcome.report is not None:
        found = msgspec.convert(end.outcome.report, Coverage)
    else:
        failure = judge(end).failure
        reason = failure.reason if failure else "the worker left no report"
        hint = f" ({failure.hint})" if failure and failure.hint else ""
        found = Coverage(
            key=job.case.key,
            model=job.case.model,
            route=way.route,
            error=f"{failure.kind if failure else 'failed'} in phase"
            f" {failure.phase if failure else end.phase}: {reason}{hint}; see {log}",
        )
    if way.note:
        found = msgspec.structs.replace(found, notes=[way.note, *found.notes])
    return found


def _skeleton(op: str, case: Case, plan: Plan, way: Way, *, explicit: bool) -> int:
    """Print a converter file for an op, from its schema and the IR that comes nearest."""
    import tempfile

    from benchbench.coverage import skeleton
    from benchbench.npusim import ir_definitions

    name = normal_name(op)
    job = job_of(case, plan, way, skeleton=name, model=explicit)
    with tempfile.TemporaryDirectory() as folder, Launcher() as launcher:
        end = launcher.run_job(
            job,
            outcome_path=Path(folder, "outcome.json"),
            log_path=Path(folder, "log"),
            on_phase=lambda *_: None,
        )
        if end.outcome is None or end.outcome.report is None:
            failure = judge(end).failure
            raise NothingToSayError(
                f"{failure.reason if failure else 'the worker left nothing'}"
                "\n  next: an op of a model of yours needs that model: model=FILE.py"
            )
        schema = msgspec.convert(end.outcome.report, skeleton.Schema)
    package = wheel.package_folder()
    definitions = ir_definitions.of_wheel(package) if package else {}
    config = npusim.decode(plan.settings.environment.get(npusim.CONFIG_VARIABLE))
    if config.ir_definitions:
        definitions |= ir_definitions.parse(config.ir_definitions)
    sys.stdout.write(skeleton.source(schema, skeleton.nearest(schema.op, definitions)))
    return 0


def normal_name(op: str) -> str:
    """Return ``namespace.op.overload`` for the ways in which people write an op's name."""
    parts = op.removeprefix("torch.ops.").replace("::", ".").split(".")
    if len(parts) not in (2, 3) or not all(parts):
        raise ConfigError(
            f"--skeleton {op}: not an op's name\n  accepted: aten.amax.default, bb::my_op"
        )
    return ".".join(parts if len(parts) == 3 else [*parts, "default"])


# ---- the report --------------------------------------------------------------------------------


def _report(found: Sequence[Coverage], options: argparse.Namespace, run_dir: Path) -> None:
    from benchbench.coverage import text
    from benchbench.durable import write_atomically

    data = text.as_json(found)
    if options.json and options.json != "-":
        write_atomically(Path(options.json).absolute(), data)
    if options.markdown:
        write_atomically(Path(options.markdown).absolute(), text.markdown(found).encode())
    if options.json == "-":
        sys.stdout.write(data.decode())
    else:
        sys.stdout.write(text.render(found))
        sys.stdout.write(f"\nkept in {run_dir / 'coverage.json'}\n")
    sys.stdout.flush()


def exit_code(found: Sequence[Coverage]) -> int:
    """Return 0 without a gap, 1 with one, 4 when some model could not be looked at."""
    states = {one.status for one in found}
    if "gaps" in states:
        return EXIT_GAPS
    return EXIT_NOTHING if "failed" in states or not found else 0
