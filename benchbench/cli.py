"""The command line: verbs, usage errors in two or three lines, exit codes.

Everything that is not needed for an error message or ``--help`` is imported inside the function
that needs it: a usage error answers in a fraction of a second.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import io
import json
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from benchbench import __version__
from benchbench.errors import BenchbenchError, ConfigError, did_you_mean, unknown

if TYPE_CHECKING:
    from omegaconf import DictConfig

    from benchbench.compare import View
    from benchbench.early import EarlyServer
    from benchbench.records import Plan
    from benchbench.runner import RunResult
    from benchbench.schema import Conf
    from benchbench.store import RunWriter

COMMAND = "python -m benchbench"
EXIT_INTERRUPTED = 130

VERBS: dict[str, tuple[str, str]] = {
    "run": ("benchbench.cli:run", "measure and compare (the verb when none is given)"),
    "rehearse": ("benchbench.rehearse:main", "the whole run on a simulated NPU: what would fail"),
    "list": ("benchbench.cli:list_names", "what can be selected: models, modes, devices, ..."),
    "coverage": (
        "benchbench.coverage.command:main",
        "which ops of a model enter the Ascend graph, and why the others do not",
    ),
    "diagnose": (
        "benchbench.diagnose.command:main",
        "whose fault it is that a model fails or differs in a mode",
    ),
    "doctor": (
        "benchbench.doctor:main",
        "what is installed, and which devices and modes can run here",
    ),
}
"""Verb -> (module:function taking the words after the verb, one line of help)."""

_HELP = """usage: {command} [VERB] [KEY=VALUE ...]

Compare the ways PyTorch can execute a model: one table with latency, speedup, compile cost,
memory, graph evidence and accuracy.

verbs:
{verbs}

examples:
  {command}                                            tiny llama in four modes
  {command} model=llama mode=max-autotune              against an eager baseline
  {command} 'model=[llama,bert]' 'mode=[eager,inductor]' 'batch_size=[1,8]'
  {command} model=path/to/file.py                      your own model: its function `build`
  {command} model.mine._target_=my_pkg.my_mod.build model.mine.options.depth=4
  {command} 'mode.npugraph_ex.options.frozen_parameter=[false,true]' mode=npugraph_ex
  {command} suite=smoke results_dir=out
  {command} -m device=cpu,cuda                         separate runs by a Hydra launcher

{command} VERB --help tells more; {command} run --cfg job prints the whole configuration.
exit codes: 0 fine, 1 a row failed, 2 usage, 3 regression, 4 nothing to say, 130 interrupted
"""

_RUN_EPILOG = """examples:
  {command} run model=bert 'mode=[inductor,max-autotune]' size=full
  {command} run suite=llm device=npu 'dtype=[float16,bfloat16]'
  {command} run --config-dir my_configs model=mine
  {command} run resume=latest                          only what is missing or failed
  {command} run -m hydra/launcher=joblib model=llama,bert

keys (defaults in configs/config.yaml; --cfg job prints them all):
  model, mode           one name or [a,b]          workload      forward, prefill, decode
  device                auto, npu, cuda, cpu       batch_size    number or [1,8]
  suite                 a named selection          seq_len       number or [64,256]
  baseline              a mode, or null            dtype         float32, float16, bfloat16
  measure.max_time_s    seconds of sampling        limits.timeout_s     seconds per phase
  settings.threads      threads of a worker        results_dir, resume, name, plugins, seed
