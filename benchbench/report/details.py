"""What the page knows of one row beyond its figures: evidence, samples, log, environment."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from benchbench.records import Json, Record, Samples

Share = Callable[[Json], int]
"""Stores a value that many rows have in common and returns its number."""

MOST_POINTS = 240
BINS = 40
LOG_BYTES = 3000
COVERAGE = "coverage.json"
_MOST_ENTRIES = 60  # ops or breaks of one row
_WARMUP_POINTS = 60


def detail(
    record: Record, samples: Sequence[Samples], run_dir: Path, *, share: Share
) -> dict[str, Json]:
    """Return the detail of a record; values that are not known are left out."""
    found: dict[str, Json] = {"at": record.started_at}
    found.update(_shared(record, share))
    if record.phase_s:
        found["ph"] = {phase: float(f"{s:.4g}") for phase, s in record.phase_s.items()}
    for name, value in (
        ("fail", record.failure),
        ("acc", record.accuracy),
        ("dt", record.device_time),
        ("steady", record.steady),
        ("host", record.interference),
        ("stages", record.compile.stages if record.compile else None),
        ("warm_word", record.compile.warm_word if record.compile else None),
        ("notes", record.notes),
        ("over", record.harness.overhead_s if record.harness else None),
        ("from", record.from_run),
        ("dur", record.duration_s),
        ("stop", record.latency.stop_reason if record.latency else None),
    ):
        if value:
            found[name] = _plain(value)
    if samples and record.status == "ok" and not record.simulated:
        found["smp"] = sample_series(samples)
    log = record.failure.log if record.failure else None
    if log and record.status not in ("ok", "skipped", "not_run"):
        tail = log_tail(run_dir, log)
        if tail:
            found["log"] = tail
    return found


def _shared(record: Record, share: Share) -> dict[str, int]:
    """Return numbers of those parts that are the same in row after row of a history."""
    found = {}
    if record.graph is not None:
        graph = _plain(record.graph)
        for name in ("breaks", "recompiles"):
            graph[name] = graph.get(name, [])[:_MOST_ENTRIES]
        for name in ("fx_ops", "ir_ops"):
            ops = sorted(graph.get(name, {}).items(), key=lambda item: (-item[1], item[0]))
            graph[name] = dict(ops[:_MOST_ENTRIES])
            if len(ops) > _MOST_ENTRIES:
                graph[f"{name}_more"] = len(ops) - _MOST_ENTRIES
        found["gr"] = share({key: value for key, value in graph.items() if value})
    if record.memory is not None and record.memory.meaning:
        found["meaning"] = share(record.memory.meaning)
    case = {
        "seed": record.case.seed,
        "converters": record.case.converters,
        "typed": record.case.mode_typed,
        "target": record.case.model_target.path,
        "mode_target": record.case.mode_target.path,
        "options": record.case.options,
        "model_options": record.case.model_options,
    }
    found["case"] = share({key: value for key, value in case.items() if value})
    return found


def _plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


# ---- samples ------------------------------------------------------------------------------------


def sample_series(samples: Sequence[Samples]) -> dict[str, Json]:
    """Return histogram and series of a row's samples, in nanoseconds per call.

    A long series is thinned to the smallest and the largest sample of each stretch, so that no
    outlier can disappear; the histogram is over all of them.
    """
    import numpy as np

    from benchbench.stats import OUTLIER_FENCE

    timed = [s for s in samples if s.phase == "sample" and s.duration_ns]
    found: dict[str, Json] = {}
    if timed:
        parts = [np.asarray(s.duration_ns) / s.calls_per_sample for s in timed]
        values = np.concatenate(parts)
        low, high = np.quantile(values, [0.25, 0.75])
        fence = float(high + OUTLIER_FENCE * (high - low))
        per_part = max(20, MOST_POINTS // len(parts))
        found = {
            "n": int(values.size),
            "calls": timed[0].calls_per_sample,
            "fence": round(fence),
            "hist": histogram(values, fence),
            "series": [[s.round, *thinned(p, per_part)] for s, p in zip(timed, parts, strict=True)],
        }
    warm = [s for s in samples if s.phase == "warmup" and s.duration_ns]
    if warm:
        first = np.asarray(warm[0].duration_ns) / warm[0].calls_per_sample
        found["warmup"] = thinned(first, _WARMUP_POINTS)
    return found


def histogram(values: Any, fence: float) -> dict[str, Json]:
    """Return equal bins up to the outlier fence, and how many samples lie beyond it."""
    import numpy as np

    top = min(float(values.max()), fence)
    low = float(values.min())
    if top <= low:
        top = low + 1.0
    inside = values[values <= top]
    counts, _ = np.histogram(inside, bins=BINS, range=(low, top))
    return {
        "lo": round(low, 1),
        "hi": round(top, 1),
        "c": [int(c) for c in counts],
        "over": int(values.size - inside.size),
    }


def thinned(values: Any, points: int) -> list[list[int]]:
    """Return indices and values, at most about ``points`` of them, extremes kept."""
    if len(values) <= points:
        return [list(range(len(values))), [round(float(v)) for v in values]]
    import numpy as np

    keep: set[int] = set()
    for part in np.array_split(np.arange(len(values)), points // 2):
        keep.add(int(part[np.argmin(values[part])]))
        keep.add(int(part[np.argmax(values[part])]))
    index = sorted(keep)
    return [index, [round(float(values[i])) for i in index]]


# ---- files of the run ---------------------------------------------------------------------------


def log_tail(run_dir: Path, name: str) -> str | None:
    """Return the end of a log of this run; ``None`` when it is not there or not below the run."""
    path = (run_dir / name).resolve()
    if not path.is_relative_to(run_dir.resolve()):
        return None
    try:
        with path.open("rb") as file:
            file.seek(0, 2)
            size = file.tell()
            file.seek(max(0, size - LOG_BYTES))
            tail = file.read().decode("utf-8", "replace")
    except OSError:
        return None
    if size > LOG_BYTES:
        tail = "... " + tail.partition("\n")[2]
    return tail.strip() or None


def coverage(run_dir: Path, run_id: str) -> tuple[list[Json], list[str]]:
    """Return the converter coverage stored with a run, one entry per model, and its damage."""
    path = run_dir / COVERAGE
    if not path.is_file():
        return [], []
    try:
        found = msgspec.json.decode(path.read_bytes())
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        return [], [f"{COVERAGE}: not readable: {error}"]
    entries = found if isinstance(found, list) else [found]
    return [{**entry, "run": run_id} for entry in entries if isinstance(entry, dict)], []
