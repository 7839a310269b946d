"""Record a pool of processes for the study of verdicts.

    python benchmarks/verdicts/record.py POOL_DIR [--duets 40] [--singles 12] [--load]

For each workload: duet processes of the workload against itself (A/A) and against itself slowed by
2, 5 and 10 %, in random order, and pairs of single processes one after the other, for the rules
that other tools use. With ``--load`` two processes that do nothing but compute run beside them.
Each process is a worker as in a run. Raw readings go to POOL_DIR/*.json, in int64 nanoseconds; the
hash of the rule that is in force goes to POOL_DIR/rule.json.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from benchbench.ending import judge
from benchbench.process import Launcher
from benchbench.records import (
    Case,
    ComparisonPolicy,
    Job,
    Limits,
    Settings,
    Target,
    TimingPolicy,
)

HERE = Path(__file__).resolve().parent
WORKLOADS = ("encoder", "convolution", "dense")
EFFECTS = (0, 2, 5, 10)
BUSY = "while True: sum(range(10000))"
RULE_FILES = ("verdicts.py", "duet.py", "comparison.py")


def rule_hash() -> str:
    """Return the hash of everything that decides a verdict."""
    import hashlib

    import benchbench

    folder = Path(benchbench.__file__).parent
    digest = hashlib.sha256()
    for name in RULE_FILES:
        digest.update((folder / name).read_bytes())
    return digest.hexdigest()[:16]


def make_case(workload: str, extra: int, label: str) -> Case:
    """Return the case of a workload slowed by ``extra`` small products."""
    return Case(
        key=f"{workload}/{label}",
        group=workload,
        model=workload,
        model_target=Target(path=f"{HERE / 'workloads.py'}:{workload}", options={"extra": extra}),
        mode="eager",
        mode_target=Target(path="benchbench.modes.eager.Eager", options={"name": "eager"}),
        device="cpu",
        workload="forward",
        dtype="float32",
        batch_size=1,
    )


class Pool:
    """Runs jobs and keeps what they read."""

    def __init__(self, folder: Path, launcher: Launcher) -> None:
        self.folder = folder
        self.launcher = launcher
        self.number = 0

    def run(self, kind: Any, case: Case, partner: Case | None = None, turn: int = 0) -> Any:
        """Run one worker; return its measurement."""
        self.number += 1
        job = Job(
            kind=kind,
            case=case,
            partner=partner,
            policy=TimingPolicy(warm_compile=False),
            comparison=ComparisonPolicy(),
            round=turn,
            limits=Limits(),
            settings=Settings(),
            accuracy=False,
        )
        end = self.launcher.run_job(
            job,
            outcome_path=self.folder / "outcome.json",
            log_path=self.folder / "log.txt",
            on_phase=lambda *_: None,
        )
        found = judge(end)
        if found.measurement is None or found.status != "ok":
            raise SystemExit(f"{case.key}: {found.failure}")
        return found.measurement

    def keep(self, name: str, value: Any) -> None:
        """Write one reading."""
        (self.folder / f"{name}.json").write_text(json.dumps(value), encoding="utf-8")


def median_ns(pool: Pool, case: Case) -> float:
    """Return the median nanoseconds of one call, from one process."""
    import statistics

    part = pool.run("measure", case).samples[-1]
    return statistics.median(part.duration_ns) / part.calls_per_sample


def calibrate(pool: Pool, workload: str) -> dict[int, int]:
    """Return per effect (per cent) how many extra products make it, by duets with itself."""
    base = median_ns(pool, make_case(workload, 0, "base"))
    many = 100
    paired = pool.run(
        "duet", make_case(workload, many, "slow"), partner=make_case(workload, 0, "base")
    ).paired
    one = (2.718281828459045**-paired.log_ratio - 1) / many
    extras = {effect: round(effect / 100 / one) for effect in EFFECTS}
    print(f"{workload}: {base / 1e6:.2f} ms, one product {one:.4%}, extras {extras}", flush=True)
    return extras


@contextlib.contextmanager
def neighbours(number: int) -> Iterator[None]:
    """Run so many processes beside us that only compute."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main() -> None:
    """Record a pool."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--duets", type=int, default=40, help="A/A processes per workload")
    parser.add_argument("--singles", type=int, default=12, help="single processes per arm")
    parser.add_argument("--workloads", default=",".join(WORKLOADS))
    parser.add_argument("--load", action="store_true", help="with two busy neighbours")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    order = random.Random(time.time_ns())
    rule = {"rule": rule_hash(), "started": time.time(), "load": given.load}
    (given.folder / "rule.json").write_text(json.dumps(rule), encoding="utf-8")
    with Launcher() as launcher:
        pool = Pool(given.folder, launcher)
        extras = {name: calibrate(pool, name) for name in given.workloads.split(",")}
        todo = [
            (name, effect, number)
            for name in extras
            for effect in EFFECTS
            for number in range(given.duets if effect == 0 else given.duets // 2)
        ]
        order.shuffle(todo)
        with neighbours(2 if given.load else 0):
            for name, effect, number in todo:
                case = make_case(name, extras[name][effect], f"plus{effect}")
                begin = time.monotonic()
                found = pool.run("duet", case, partner=make_case(name, 0, "base"), turn=number)
                value = {
                    "workload": name,
                    "effect": effect,
                    "paired": msgspec.to_builtins(found.paired),
                    "wall_s": time.monotonic() - begin,
                }
                pool.keep(f"duet_{name}_{effect}_{number}", value)
            singles = [
                (name, effect, number)
                for name in extras
                for number in range(given.singles)
                for effect in (0, 0, 5, 10)
            ]
            for index, (name, effect, number) in enumerate(singles):
                case = make_case(name, extras[name][effect], f"plus{effect}")
                part = pool.run("measure", case).samples[-1]
                value = {
                    "workload": name,
                    "effect": effect,
                    "block": number,
                    "ns": [one / part.calls_per_sample for one in part.duration_ns],
                }
                pool.keep(f"single_{index:04d}", value)


if __name__ == "__main__":
    main()
