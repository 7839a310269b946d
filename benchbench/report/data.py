"""From the results folder to the compact JSON that the page holds.

The page shows every row of the store. Figures are columns (one list per figure, newest run last);
what belongs to one row only (evidence, samples, log) is a *detail*. Details are given to the newest
rows until a budget of bytes is used up; beyond ``MOST_ROWS`` rows the oldest are summarised per
case and month, so that nothing is dropped and the counts still add up to the store's.

Everything is decided in Python by ``compare.py``: a speedup, a verdict or a best mode is never
worked out a second time in the page, only selected, sorted and averaged.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from benchbench import __version__, changes, compare
from benchbench import format as text
from benchbench.caveats import Caveat
from benchbench.errors import StoreError
from benchbench.history import Point, metric, point_of, series_of
from benchbench.records import PHASES, Json, Record
from benchbench.report import details
from benchbench.store import Run, list_runs, load_run
from benchbench.verdicts import MARGIN, Verdict

FORMAT = 1
MOST_ROWS = 60_000
DETAIL_BYTES = 3_500_000
MOST_POINTS = 5_000
"""Rows whose series are searched for change points: the newest; the search takes time."""
MISSING = "missing"
STATUSES: tuple[str, ...] = (*compare.STATUSES, MISSING)
VERDICTS: tuple[str, ...] = tuple(verdict.value for verdict in Verdict)

# Bits of the column ``fl``.
BASELINE, SIMULATED, DIAGNOSIS, COUNTS, RESUMED = 1, 2, 4, 8, 16

NEVER, UNCLEAR = -2, -3
"""Break-even as words, in the column ``be``; -1 is "not known" in every column."""

_STAMP = re.compile(r"^(\d{8}T\d{6}Z)")

_COLUMNS = (
    "run", "case", "st", "fl", "med", "lo", "hi", "p90", "min", "max", "noi", "n", "np", "out",
    "thr", "unit", "cold", "warm", "be", "mem", "cmem", "gr", "br", "rc", "acc", "cav", "why",
    "eff", "sp", "slo", "shi", "v", "env", "fac", "det",
)  # fmt: skip


class Table:
    """Values that occur again and again, each kept once: value -> number."""

    def __init__(self) -> None:
        self.values: list[Any] = []
        self._known: dict[Any, int] = {}

    def add(self, value: Any, key: Any = None) -> int:
        """Return the number of a value; ``key`` is what makes two of them the same."""
        key = value if key is None else key
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = len(self.values)
            self.values.append(value)
        return found


class Facts:
    """Environments and settings, each stored as what differs from the one before."""

    def __init__(self) -> None:
        self.values: list[Json] = []
        self._known: dict[tuple[tuple[str, str], ...], int] = {}
        self._last: dict[str, str] = {}

    def add(self, found: Iterable[tuple[str, str]]) -> int:
        """Return the number of these facts."""
        key = tuple(found)
        number = self._known.get(key)
        if number is None:
            number = self._known[key] = len(self.values)
            now = dict(key)
            changed = {k: v for k, v in now.items() if self._last.get(k) != v}
            gone = [k for k in self._last if k not in now]
            self.values.append([changed, gone] if gone else [changed])
            self._last = now
        return number


@dataclass(slots=True)
class _Old:
    """The rows of one case and month that are only summarised."""

    first: int
    last: int
    counts: dict[str, int] = field(default_factory=dict)
    medians: list[float] = field(default_factory=list)


class Collector:
    """Takes runs, newest first, and gives the data of the page."""

    def __init__(self, *, most_rows: int = MOST_ROWS, detail_bytes: int = DETAIL_BYTES) -> None:
        self._most_rows = most_rows
        self._room = detail_bytes
        self._strings = Table()
        self._strings.add("")
        self._cases: list[Json] = []
        self._known_cases: dict[tuple[str, str], int] = {}
        self._shared = Table()
        self._facts = Facts()
        self._surroundings_of: dict[bytes, tuple[int, int]] = {}
        self._runs: list[dict[str, Json]] = []
        self._columns: dict[str, list[Any]] = {name: [] for name in _COLUMNS}
        self._details: list[msgspec.Raw] = []
        self._old: dict[tuple[int, str], _Old] = {}
        self._counts = dict.fromkeys(STATUSES, 0)
        self._coverage: list[Json] = []
        self._history: list[Point] = []

    @property
    def wants_samples(self) -> bool:
        """Whether there is still room for details, so that raw samples are worth reading."""
        return self._room > 0

    def unreadable(self, run_id: str, problem: str) -> None:
        """Name a run that cannot be read at all."""
        self._runs.append({"id": run_id, "t": _stamp(run_id) or 0, "n": 0, "damage": [problem]})

    def add(self, run: Run) -> None:
        """Take in one run."""
        number = len(self._runs)
        self._points(run.records)
        recorded = {record.case_key for record in run.records}
        records: Sequence[Record] = run.records
        if run.plan is not None:
            records = compare.with_missing(run.records, run.plan)
        baseline = run.plan.baseline if run.plan else "eager"
        started = _stamp(run.run_id) or _started(run.records)
        whole = len(self._columns["run"]) + len(records) <= self._most_rows
        if not whole:
            self._most_rows = 0  # a run is shown whole or summarised, and so is all before it
        for record in records:
            status = record.status if record.case_key in recorded else MISSING
            self._counts[status] += 1
            if not whole:
                self._summarise(number, started, record, status)
        for row in compare.rows(records, baseline) if whole else ():
            status = row.status if row.record.case_key in recorded else MISSING
            self._row(number, row, status, run)
        self._runs.append(_run_entry(run, started, baseline, len(run.records), len(recorded)))

    def add_coverage(self, run_dir: Path) -> None:
        """Take in the converter coverage in a folder of results, where there is one."""
        found, damage = details.coverage(run_dir, run_dir.name)
        self._coverage += found
        if damage:
            self.unreadable(run_dir.name, damage[0])

    def _points(self, records: Iterable[Record]) -> None:
        """Keep what the newest rows say for the change points of their series."""
        if len(self._history) < MOST_POINTS:
            self._history += [point_of(record) for record in records]

    def _row(self, number: int, row: compare.Row, status: str, run: Run) -> None:
        record = row.record
        values = {
            "run": number,
            "case": self._case(record),
            "st": STATUSES.index(status),
            "fl": _flags(row),
            "why": self._strings.add(_why(row)),
            "cav": self._strings.add(" ".join(record.caveats)),
            "acc": self._strings.add(record.accuracy.verdict if record.accuracy else ""),
            "eff": self._strings.add(record.graph.effective if record.graph else ""),
            "unit": self._strings.add(record.throughput.unit if record.throughput else ""),
            "v": VERDICTS.index(row.verdict.value) if row.verdict else -1,
            **_figures(row),
        }
        values["env"], values["fac"] = self._surroundings(record)
        values["det"] = self._detail(row, run) if status != MISSING else -1
        for name, column in self._columns.items():
            column.append(values.get(name, -1))

    def _case(self, record: Record) -> int:
        """Return the number of the record's case; the entry is made for the first one only."""
        case = record.case
        known = self._known_cases.get((case.key, case.group))
        if known is None:
            known = self._known_cases[case.key, case.group] = len(self._cases)
            self._cases.append(_case_entry(record))
        return known

    def _surroundings(self, record: Record) -> tuple[int, int]:
        """Return the numbers of the environment's label and of the facts, each made once."""
        raw = msgspec.json.encode(
            (record.case.device, record.environment, record.settings, record.policy,
             record.model_sources, record.weights_hash)
        )  # fmt: skip
        found = self._surroundings_of.get(raw)
        if found is None:
            label = self._strings.add(environment_label(record))
            facts = self._facts.add(compare.facts(record)) if record.environment else -1
            found = self._surroundings_of[raw] = (label, facts)
        return found

    def _detail(self, row: compare.Row, run: Run) -> int:
        if self._room <= 0:
            return -1
        before = len(self._shared.values)
        samples = run.samples.get(row.record.case_key, [])
        encoded = msgspec.json.encode(
            details.detail(row.record, samples, run.path, share=self._share)
        )
        new = self._shared.values[before:]
        self._room -= len(encoded) + sum(len(bytes(value)) for value in new)
        self._details.append(msgspec.Raw(encoded))
        return len(self._details) - 1

    def _share(self, value: Json) -> int:
        encoded = msgspec.json.encode(value)
        return self._shared.add(msgspec.Raw(encoded), key=encoded)

    def _summarise(self, number: int, started: float, record: Record, status: str) -> None:
        month = datetime.fromtimestamp(started, timezone.utc).strftime("%Y-%m")
        old = self._old.setdefault((self._case(record), month), _Old(number, number))
        old.first = number  # runs come newest first
        old.counts[status] = old.counts.get(status, 0) + 1
        latency = record.latency
        if status == "ok" and latency and not record.simulated and not record.diagnosis:
            old.medians.append(latency.median_s)

    def result(self, *, label: str, now: datetime | None = None) -> dict[str, Json]:
        """Return the data of the page, oldest run first."""
        last = len(self._runs) - 1
        columns = {name: values[::-1] for name, values in self._columns.items()}
        columns["run"] = [last - number for number in columns["run"]]
        rows = len(columns["run"])
        stored = sum(n for status, n in self._counts.items() if status != MISSING)
        return {
            "format": FORMAT,
            "version": __version__,
            "made": (now or datetime.now(timezone.utc)).isoformat(timespec="seconds"),
            "label": label,
            "margin": MARGIN,
            "statuses": STATUSES,
            "verdicts": VERDICTS,
            "phases": PHASES,
            "caveats": {c.name: [c.mark, c.text, c.next_step] for c in Caveat},
            "counts": {status: n for status, n in self._counts.items() if n},
            "stored": stored,
            "whole": rows,
            "runs": self._runs[::-1],
            "strings": self._strings.values,
            "cases": self._cases,
            "facts": self._facts.values,
            "shared": self._shared.values,
            "rows": columns,
            "details": self._details,
            "old": [
                _old_entry(index, month, old, last) for (index, month), old in self._old.items()
            ],
            "coverage": self._coverage,
            "changes": self._changes(),
        }

    def _changes(self) -> list[Json]:
        """Return the change points of latency: case key, runs, change, worse, cause."""
        points = sorted(self._history, key=lambda point: (point.run_id, point.case_key))
        found = []
        for series in series_of(points, metric("latency")):
            # A series without a value (a mode that never ran) has no levels to look for.
            for change in changes.change_points(series) if series.values else ():
                entry = {
                    "k": series.case_key,
                    "run": change.run_id,
                    "was": change.previous_run_id,
                    "c": change.change,
                    "lo": change.low,
                    "hi": change.high,
                    "before": _micro(change.before),
                    "after": _micro(change.after),
                    "worse": change.worse,
                    "cause": change.cause.text,
                }
                found.append({name: value for name, value in entry.items() if value is not None})
        return found


