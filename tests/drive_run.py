"""Runs a plan of the fake worker in a process of its own: ``drive_run.py RESULTS PLAN [LIMIT]``.

``LIMIT`` is the largest size in bytes that a file may reach, which stands in for a full disk.
"""

from __future__ import annotations

import functools
import resource
import sys
from pathlib import Path

import msgspec

from benchbench.errors import BenchbenchError
from benchbench.process import Launcher
from benchbench.progress import Progress
from benchbench.records import Plan
from benchbench.runner import run_plan


def main(argv: list[str]) -> int:
    plan = msgspec.json.decode(Path(argv[1]).read_bytes(), type=Plan)
    if len(argv) > 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(argv[2]), int(argv[2])))
    make = functools.partial(Launcher, entry="fake_worker", preload=())
    try:
        result = run_plan(plan, results_dir=Path(argv[0]), progress=Progress(), make_launcher=make)
    except BenchbenchError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print("report", flush=True)
    return result.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
