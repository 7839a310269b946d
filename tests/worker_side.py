"""Jobs for the tests of the worker, run by the real launcher in processes of their own."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchbench.ending import JobEnd
from benchbench.process import Launcher
from benchbench.records import (
    Case,
    Job,
    Limits,
    Measurement,
    Settings,
    Target,
    TimingPolicy,
)

MODELS = Path(__file__).with_name("worker_models.py")

QUICK = TimingPolicy(
    min_time_s=0.05,
    max_time_s=0.2,
    warmup_min_time_s=0.05,
    warmup_max_time_s=1.0,
)

_CLASSES = {
    "eager": "benchbench.modes.eager.Eager",
    "aot_eager": "benchbench.modes.aot_eager.AotEager",
    "inductor": "benchbench.modes.inductor.Inductor",
}


def make_job(model: str, *, mode: str = "eager", stand_in: str | None = None, **more: Any) -> Job:
    """Return a job for one of the builders of worker_models.py."""
    options: dict[str, Any] = {"name": mode}
    if stand_in:
        options["stand_in"] = f"{MODELS}:{stand_in}"
    options |= more.pop("options", {})
    case = Case(
        key=f"{model}/{mode}",
        group=model,
        model=model,
        model_target=Target(path=f"{MODELS}:{model}"),
        mode=mode,
        mode_target=Target(path=_CLASSES[mode], options=options),
        device="cpu",
        workload="forward",
        dtype="float32",
        batch_size=1,
    )
    values: dict[str, Any] = {
        "kind": "measure",
        "policy": QUICK,
        "limits": Limits(),
        "settings": Settings(),
        "search_paths": [str(MODELS.parent)],
    }
    return Job(case=case, **(values | more))


@dataclass
class Bench:
    """Runs jobs one after another in forked workers and keeps their files."""

    launcher: Launcher
    folder: Path
    count: int = 0

    def run(self, job: Job) -> JobEnd:
        """Run a job and return how it ended."""
        # pytest changes it with every test, and another environment is another server.
        os.environ.pop("PYTEST_CURRENT_TEST", None)
        self.count += 1
        self.outcome_path = self.folder / f"{self.count}.json"
        self.log_path = self.folder / f"log{self.count}.log"
        return self.launcher.run_job(
            job,
            outcome_path=self.outcome_path,
            log_path=self.log_path,
            on_phase=lambda phase, elapsed, limit: None,
        )

    def measure(self, model: str, **more: Any) -> Measurement:
        """Run a job that must go well and return what it measured."""
        end = self.run(make_job(model, **more))
        assert end.outcome is not None, self.log()
        assert end.outcome.failure is None, end.outcome.failure
        assert end.outcome.measurement is not None
        return end.outcome.measurement

    def checked(self, model: str, **more: Any) -> JobEnd:
        """Run the reference job and then a measure job that compares with it."""
        reference = str(self.folder / f"reference{self.count}.pt")
        settings = more.get("settings", Settings())
        job = make_job(model, kind="reference", reference_path=reference, settings=settings)
        end = self.run(job)
        assert end.outcome is not None, self.log()
        assert end.outcome.failure is None, end.outcome.failure
        return self.run(make_job(model, reference_path=reference, **more))

    def log(self) -> str:
        """Return the log of the last job."""
        return self.log_path.read_text(encoding="utf-8", errors="replace")