def collect(
    results_dir: Path,
    *,
    names: Sequence[str] = (),
    last: int | None = None,
    most_rows: int = MOST_ROWS,
    detail_bytes: int = DETAIL_BYTES,
) -> dict[str, Json]:
    """Return the data of the page for a results folder, or for the runs that are named.

    A folder that is empty or not there gives an empty page; a damaged run is shown with its
    damage named.
    """
    from benchbench.store import find_run

    paths = [find_run(results_dir, name) for name in names]
    if not names:
        paths = [results_dir / run_id for run_id in list_runs(results_dir)]
    paths = sorted(paths, key=lambda path: path.name)[-last if last else None :]
    collector = Collector(most_rows=most_rows, detail_bytes=detail_bytes)
    for path in reversed(paths):
        try:
            run = load_run(path, recompute=collector.wants_samples)
        except StoreError as error:
            collector.unreadable(path.name, str(error))
            continue
        collector.add(run)
    if not names and results_dir.is_dir():
        for path in sorted(results_dir.glob(f"*/{details.COVERAGE}")):
            collector.add_coverage(path.parent)
    return collector.result(label=results_dir.resolve().name or str(results_dir))


def encode(data: Json) -> bytes:
    """Return the data as JSON that may stand inside a ``<script>`` element of a page.

    ``<``, ``>`` and ``&`` only occur inside strings of JSON and are escaped there, as are the two
    line separators that old JavaScript takes for line ends.
    """
    raw: bytes = msgspec.json.encode(data)
    for byte, escaped in (
        (b"<", b"\\u003c"),
        (b">", b"\\u003e"),
        (b"&", b"\\u0026"),
        ("\u2028".encode(), b"\\u2028"),
        ("\u2029".encode(), b"\\u2029"),
    ):
        raw = raw.replace(byte, escaped)
    return raw