"""


def main(argv: Sequence[str]) -> int:
    """Run the words of a command line and return the exit code."""
    _never_die_printing()
    try:
        return _dispatch([_decoded(word) for word in argv])
    except BenchbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except BrokenPipeError:
        sys.stdout = io.StringIO()  # the reader is gone: nothing more to say to it
        return 0


def _dispatch(words: list[str]) -> int:
    first = words[0] if words else ""
    if first in ("-h", "--help", "help"):
        lines = "\n".join(f"  {name:<10} {text}" for name, (_, text) in VERBS.items())
        print(_HELP.format(command=COMMAND, verbs=lines), end="")
        return 0
    if first in ("-V", "--version", "version"):
        print(f"benchbench {__version__}")
        return 0
    if first == "" or "=" in first or first.startswith(("-", "~", "+")):
        return _verb("run")(words)
    return _verb(first)(words[1:])


def _verb(name: str) -> Callable[[list[str]], int]:
    if name not in VERBS:
        raise _unknown_verb(name)
    module, _, function = VERBS[name][0].partition(":")
    found: Callable[[list[str]], int] = getattr(importlib.import_module(module), function)
    return found


def _unknown_verb(name: str) -> ConfigError:
    from benchbench.config_files import available

    for group in ("model", "mode", "suite"):
        if name in available(group) and not did_you_mean(name, VERBS):
            return ConfigError(f"'{name}' is no verb\n  next: {COMMAND} {group}={name}")
    return unknown("verb", name, VERBS, next_step=f"{COMMAND} --help, or KEY=VALUE to run")


# ---- run --------------------------------------------------------------------------------------


class _Parser(argparse.ArgumentParser):
    """An argument parser whose errors are ours."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of printing the usage and leaving."""
        raise ConfigError(f"{message}\n  next: {self.prog} --help")


