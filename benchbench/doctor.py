"""What is installed here, and what can run: for each device and mode that cannot, reason and fix.

Looks at files, packages and the clock; never imports torch (with ``--deep`` a process of its own
does). Exit code 0 when at least one device can run, 4 when none can.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from benchbench import __version__, config_files, devices, interference, loading, measure
from benchbench import format as text
from benchbench.devices.npu import no_cann
from benchbench.environment import cpu_facts, memory_bytes, spoiling_variables
from benchbench.errors import BenchbenchError
from benchbench.records import Target

PACKAGES = (
    "torch",
    "torch_npu",
    "torchair",
    "transformers",
    "triton",
    "triton-ascend",
    "numpy",
    "hydra-core",
    "msgspec",
    "pandas",
    "pyarrow",
)
NOT_INSTALLED = "not installed"

# One read above this, and timings of single calls are dominated by the clock.
SLOW_CLOCK_S = 1e-6
_COMPILER_LIMIT_S = 60.0
_TORCH_LIMIT_S = 120.0
_LEAST_FREE_BYTES = 2**30

_ASK_TORCH = """
import json, time
begin = time.perf_counter()
import torch
print(json.dumps({
    "version": torch.__version__,
    "seconds": time.perf_counter() - begin,
    "threads": torch.get_num_threads(),
    "cuda": torch.cuda.is_available(),
}))
"""


class Compiler(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The C++ compiler that inductor would use on a CPU."""

    command: str
    version: str | None = None
    problem: str | None = None
    """Why it does not work, and what to do; absent when it does."""