# ---- one row ------------------------------------------------------------------------------------


def _case_entry(record: Record) -> dict[str, Json]:
    case = record.case
    entry = {
        "k": case.key,
        "g": case.group,
        "m": case.model,
        "mode": case.mode,
        "ml": compare.mode_label(case),
        "dev": case.device,
        "w": case.workload,
        "d": case.dtype,
        "b": case.batch_size,
        "s": case.seq_len,
        "z": case.size,
        "o": case.model_options or None,
    }
    return {name: value for name, value in entry.items() if value is not None}


def _flags(row: compare.Row) -> int:
    record = row.record
    bits = BASELINE if row.is_baseline else 0
    bits |= SIMULATED if record.simulated else 0
    bits |= DIAGNOSIS if record.diagnosis else 0
    bits |= COUNTS if compare.counts(row) else 0
    return bits | (RESUMED if record.from_run else 0)


def _why(row: compare.Row) -> str:
    found = text.reason(row)
    if found == "none":
        found = "; ".join(row.reasons)
    return "" if found == row.record.status.replace("_", " ") else text.clean(found)


def _figures(row: compare.Row) -> dict[str, float | int]:
    """Return the numbers of a row; times in microseconds, bytes in KiB."""
    record = row.record
    found: dict[str, float | int] = {}
    latency = record.latency
    timed = record.status == "ok" and not record.simulated
    if latency is not None and timed:
        found.update(
            med=_micro(latency.median_s), lo=_micro(latency.ci_low_s),
            hi=_micro(latency.ci_high_s), p90=_micro(latency.p90_s), min=_micro(latency.min_s),
            max=_micro(latency.max_s), noi=_short(latency.noise, 3), n=latency.n_samples,
            np=latency.n_processes, out=latency.n_outliers,
        )  # fmt: skip
        if record.throughput is not None:
            found["thr"] = _short(record.throughput.value)
    if record.compile is not None and timed:
        found.update(cold=_micro(record.compile.cold_s), warm=_micro(record.compile.warm_s))
    if record.memory is not None:
        found.update(
            mem=_kib(record.memory.steady_peak_bytes), cmem=_kib(record.memory.compile_peak_bytes)
        )
    if record.graph is not None:
        graph = record.graph
        found.update(gr=graph.graphs, br=len(graph.breaks), rc=len(graph.recompiles))
    if row.speedup is not None:
        found["sp"] = _short(row.speedup)
        if row.decision is not None:
            found["slo"] = _short(row.decision.ci_low)
            found["shi"] = _short(row.decision.ci_high)
    found["be"] = _break_even(row.break_even)
    return found


