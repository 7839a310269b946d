"""What the host did to this process, and what this process cost: readings of /proc and getrusage.

Every reading is optional: a file that is not there (another kernel, a container, macOS) leaves its
figure out. Torch-free and cheap: one reading is a few hundred microseconds, outside timed spans.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

from benchbench.records import Interference

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """Counters at one moment; two of them make an ``Interference``."""

    wall_ns: int
    thread_cpu_ns: int
    waiting_ns: int | None
    involuntary_switches: int | None
    major_faults: int | None
    pressure_us: int | None
    throttled_s: float | None
    steal_s: float | None


def read() -> Reading:
    """Return the counters of this moment, for the calling thread and for the host."""
    usage = resource.getrusage(resource.RUSAGE_SELF) if resource else None
    return Reading(
        wall_ns=time.perf_counter_ns(),
        thread_cpu_ns=time.thread_time_ns(),
        waiting_ns=_waiting_ns(),
        involuntary_switches=usage.ru_nivcsw if usage else None,
        major_faults=usage.ru_majflt if usage else None,
        pressure_us=_pressure_us(),
        throttled_s=_throttled_s(),
        steal_s=_steal_s(),
    )


def between(before: Reading, after: Reading) -> Interference:
    """Return what happened from one reading to the next one of the same thread."""
    wall = (after.wall_ns - before.wall_ns) / 1e9
    if wall <= 0:
        return Interference()
    waiting = _difference(before.waiting_ns, after.waiting_ns)
    pressure = _difference(before.pressure_us, after.pressure_us)
    switches = _difference(before.involuntary_switches, after.involuntary_switches)
    faults = _difference(before.major_faults, after.major_faults)
    return Interference(
        cpu_over_wall=(after.thread_cpu_ns - before.thread_cpu_ns) / 1e9 / wall,
        wait_over_wall=None if waiting is None else waiting / 1e9 / wall,
        involuntary_switches=None if switches is None else int(switches),
        major_faults=None if faults is None else int(faults),
        load_average=load_average(),
        cpu_pressure=None if pressure is None else pressure / 1e6 / wall,
        throttled_s=_difference(before.throttled_s, after.throttled_s),
        steal_s=_difference(before.steal_s, after.steal_s),
    )


def load_average() -> float | None:
    """Return the load average of the last minute."""
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and of its children, the living ones included.

    Compilers run in child processes, and those of a pool are not waited for while they live, so
    the accounting of finished children alone would miss them.
    """
    times = os.times()
    own = time.process_time() + times.children_user + times.children_system
    return own + sum(_process_cpu_s(fields) for fields in _descendants(os.getpid()))


def _descendants(root: int) -> Iterator[list[str]]:
    """Yield the ``/proc/PID/stat`` fields after the name, of every process below ``root``."""
    by_parent: dict[int, list[tuple[int, list[str]]]] = {}
    for folder in PROC.glob("[0-9]*"):
        text = _text(folder / "stat")
        if text is None:
            continue
        # The name is in parentheses and may hold anything, parentheses and spaces included.
        fields = text.rpartition(")")[2].split()
        by_parent.setdefault(int(fields[1]), []).append((int(folder.name), fields))
    waiting = [root]
    while waiting:
        for pid, fields in by_parent.get(waiting.pop(), []):
            waiting.append(pid)
            yield fields


def _process_cpu_s(fields: list[str]) -> float:
    ticks = sum(int(value) for value in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _waiting_ns() -> int | None:
    """Return the nanoseconds that this thread was ready to run and had no core."""
    text = _text(PROC / "thread-self" / "schedstat")
    fields = text.split() if text else []
    return int(fields[1]) if len(fields) > 1 else None


def _pressure_us() -> int | None:
    text = _text(PROC / "pressure" / "cpu")
    for line in (text or "").splitlines():
        if line.startswith("some"):
            return int(line.rpartition("total=")[2])
    return None


def _steal_s() -> float | None:
    text = _text(PROC / "stat")
    fields = text.splitlines()[0].split() if text else []
    return int(fields[8]) / os.sysconf("SC_CLK_TCK") if len(fields) > 8 else None


def _throttled_s() -> float | None:
    """Return the seconds for which the CPU quota of our control group has stopped us."""
    for folder in cgroup_folders("cpu"):
        for line in (_text(folder / "cpu.stat") or "").splitlines():
            name, _, value = line.partition(" ")
            if name == "throttled_usec":
                return int(value) / 1e6
            if name == "throttled_time":
                return int(value) / 1e9
    return None


def cgroup_folders(controller: str) -> list[Path]:
    """Return the folders of our control group for a controller, ours first, then its parents."""
    found: list[Path] = []
    for line in (_text(PROC / "self" / "cgroup") or "").splitlines():
        _, names, path = line.split(":", 2)
        if names and controller not in names.split(","):
            continue
        root = CGROUP / controller if names else CGROUP
        folder = root / path.lstrip("/")
        found += [where for where in (folder, *folder.parents) if where.is_relative_to(root)]
    return [folder for folder in found if folder.is_dir()]


def _difference(before: float | None, after: float | None) -> float | None:
    return None if before is None or after is None else after - before


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