def _run_parser() -> _Parser:
    parser = _Parser(
        prog=f"{COMMAND} run",
        description="Measure the selected models in the selected modes and compare them.",
        epilog=_RUN_EPILOG.format(command=COMMAND),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("words", nargs="*", metavar="KEY=VALUE", help="what to run; see below")
    add("-m", "--multirun", action="store_true", help="separate runs, by a Hydra launcher")
    add("-cd", "--config-dir", action="append", default=[], metavar="DIR",
        help="a folder with model/, mode/, suite/ of your own")  # fmt: skip
    add("-cn", "--config-name", default="config", metavar="NAME", help="another config.yaml")
    add("-c", "--cfg", choices=("job", "hydra", "all"), help="print the configuration and stop")
    add("-p", "--package", help="with --cfg: only this part of it")
    add("-i", "--info", nargs="?", const="all", metavar="WHAT", help="Hydra's own information")
    add("--resolve", action="store_true", help="with --cfg: resolve interpolations")
    return parser


def run(argv: list[str]) -> int:
    """Measure what the overrides ask for, print the table, return the exit code."""
    parser = _run_parser()
    arguments, extra = parser.parse_known_intermixed_args(argv)
    flags = [word for word in extra if word.startswith("-")]
    if flags:
        known = [flag for action in parser._actions for flag in action.option_strings]
        raise ConfigError(
            f"unknown option '{flags[0]}'{did_you_mean(flags[0], known)}\n"
            f"  next: {COMMAND} run --help; settings are KEY=VALUE without dashes"
        )
    words = [*arguments.words, *extra]
    if arguments.multirun or arguments.cfg or arguments.info:
        return _through_hydra(arguments, words)
    from benchbench.early import begin

    with contextlib.ExitStack() as stack:
        early = begin(words)
        if early is not None:
            stack.enter_context(early)
        return _measure(arguments, words, early)


def _measure(arguments: argparse.Namespace, words: list[str], early: EarlyServer | None) -> int:
    import msgspec

    from benchbench.config import compose
    from benchbench.plan import build_plan, new_run_id

    conf = compose(words, config_dirs=arguments.config_dir, config_name=arguments.config_name)
    flags = [f"--config-dir={folder}" for folder in arguments.config_dir]
    plan = build_plan(conf, overrides=_as_typed([*flags, *words], conf), run_id="")
    # Only now: asking git may take a while, and a usage error should not wait for it.
    plan = msgspec.structs.replace(plan, run_id=new_run_id())
    return execute(conf, plan, early).exit_code


def results_folder(value: str | None) -> Path:
    """Return the results folder: what was given, else ``BENCHBENCH_RESULTS``, else ``results``."""
    return Path(value or os.environ.get("BENCHBENCH_RESULTS") or "results").expanduser()


def execute(conf: Conf, plan: Plan, early: EarlyServer | None = None) -> RunResult:
    """Run a plan, print its table and keep it beside the records.

    A first Ctrl-C or SIGTERM, also one that comes while the table is written, lets this finish.
    """
    from benchbench.assemble import exit_code
    from benchbench.interrupts import Interrupts
    from benchbench.progress import Progress
    from benchbench.runner import run_plan
    from benchbench.store import RunWriter

    with Interrupts() as stop:
        result = run_plan(
            plan,
            results_dir=results_folder(conf.results_dir),
            progress=Progress(),
            resume=conf.resume,
            stop=stop,
            early=early,
        )
        view = view_of([result.run_dir])
        _keep_tables(view, RunWriter(result.run_dir, plan))
        _print_table(view)
        return dataclasses.replace(result, exit_code=exit_code(result.records, stop.signum))


def view_of(run_dirs: Sequence[Path]) -> View:
    """Return the rows of one or more runs in one view, each compared inside its own run."""
    from benchbench import compare
    from benchbench.store import load_run

    views = []
    for run_dir in run_dirs:
        run = load_run(run_dir)
        baseline = run.plan.baseline if run.plan else "eager"
        views.append(
            compare.view(
                run.records,
                baseline=baseline,
                plan=run.plan,
                run_dir=str(run_dir),
                damage=run.damage,
                width=_terminal_width(),
            )
        )
    if len(views) == 1:
        return views[0]
    rows = tuple(row for view in views for row in view.rows)
    return compare.View(
        run_id=f"{len(views)} runs",
        baseline=views[0].baseline,
        rows=rows,
        summary=compare.summary(rows),
        run_dir=str(run_dirs[0].parent),
        damage=tuple(text for view in views for text in view.damage),
        width=_terminal_width(),
    )


def _keep_tables(view: View, writer: RunWriter) -> None:
    """Write the table as Markdown and CSV: always UTF-8, and never a half-written file."""
    from benchbench.reporters import csv_table, markdown

    writer.write_text("table.md", markdown.render(view))
    writer.write_text("table.csv", csv_table.render(view))


def _print_table(view: View) -> None:
    from benchbench.reporters import terminal

    print(terminal.render(view), end="", flush=True)


def _terminal_width() -> int | None:
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


# ---- separate runs, by Hydra ------------------------------------------------------------------

_EXIT_FILE = "exit_codes.jsonl"
_CHECKED_JOBS = 16


def _through_hydra(arguments: argparse.Namespace, words: list[str]) -> int:
    """Let Hydra itself print the configuration, or start one run per combination."""
    import hydra

    from benchbench import config, paths
    from benchbench.overrides import quote, translate
    from benchbench.plan import auto_device

    translation = translate(
        words,
        config_dirs=arguments.config_dir,
        multirun=arguments.multirun,
        device_kind=auto_device,
    )
    overrides = list(translation.overrides)
    sweep_dir = None
    if arguments.multirun:
        results = _check_jobs(overrides, translation, arguments.config_name)
        stamp = f"{datetime.now(timezone.utc):%Y%m%dT%H%M%SZ}_{secrets.token_hex(2)}"
        sweep_dir = results.absolute() / ".multirun" / stamp
        overrides.append(f"hydra.sweep.dir={quote(str(sweep_dir))}")
        sweep_dir.mkdir(parents=True, exist_ok=True)
    config.register(translation)
    decorated = hydra.main(
        version_base=config.VERSION_BASE,
        config_path=str(paths.shipped("configs")),
        config_name=arguments.config_name,
    )(run_job)
    with _argv([COMMAND, *_hydra_flags(arguments), *overrides]):
        try:
            decorated()
        except SystemExit as left:
            return 2 if left.code not in (0, None) else 0
    return 0 if sweep_dir is None else _finish_sweep(sweep_dir)


def _hydra_flags(arguments: argparse.Namespace) -> Iterator[str]:
    if arguments.multirun:
        yield "--multirun"
    for name in ("cfg", "package", "info"):
        value = getattr(arguments, name)
        if value:
            yield f"--{name}={value}"
    if arguments.resolve:
        yield "--resolve"


def _check_jobs(overrides: list[str], translation: Any, config_name: str) -> Path:
    """Compose and plan the first jobs of a sweep, so that mistakes end before anything starts."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from benchbench.config import compose_translated
    from benchbench.plan import build_plan

    parsed = OverridesParser.create().parse_overrides(overrides)
    jobs = [job for batch in BasicSweeper.split_arguments(parsed, None) for job in batch]
    folder = results_folder(None)
    for job in jobs[:_CHECKED_JOBS]:
        plain = [word for word in job if not word.lstrip("+").startswith("hydra/")]
        conf = compose_translated(
            dataclasses.replace(translation, overrides=plain), config_name=config_name
        )
        build_plan(conf, overrides=plain, run_id="check")
        folder = results_folder(conf.results_dir)
    return folder


def run_job(composed: DictConfig) -> None:
    """Run one job of a sweep; its exit code goes into a file that the sweep's starter reads."""
    from hydra.core.hydra_config import HydraConfig

    from benchbench.config import finish
    from benchbench.plan import build_plan, new_run_id

    _never_die_printing()
    sweep_dir = HydraConfig.get().sweep.dir
    entry: dict[str, Any] = {"exit_code": 2}
    try:
        conf = finish(composed)
        overrides = _as_typed(list(HydraConfig.get().overrides.task), conf)
        plan = build_plan(conf, overrides=overrides, run_id=new_run_id())
        result = execute(conf, plan)
        entry = {"exit_code": result.exit_code, "run_dir": str(result.run_dir)}
    except BenchbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        entry["exit_code"] = error.exit_code
    line = json.dumps(entry, ensure_ascii=False) + "\n"
    with (Path(sweep_dir) / _EXIT_FILE).open("ab", buffering=0) as file:
        file.write(line.encode("utf-8"))


def _as_typed(overrides: list[str], conf: Conf) -> list[str]:
    """Return overrides as somebody would type them to repeat one case of a run."""
    plain = [word.lstrip("+") for word in overrides]
    # A file given as model=FILE.py keeps its target, which the model's name alone would not tell.
    typed = [word for word in plain if not word.startswith(("origin.", "hydra"))]
    for group, entries in (("model", conf.model), ("mode", conf.mode)):
        for name, entry in entries.items():
            target = f"{group}.{name}._target_="
            if f"{group}.{name}" not in conf.origin.files and not any(
                word.startswith(target) for word in typed
            ):
                typed.append(f"{target}{entry._target_}")
    return typed


def _finish_sweep(sweep_dir: Path) -> int:
    """Print the rows of all jobs in one table and return one exit code."""
    file = sweep_dir / _EXIT_FILE
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    entries = [json.loads(line) for line in lines]
    run_dirs = [Path(entry["run_dir"]) for entry in entries if "run_dir" in entry]
    if len(run_dirs) > 1:
        print(f"\nall {len(run_dirs)} runs:\n")
        _print_table(view_of(run_dirs))
    return joint_exit_code([entry["exit_code"] for entry in entries])


def joint_exit_code(codes: Sequence[int]) -> int:
    """Return the exit code of several runs: an interrupt, a failure, or what they agree on."""
    for code in (EXIT_INTERRUPTED, 143, 2, 1, 3):
        if code in codes:
            return code
    return 0 if 0 in codes else 4


@contextlib.contextmanager
def _argv(words: list[str]) -> Iterator[None]:
    """Give Hydra the command line that it reads by itself."""
    before = sys.argv
    sys.argv = words
    try:
        yield
    finally:
        sys.argv = before


# ---- list -------------------------------------------------------------------------------------

_LISTS = {"models": "model", "modes": "mode", "devices": "device", "suites": "suite"}


def list_names(argv: list[str]) -> int:
    """Print what can be selected, one line each."""
    parser = _Parser(
        prog=f"{COMMAND} list",
        description="Print what can be selected, one line each.",
        epilog=f"examples:\n  {COMMAND} list models\n"
        f"  {COMMAND} list modes --config-dir my_configs\n"
        f"  {COMMAND} list converters --json",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = [*_LISTS, "converters"]
    parser.add_argument(
        "kind", nargs="?", metavar="|".join(kinds), help="what to list; all without"
    )
    parser.add_argument("-cd", "--config-dir", action="append", default=[], metavar="DIR")
    parser.add_argument("--json", action="store_true", help="a JSON list instead of a table")
    arguments = parser.parse_args(argv)
    kind = arguments.kind
    if kind is not None and kind not in kinds and f"{kind}s" in kinds:
        kind = f"{kind}s"
    if kind is not None and kind not in kinds:
        raise unknown("list", kind, kinds, next_step=f"{COMMAND} list models")
    listed = {name: _entries(name, arguments.config_dir) for name in ([kind] if kind else kinds)}
    if arguments.json:
        print(json.dumps(listed[kind] if kind else listed, ensure_ascii=False, indent=2))
        return 0
    for name, entries in listed.items():
        if kind is None:
            print(f"{name}:")
        _print_entries(entries, indent="" if kind else "  ")
    return 0


def _entries(kind: str, config_dirs: list[str]) -> list[dict[str, Any]]:
    from benchbench import config_files, paths

    if kind == "converters":
        found = sorted(paths.shipped("converters").glob("*.py"))
        return [
            {"name": path.stem, "description": config_files.docstring(path)}
            for path in found
            if not path.stem.startswith("_")
        ]
    folders = [str(Path(folder).expanduser().absolute()) for folder in config_dirs]
    for folder in folders:
        if not Path(folder).is_dir():
            raise ConfigError(f"no such folder of configurations: {folder}")
    entries = []
    for name, path in config_files.available(_LISTS[kind], folders).items():
        content = config_files.load_yaml(path)
        entry: dict[str, Any] = {"name": name, "description": config_files.describe(path, content)}
        if kind == "models":
            entry["sizes"] = list(content.get("sizes") or [])
            entry["workloads"] = content.get("workloads", ["forward"])
        entries.append(entry)
    return entries


def _print_entries(entries: list[dict[str, Any]], *, indent: str) -> None:
    from wcwidth import wcswidth

    widths = [max(wcswidth(entry["name"]), 0) for entry in entries]
    for entry, width in zip(entries, widths, strict=True):
        more = "; ".join(
            f"{key}: {', '.join(map(str, entry[key]))}"
            for key in ("sizes", "workloads")
            if entry.get(key)
        )
        text = entry["description"] + (f" ({more})" if more else "")
        print(f"{indent}{entry['name']}{' ' * (max(widths) - width)}  {text}".rstrip())
    if not entries:
        print(f"{indent}(none)")


# ---- streams ----------------------------------------------------------------------------------


def _never_die_printing() -> None:
    """Let a terminal that cannot show a sign get an escape for it (an ASCII locale)."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def _decoded(word: str) -> str:
    """Return a word as UTF-8 text, whatever the locale made of its bytes."""
    try:
        return os.fsencode(word).decode("utf-8")
    except UnicodeError:
        raise ConfigError(
            f"{word.encode('utf-8', 'backslashreplace').decode()}: not UTF-8"
        ) from None
