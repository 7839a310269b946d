"""``doctor --noise``: how noisy this host is, measured with a thing against itself.

Twelve duet processes compare a small model with itself, and twelve processes measure it alone, one
after the other. Their spread says what the policies can see here; it is kept for this host, so that
a later comparison whose processes spread far more is called noisy.
"""

from __future__ import annotations

import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from benchbench import verdicts
from benchbench.ending import judge
from benchbench.environment import host_facts
from benchbench.errors import WorkerError
from benchbench.process import Launcher
from benchbench.records import (
    Case,
    ComparisonPolicy,
    Job,
    Limits,
    Measurement,
    Settings,
    Target,
    TimingPolicy,
)

PROCESSES = 12

# Four layers of 1024: about 2 ms on a core of today, mostly matrix products as in real models.
_MODEL = Target(
    path="benchbench.models.mlp.build",
    options={"in_features": 1024, "hidden_size": 1024, "num_layers": 4, "out_features": 1024},
)


class Noise(msgspec.Struct, frozen=True, kw_only=True):
    """The spread of this host, as fractions; from log ratios between processes."""

    measured_at: float
    duet_sd: float
    """Between duet processes of a model with itself."""
    process_sd: float
    """Between processes that measure the model alone."""
    flagged: int
    processes: int
    call_s: float

    def lines(self) -> list[str]:
        """Return what it means, a line each."""
        found = [
            f"host noise (one model of {self.call_s * 1e3:.2f} ms against itself, "
            f"{self.processes} processes of either kind):",
            f"  between duet processes {self.duet_sd:.2%}, between single processes"
            f" {self.process_sd:.2%}; {self.flagged} of {2 * self.processes} lacked their core",
        ]
        for name, count in (("standard", 5), ("thorough", verdicts.LOOKS[-1])):
            seen = verdicts.smallest_effect(self.duet_sd, count)
            if seen is not None:
                found.append(
                    f"  comparison.policy={name} ({count} processes) sees differences from"
                    f" {max(seen, verdicts.MARGIN):.1%} on in 95 % of comparisons"
                )
        single = max(verdicts.SINGLE_PROCESS_MARGIN, math.expm1(3 * self.process_sd))
        found.append(f"  comparison.policy=quick (one process a side): nothing below {single:.0%}")
        return found


def path() -> Path:
    """Return where the noise of this host is kept."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "benchbench" / "noise.json"


def host_key() -> str:
    """Return what makes two measurements of noise belong together: the processor and its cores."""
    facts = host_facts()
    model = facts["cpu"].get("model", "unknown processor")
    return f"{facts['host']}: {model}, {os.cpu_count()} cores"


def load() -> Noise | None:
    """Return the noise kept for this host; ``None`` when it was never measured here."""
    try:
        kept = json.loads(path().read_text(encoding="utf-8"))
        return msgspec.convert(kept[host_key()], type=Noise)
    except (OSError, ValueError, KeyError, TypeError, msgspec.ValidationError):
        return None


def keep(noise: Noise) -> Path:
    """Keep the noise for this host and return the file; raise ``OSError`` when it cannot be."""
    place = path()
    place.parent.mkdir(parents=True, exist_ok=True)
    try:
        kept: dict[str, Any] = json.loads(place.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        kept = {}
    kept[host_key()] = msgspec.to_builtins(noise)
    part = place.with_suffix(".part")
    part.write_text(json.dumps(kept, indent=1, ensure_ascii=False), encoding="utf-8")
    part.replace(place)
    return place


def measure(
    *,
    say: Callable[[str], None],
    processes: int = PROCESSES,
    make_launcher: Callable[[], Launcher] = Launcher,
) -> Noise:
    """Measure this host for about two minutes. Raises ``WorkerError`` when a process fails."""
    ratios: list[float] = []
    medians: list[float] = []
    flagged = 0
    with tempfile.TemporaryDirectory() as folder, make_launcher() as launcher:
        for number in range(processes):
            say(f"noise: {number + 1} of {processes}")
            paired = _run(launcher, Path(folder), "duet").paired
            if paired is None or paired.log_ratio is None:
                raise WorkerError("a duet process gave no ratio")
            flagged += bool(paired.flags)
            ratios.append(paired.log_ratio)
            alone = _run(launcher, Path(folder), "measure")
            flagged += "STARVED" in alone.caveats
            part = alone.samples[-1]
            medians.append(statistics.median(part.duration_ns) / part.calls_per_sample / 1e9)
    return Noise(
        measured_at=time.time(),
        duet_sd=statistics.stdev(ratios),
        process_sd=statistics.stdev(math.log(one) for one in medians),
        flagged=flagged,
        processes=processes,
        call_s=statistics.median(medians),
    )


def _run(launcher: Launcher, folder: Path, kind: Any) -> Measurement:
    case = Case(
        key=f"noise/{kind}",
        group="noise",
        model="mlp",
        model_target=_MODEL,
        mode="eager",
        mode_target=Target(path="benchbench.modes.eager.Eager", options={"name": "eager"}),
        device="cpu",
        workload="forward",
        dtype="float32",
        batch_size=64,
    )
    job = Job(
        kind=kind,
        case=case,
        partner=case if kind == "duet" else None,
        policy=TimingPolicy(warm_compile=False),
        comparison=ComparisonPolicy(),
        limits=Limits(),
        settings=Settings(),
        accuracy=False,
    )
    end = launcher.run_job(
        job,
        outcome_path=folder / "outcome.json",
        log_path=folder / "log.txt",
        on_phase=lambda *_: None,
    )
    found = judge(end)
    if found.status != "ok" or found.measurement is None:
        why = found.failure.reason if found.failure else found.status
        raise WorkerError(f"the noise of this host could not be measured: {why}")
    return found.measurement