class DeviceState(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One kind of device, and what each mode says to it."""

    kind: str
    problem: str | None = None
    modes: dict[str, str | None] = {}
    """Mode -> why it cannot run there (``null`` when it can)."""


class Clock(msgspec.Struct, frozen=True, kw_only=True):
    """The clock that timings are read from."""

    name: str
    read_s: float
    resolution_s: float


class Host(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The machine, as far as it moves numbers."""

    cpu: str | None = None
    logical_cores: int | None = None
    usable_cores: int | None = None
    governor: str | None = None
    load_average: float | None = None
    memory_bytes: int | None = None
    available_bytes: int | None = None
    cgroup_memory_bytes: int | None = None
    cgroup_cpus: str | None = None


class Disk(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where results go."""

    path: str
    free_bytes: int | None = None
    problem: str | None = None


class Torch(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a process that imports torch says (``--deep``)."""

    version: str | None = None
    seconds: float | None = None
    threads: int | None = None
    cuda: bool | None = None
    problem: str | None = None


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Everything that doctor found out."""

    benchbench: str
    python: str
    packages: dict[str, str]
    compiler: Compiler
    devices: list[DeviceState]
    clock: Clock
    host: Host
    disk: Disk
    problems: list[str] = []
    """What spoils numbers or runs here, one sentence with its fix each."""
    torch: Torch | None = None

    @property
    def exit_code(self) -> int:
        """0 when at least one device can run, else 4."""
        return 0 if any(state.problem is None for state in self.devices) else 4


def main(words: Sequence[str]) -> int:
    """Print the report for the words after ``doctor`` and return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m benchbench doctor",
        description="What is installed, and which devices and modes can run here.",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--deep", action="store_true", help="import torch in another process, too")
    parser.add_argument(
        "--noise",
        action="store_true",
        help="measure how noisy this host is, for about two minutes, and keep it",
    )
    parser.add_argument(
        "--results-dir",
        type=Path,
        default=Path(os.environ.get("BENCHBENCH_RESULTS", "results")),
        help="the folder that results would go to",
    )
    options = parser.parse_args(list(words))
    if options.noise:
        return measure_noise(as_json=options.json)
    report = examine(options.results_dir, deep=options.deep)
    sys.stdout.write(to_json(report) if options.json else render(report))
    sys.stdout.flush()
    return report.exit_code


def measure_noise(*, as_json: bool) -> int:
    """Measure and keep the noise of this host, print it, and return the exit code."""
    from benchbench import device_lock, noise

    def say(text: str) -> None:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()

    with device_lock.held("cpu", "doctor --noise", say=say, stopped=lambda: False):
        found = noise.measure(say=say)
    kept = noise.keep(found)
    if as_json:
        sys.stdout.write(msgspec.json.encode(found).decode() + "\n")
    else:
        sys.stdout.write("\n".join([*found.lines(), f"  kept in {kept}"]) + "\n")
    return 0


def examine(results_dir: Path, *, deep: bool = False) -> Report:
    """Look at this machine and installation; takes well under a second without ``deep``."""
    packages = {name: _version(name) for name in PACKAGES}
    compiler = check_compiler()
    states = [_device_state(kind, compiler) for kind in devices.KINDS]
    clock = check_clock()
    host = look_at_host()
    disk = check_disk(results_dir)
    torch = ask_torch() if deep else None
    problems = _problems(packages, compiler, clock, host, disk, torch)
    return Report(
        benchbench=__version__,
        python=f"{platform.python_version()} ({sys.executable})",
        packages=packages,
        compiler=compiler,
        devices=states,
        clock=clock,
        host=host,
        disk=disk,
        problems=problems,
        torch=torch,
    )


# ---- what is here -----------------------------------------------------------------------------


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        pass
    # torchair is a part of torch_npu's wheel and has no version of its own.
    if package == "torchair" and _inside("torch_npu", "dynamo", "torchair"):
        return f"inside torch_npu {_version('torch_npu')}"
    return NOT_INSTALLED


def _inside(package: str, *parts: str) -> bool:
    spec = importlib.util.find_spec(package)  # finds without importing a top-level package
    folders = spec.submodule_search_locations if spec else None
    return any(Path(folder).joinpath(*parts).is_dir() for folder in folders or ())


def _device_state(kind: str, compiler: Compiler) -> DeviceState:
    files = config_files.available("mode")
    modes = {name: _mode_problem(name, path, kind, compiler) for name, path in files.items()}
    return DeviceState(kind=kind, problem=devices.device(kind).unavailable(), modes=modes)


def _mode_problem(name: str, path: Path, kind: str, compiler: Compiler) -> str | None:
    """Return why a mode with its default options cannot run on a kind of device."""
    try:
        content = config_files.load_yaml(path)
        options = {key: value for key, value in content.items() if key != "_target_"}
        target = Target(path=str(content["_target_"]), options={"name": name, **options})
        mode = loading.build_mode(target)
        problem = mode.unavailable(kind)
        if problem is None and kind == "cpu" and "inductor" in mode.backend(kind):
            return compiler.problem and f"C++ compiler {compiler.command}: {compiler.problem}"
        return problem
    except KeyError:
        return f"{path} names no _target_"
    except BenchbenchError as error:
        return str(error).splitlines()[0]


def check_compiler(command: str | None = None) -> Compiler:
    """Compile a program of one line with ``CXX`` or the first compiler found, and run it."""
    command = command or os.environ.get("CXX") or shutil.which("g++") or shutil.which("clang++")
    fix = "install g++ (Debian: apt install g++), or set CXX; CPU modes that compile need it"
    if not command:
        return Compiler(command="none", problem=f"no C++ compiler found: {fix}")
    words = shlex.split(command)
    with tempfile.TemporaryDirectory(prefix="benchbench-") as folder:
        source, program = Path(folder, "a.cpp"), Path(folder, "a.out")
        source.write_text("#include <cmath>\nint main() { return std::sqrt(49.0) == 7 ? 0 : 1; }\n")
        try:
            version = _output([*words, "--version"]).splitlines()
            _output([*words, str(source), "-o", str(program)])
            _output([str(program)])
        except subprocess.CalledProcessError as error:
            said = (error.stdout or "").strip().splitlines()
            detail = said[-1] if said else f"exit code {error.returncode}"
            return Compiler(command=command, problem=f"does not work ({text.clean(detail)}): {fix}")
        except (OSError, subprocess.TimeoutExpired) as error:
            return Compiler(command=command, problem=f"does not start ({error}): {fix}")
    return Compiler(command=command, version=version[0] if version else "unknown")


def _output(command: list[str]) -> str:
    """Return what a command prints; raises for a failure or one that takes too long."""
    done = subprocess.run(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=_COMPILER_LIMIT_S,
        check=True,
        encoding="utf-8",
        errors="replace",
    )
    return done.stdout


def check_clock() -> Clock:
    """Measure the clock with the reads that timing uses."""
    check = measure.self_check()
    return Clock(name="perf_counter_ns", read_s=check.read_s, resolution_s=check.resolution_s)


def look_at_host() -> Host:
    """Return the facts about this machine; what is not known is absent."""
    cpu = cpu_facts()
    return Host(
        cpu=cpu.get("model"),
        logical_cores=cpu.get("logical"),
        usable_cores=cpu.get("usable_cores"),
        governor=cpu.get("governor"),
        load_average=interference.load_average(),
        memory_bytes=memory_bytes(),
        available_bytes=_available_bytes(),
        cgroup_memory_bytes=_cgroup_memory(),
        cgroup_cpus=_cgroup_cpus(),
    )


def _available_bytes() -> int | None:
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return None


def _cgroup_memory() -> int | None:
    """Return the smallest memory limit of our control group and its parents."""
    limits = [
        int(value)
        for folder in interference.cgroup_folders("memory")
        for name in ("memory.max", "memory.limit_in_bytes")
        if (value := _content(folder / name)).isdigit()
    ]
    real = [limit for limit in limits if limit < 2**60]  # version 1 writes "no limit" as a number
    return min(real, default=None)


def _cgroup_cpus() -> str | None:
    for folder in interference.cgroup_folders("cpu"):
        quota, _, period = _content(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            return f"{text.significant(int(quota) / int(period), 2)} cores"
    return None


def _content(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except OSError:
        return ""


def check_disk(results_dir: Path) -> Disk:
    """Say whether results can be written; creates nothing that stays."""
    path = results_dir.absolute()
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    fix = "choose another folder with results_dir=DIR"
    if not nearest.is_dir():
        return Disk(path=str(path), problem=f"{nearest} is a file: {fix}")
    free = shutil.disk_usage(nearest).free
    try:
        with tempfile.TemporaryFile(dir=nearest) as file:
            file.write(b"benchbench")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        problem = f"cannot be written ({error.strerror or error}): {fix}"
        return Disk(path=str(path), free_bytes=free, problem=problem)
    return Disk(path=str(path), free_bytes=free)


def ask_torch() -> Torch:
    """Import torch in a process of its own, with our settings of a CPU worker."""
    variables = devices.device("cpu").worker_environment(1)
    try:
        done = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TORCH_LIMIT_S,
            check=False,
            encoding="utf-8",
            errors="replace",
            env=os.environ | variables,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Torch(problem=f"import torch does not end: {error}")
    last = (done.stdout.strip().splitlines() or [""])[-1]
    if done.returncode == 0:
        try:
            return msgspec.json.decode(last, type=Torch)
        except msgspec.DecodeError:
            return Torch(problem=f"import torch says something odd: {text.clean(last)}")
    said = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
    return Torch(problem=f"import torch fails: {text.clean(said[-1])}")


# ---- what is wrong -------------------------------------------------------------------------------


def _problems(
    packages: dict[str, str],
    compiler: Compiler,
    clock: Clock,
    host: Host,
    disk: Disk,
    torch: Torch | None,
) -> list[str]:
    found = [*_missing_packages(packages)]
    if compiler.problem:
        found.append(f"C++ compiler {compiler.command}: {compiler.problem}")
    found += _noise_sources(clock, host)
    if disk.problem:
        found.append(f"results folder {disk.path}: {disk.problem}")
    elif disk.free_bytes is not None and disk.free_bytes < _LEAST_FREE_BYTES:
        found.append(f"only {text.byte_size(disk.free_bytes)} free for {disk.path}: make room")
    if torch is not None and torch.problem:
        found.append(torch.problem)
    return found + spoiling_variables(os.environ, {})


def _missing_packages(packages: dict[str, str]) -> Iterator[str]:
    if packages["torch"] == NOT_INSTALLED:
        yield "torch is not installed: pip install torch"
    if packages["torch_npu"] != NOT_INSTALLED and (reason := no_cann()):
        yield reason


def _noise_sources(clock: Clock, host: Host) -> Iterator[str]:
    if clock.read_s > SLOW_CLOCK_S:
        yield (
            f"one clock read takes {text.seconds(clock.read_s)}: the kernel's clock source is slow "
            "(see /sys/devices/system/clocksource); short calls are timed in batches"
        )
    if host.load_average is not None and host.load_average > 0.5 * (host.usable_cores or 1):
        yield (
            f"load average {host.load_average:.1f} on {host.usable_cores} usable cores: other "
            "programs will disturb timings; wait or stop them"
        )
    if host.governor not in (None, "performance"):
        yield (
            f"CPU governor {host.governor}: clocks change under load; cpupower frequency-set "
            "-g performance"
        )


# ---- as text and as JSON -------------------------------------------------------------------------


def to_json(report: Report) -> str:
    """Return the report as strict JSON with a newline at its end."""
    return msgspec.json.format(msgspec.json.encode(report)).decode() + "\n"


def render(report: Report) -> str:
    """Return the report for people: what can run first, what is wrong last."""
    lines = [f"benchbench {report.benchbench}, Python {report.python}", ""]
    lines += _device_lines(report)
    lines += ["", "packages:"]
    lines += [f"  {name:<14} {version}" for name, version in report.packages.items()]
    compiler = report.compiler
    lines.append(f"  {'C++ compiler':<14} {compiler.version or compiler.problem}")
    lines += ["", *_machine_lines(report)]
    if report.torch is not None:
        lines += ["", _torch_line(report.torch)]
    lines.append("")
    lines += [f"problem: {text.clean(problem)}" for problem in report.problems] or ["no problems"]
    return "\n".join(lines) + "\n"


def _device_lines(report: Report) -> list[str]:
    lines = ["devices:"]
    for state in report.devices:
        lines += _wrapped(state.kind, text.clean(state.problem) if state.problem else "can run", 2)
        if state.problem:
            continue
        for mode, problem in state.modes.items():
            lines += _wrapped(mode, text.clean(problem) if problem else "can run", 4)
    return lines


def _wrapped(name: str, said: str, indent: int) -> list[str]:
    start = f"{' ' * indent}{name:<{30 - indent}}"
    return textwrap.wrap(
        said, 100, initial_indent=start, subsequent_indent=" " * 30, break_long_words=False
    )


def _machine_lines(report: Report) -> list[str]:
    host, clock, disk = report.host, report.clock, report.disk
    memory = text.byte_size(host.memory_bytes) if host.memory_bytes else "unknown"
    available = text.byte_size(host.available_bytes) if host.available_bytes else "unknown"
    limit = text.byte_size(host.cgroup_memory_bytes) if host.cgroup_memory_bytes else "none"
    load = "unknown" if host.load_average is None else f"{host.load_average:.2f}"
    free = text.byte_size(disk.free_bytes) if disk.free_bytes is not None else "unknown"
    return [
        "machine:",
        f"  CPU            {host.cpu or 'unknown'}",
        f"  cores          {host.usable_cores or 'unknown'} usable of "
        f"{host.logical_cores or 'unknown'} logical; limit of the control group: "
        f"{host.cgroup_cpus or 'none'}",
        f"  load average   {load}",
        f"  memory         {memory}, {available} available; limit of the control group: {limit}",
        f"  clock          {clock.name}: one read {text.seconds(clock.read_s)}, "
        f"resolution {text.seconds(clock.resolution_s)}",
        f"  results        {disk.path}: {disk.problem or f'can be written, {free} free'}",
    ]


def _torch_line(torch: Torch) -> str:
    if torch.problem:
        return f"torch: {text.clean(torch.problem)}"
    took = text.seconds(torch.seconds) if torch.seconds is not None else "unknown"
    return f"torch: {torch.version} imports in {took}; CUDA {'yes' if torch.cuda else 'no'}"
