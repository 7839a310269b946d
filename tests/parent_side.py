"""What the tests of the parent share: cases for the fake worker and a way to look for strays."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from benchbench.records import Case, Job, Limits, Settings, Target, TimingPolicy

HERE = Path(__file__).resolve().parent
SETTINGS = Settings(environment={"PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parent)])})


def case(model: str = "fake", mode: str = "eager", **options: Any) -> Case:
    return Case(
        key=f"{model}/forward/b1/float32/cpu/{mode}",
        group=f"{model}/forward/b1/float32/cpu",
        model=model,
        model_target=Target(path="fake.build"),
        mode=mode,
        mode_target=Target(path="benchbench.modes.eager.Eager"),
        device="cpu",
        workload="forward",
        dtype="float32",
        batch_size=1,
        model_options=options,
    )


def job(start: str = "fresh", limits: Limits | None = None, **options: Any) -> Job:
    return Job(
        kind="measure",
        case=case(**options),
        policy=TimingPolicy(),
        limits=limits or Limits(),
        settings=Settings(start=start, environment=SETTINGS.environment),
    )


def alive(*words: str) -> list[str]:
    """Return the command lines of running processes that contain all the words."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            state = entry.with_name("stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            continue
        if state != "Z" and int(entry.parent.name) != os.getpid() and all(w in line for w in words):
            found.append(line)
    return found


def gone(*words: str, within_s: float = 10.0) -> bool:
    """Wait until no process with these words in its command line is left."""
    deadline = time.monotonic() + within_s
    while alive(*words):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True