def _break_even(value: float | str | None) -> float | int:
    if isinstance(value, str):
        return {compare.NEVER: NEVER, "unclear": UNCLEAR}.get(value, -1)
    return -1 if value is None else math.ceil(value)


def _micro(value: float | None) -> float | int:
    return -1 if value is None else _short(value * 1e6)


def _kib(value: float | None) -> int:
    return -1 if value is None else max(0, round(value / 1024))


def _short(value: float | None, digits: int = 5) -> float | int:
    """Return a number with few digits, without a fraction where it has none; -1 for unknown."""
    if value is None or not math.isfinite(value):
        return -1
    rounded = float(f"{value:.{digits}g}")
    return int(rounded) if rounded == int(rounded) else rounded


def environment_label(record: Record) -> str:
    """Return one line that tells one machine and installation from another."""
    env = record.environment
    if not env:
        return ""
    device, cpu, packages = (_dict(env.get(name)) for name in ("device", "cpu", "packages"))
    name = device.get("name") or cpu.get("model") or record.case.device
    parts = [str(name)]
    if host := env.get("host"):
        parts.append(f"host {str(host)[:6]}")
    parts.append(f"torch {env.get('torch') or packages.get('torch') or 'unknown'}")
    if version := packages.get("torch_npu"):
        parts.append(f"torch_npu {version}")
    if version := device.get("cann"):
        parts.append(f"CANN {version}")
    return text.clean(", ".join(parts))


def _dict(value: Json) -> dict[str, Json]:
    return value if isinstance(value, dict) else {}


# ---- runs ---------------------------------------------------------------------------------------


def _run_entry(
    run: Run, started: float, baseline: str | None, stored: int, keys: int
) -> dict[str, Json]:
    planned = len({case.key for case in run.plan.cases}) if run.plan else keys
    entry: dict[str, Json] = {"id": run.run_id, "t": int(started), "n": stored}
    if planned > keys:
        entry["planned"] = planned
    if baseline != "eager":
        entry["base"] = baseline
    if run.plan is not None and run.plan.name:
        entry["name"] = run.plan.name
    if run.path.name != run.run_id:
        entry["dir"] = run.path.name
    for name, value in (
        ("notes", run.plan.notes if run.plan else []),
        ("warnings", run.warnings),
        ("damage", run.damage),
    ):
        if value:
            entry[name] = value
    return entry


def _old_entry(case: int, month: str, old: _Old, last: int) -> list[Json]:
    """Return case, month, first run, last run, status counts, median, smallest and largest."""
    figures = [_micro(f(old.medians)) if old.medians else -1 for f in (median, min, max)]
    return [case, month, last - old.first, last - old.last, old.counts, *figures]


def _stamp(run_id: str) -> float | None:
    match = _STAMP.match(run_id)
    if match is None:
        return None
    try:
        found = datetime.strptime(match[1], "%Y%m%dT%H%M%SZ").replace(tzinfo=timezone.utc)
    except ValueError:
        return None
    return found.timestamp()


def _started(records: Sequence[Record]) -> float:
    """Return when the first row that knows it was started, else 0."""
    for when in _times(records):
        return when
    return 0.0


def _times(records: Sequence[Record]) -> Iterator[float]:
    for record in records:
        try:
            yield datetime.fromisoformat(record.started_at.replace("Z", "+00:00")).timestamp()
        except (ValueError, OverflowError, OSError):
            continue
