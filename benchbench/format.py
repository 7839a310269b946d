"""How numbers become text, and the one list of columns that every reporter reads.

A figure that cannot be given is a word: ``skipped``, ``timeout``, ``never``, ``n<50``. There is no
blank, no NaN and no zero that means "not known".
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from wcwidth import wcswidth

from benchbench.caveats import Caveat, caveat
from benchbench.compare import Best, MeanSpeedup, Row, Summary, View
from benchbench.records import Latency, Record
from benchbench.stats import samples_needed
from benchbench.verdicts import MARGIN, Verdict

# ---- numbers --------------------------------------------------------------------------------

_TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))
_BYTE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))
_FAR_OUT = 10
"""The longest sample is mentioned when it took this many times the median ..."""
_SPOILT_MEAN = 0.1
"""... and moved the mean by this fraction: a short hiccup among many samples spoils nothing."""
_LARGE_COMPILE_BYTES = 256 * 2**20
_ZERO_WIDTH_JOINER = "\u200d"  # holds one emoji together; every other format character is escaped


def significant(value: float, digits: int = 3) -> str:
    """Return a number with that many significant digits, without exponent or padding lies."""
    if value == 0 or not math.isfinite(value):
        return "0" if value == 0 else "not a number"
    decimals = digits - 1 - math.floor(math.log10(abs(value)))
    rounded = round(value, decimals)
    if rounded and math.floor(math.log10(abs(rounded))) > math.floor(math.log10(abs(value))):
        decimals -= 1  # 9.996 -> 10.0, not 10.00
    return f"{rounded:,.{max(0, decimals)}f}"


def seconds(value: float, digits: int = 3) -> str:
    """Return a duration in the unit that suits it: ns, µs, ms or s."""
    if value == 0:
        return "0 s"
    for scale, unit in _TIME_UNITS:
        # Rounded first, so that 999.96 µs becomes 1.00 ms and never 1,000 µs.
        if abs(float(f"{value / scale:.{digits - 1}e}")) >= 1.0 or unit == "ns":
            return f"{significant(value / scale, digits)} {unit}"
    raise AssertionError("the last unit takes everything")


def byte_size(value: float) -> str:
    """Return a number of bytes as B, KiB, MiB or GiB."""
    for scale, unit in _BYTE_UNITS:
        if abs(value) >= scale:
            return f"{significant(value / scale)} {unit}"
    return f"{value:.0f} B"


def digits_of(latency: Latency) -> int:
    """Return 3 or 4: as many digits as the interval of the median leaves meaningful."""
    half = half_width(latency)
    return 4 if half is not None and half < 0.005 else 3


def half_width(latency: Latency) -> float | None:
    """Return the wider side of the interval over the median, a fraction."""
    if latency.ci_low_s is None or latency.ci_high_s is None or not latency.median_s > 0:
        return None
    above, below = latency.ci_high_s - latency.median_s, latency.median_s - latency.ci_low_s
    return max(above, below) / latency.median_s


def times(ratio: float) -> str:
    """Return ``1.32x faster`` or ``1.10x slower``, never a bare sign."""
    if ratio >= 1:
        return f"{significant(ratio)}x faster"
    return f"{significant(1 / ratio)}x slower"


def calls(value: float) -> str:
    """Return a number of calls, rounded up: after so many it has paid."""
    whole = math.ceil(value)
    return f"{whole:,} call" if whole == 1 else f"{whole:,} calls"


def clean(text: str) -> str:
    """Return text for one line: control and format characters as escapes, e.g. ``\\n``."""
    return "".join(
        c.encode("unicode_escape").decode("ascii")
        if unicodedata.category(c) in ("Cc", "Cs", "Zl", "Zp")
        or (unicodedata.category(c) == "Cf" and c != _ZERO_WIDTH_JOINER)
        else c
        for c in text
    )


def width_of(text: str) -> int:
    """Return the columns that a cleaned text takes on a terminal."""
    return max(0, wcswidth(text))


def cut(text: str, width: int) -> str:
    """Return the text, shortened with ``...`` to at most ``width`` terminal columns."""
    if width_of(text) <= width:
        return text
    kept = text
    while kept and width_of(kept) + 3 > width:
        kept = kept[:-1]
    return f"{kept}..."


# ---- cells ----------------------------------------------------------------------------------


def status_word(record: Record) -> str:
    """Return the status as it is printed."""
    return record.status.replace("_", " ")


def _status(row: Row) -> str:
    failure = row.record.failure
    word = status_word(row.record)
    if failure is None or row.record.status in ("ok", "skipped", "not_run"):
        return "diagnosis" if row.record.diagnosis and word == "ok" else word
    return f"{word}: {failure.phase}"


def _mode(row: Row) -> str:
    ran = row.record.graph.effective if row.record.graph else row.record.case.mode
    if _nothing_ran(row.record):
        ran = row.record.case.mode
    label = clean(row.mode)
    return label if ran == row.record.case.mode else f"{label} ({clean(ran)})"


def _nothing_ran(record: Record) -> bool:
    """Say whether a row failed before anything of it could run, so that nothing "really ran"."""
    failure = record.failure
    before = failure is not None and failure.phase in ("load", "inputs", "converters", "compile")
    return before and failure is not None and failure.kind != "Fallback"


def _if_ok(cell: Callable[[Row], str]) -> Callable[[Row], str]:
    """Show the status word instead of a figure in a row that has none."""
    return lambda row: cell(row) if row.record.status == "ok" else status_word(row.record)


def _if_timed(cell: Callable[[Row], str]) -> Callable[[Row], str]:
    """Show ``simulated`` instead of a figure of time that nobody has measured on a device."""
    return _if_ok(lambda row: "simulated" if row.record.simulated else cell(row))


def _latency(row: Row) -> str:
    found = row.record.latency
    if found is None:
        return "missing"
    half = half_width(found)
    spread = f" ±{significant(half * 100, 2)}%" if half is not None else ""
    return f"{seconds(found.median_s, digits_of(found))}{spread} n={found.n_processes}"


def _percentile(name: str, p: float) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        found = row.record.latency
        value = getattr(found, f"{name}_s") if found else None
        if found is None:
            return "missing"
        if value is not None:
            return seconds(value)
        return "batched" if found.iterations_per_sample > 1 else f"n<{samples_needed(p)}"

    return _if_timed(cell)


def _throughput(row: Row) -> str:
    found = row.record.throughput
    return f"{significant(found.value)} {clean(found.unit)}" if found else "unknown"


def speedup_text(row: Row) -> str:
    """Return the speedup of a row against its baseline in words."""
    if row.is_baseline:
        return "baseline"
    if row.verdict is None:
        return "no baseline"
    if row.speedup is None:
        return "not comparable"
    if row.verdict is Verdict.SAME:
        return f"same{_interval_text(row, faster=True)}"
    return f"{times(row.speedup)}{'?' if in_doubt(row) else ''}{_interval_text(row)}"


def in_doubt(row: Row) -> bool:
    """Say whether a speedup is only a hint: one process a side, or no clear verdict."""
    advisory = row.decision is None or row.decision.advisory
    return advisory or row.verdict in (Verdict.UNCLEAR, Verdict.NOISY)


def _interval_text(row: Row, *, faster: bool | None = None) -> str:
    """Return `` [low, high]`` in the direction in which the speedup is worded."""
    found = row.decision
    if found is None or found.ci_low is None or found.ci_high is None or row.speedup is None:
        return ""
    low, high = found.ci_low, found.ci_high
    if not (row.speedup >= 1 if faster is None else faster):
        low, high = 1 / high, 1 / low
    return f" [{low:.2f}, {high:.2f}]"


def _compile(row: Row) -> str:
    found = row.record.compile
    if found is None or (found.cold_s is None and found.warm_s is None):
        return "none"
    cold = "unknown" if found.cold_s is None else seconds(found.cold_s)
    if found.warm_s is not None:
        return f"{cold}/{seconds(found.warm_s)}"
    return f"{cold}/{clean(found.warm_word or 'not measured')}"


def _break_even(row: Row) -> str:
    if row.is_baseline:
        return "baseline"
    if row.verdict is None:
        return "no baseline"
    if row.verdict is Verdict.NOT_COMPARABLE:
        return "not comparable"
    found = row.break_even
    if found is None:
        return "unknown"
    return calls(found) if isinstance(found, float) else found


def _bytes(name: str) -> Callable[[Row], str]:
    def cell(row: Row) -> str:
        value = getattr(row.record.memory, name) if row.record.memory else None
        return "not counted" if value is None else byte_size(value)

    return _if_ok(cell)


def _graph(row: Row) -> str:
    found = row.record.graph
    if found is None:
        return "unknown" if row.record.status == "ok" else status_word(row.record)
    if not (found.graphs or found.breaks or found.recompiles):
        return "no graph"
    return f"{found.graphs}/{len(found.breaks)}/{len(found.recompiles)}"


def _accuracy(row: Row) -> str:
    found = row.record.accuracy
    if found is None:
        return "not checked" if row.record.status == "ok" else status_word(row.record)
    return found.verdict.replace("_", " ")


def marks(record: Record) -> str:
    """Return the marks of a record's caveats in the order of their enumeration."""
    known = [member.mark for member in Caveat if member.name in record.caveats]
    unknown = "?" if any(caveat(name) is None for name in record.caveats) else ""
    return "".join(known) + unknown


def reason(row: Row) -> str:
    """Return in one line why a row has no figures or no speedup; ``none`` when it has both."""
    failure = row.record.failure
    if failure is not None:
        return clean(failure.reason)
    if row.record.status != "ok":
        return status_word(row.record)
    if row.speedup is None and row.reasons:
        return clean("; ".join(row.reasons))
    found = row.record.accuracy
    if found is not None and found.reason and found.verdict != "pass":
        return clean(f"accuracy {found.verdict.replace('_', ' ')}: {found.reason}")
    return "none"


def doubts(row: Row) -> str:
    """Return in one line what limits the figures of an ok row; ``none`` when nothing does."""
    if row.record.status != "ok" or reason(row) != "none":
        return "none"
    lines = [
        *_sample_doubts(row.record),
        *_verdict_doubts(row),
        *_accuracy_doubts(row.record),
        *_memory_doubts(row.record),
    ]
    return clean("; ".join(lines)) or "none"


def _sample_doubts(record: Record) -> Iterator[str]:
    found = record.latency
    if found is None or record.simulated:
        return
    if found.ci_low_s is None:
        few = "1 sample is" if found.n_samples == 1 else f"{found.n_samples} samples are"
        yield f"{few} too few for an interval (measure.max_time_s=)"
    moved = (found.max_s - found.median_s) / found.n_samples
    if found.max_s > _FAR_OUT * found.median_s and moved > _SPOILT_MEAN * found.mean_s:
        outliers = f"{found.n_outliers} {'outlier' if found.n_outliers == 1 else 'outliers'}"
        per_call = " per call" if found.iterations_per_sample > 1 else ""
        yield (
            f"{outliers} in {found.n_samples} samples, the longest {seconds(found.max_s)}{per_call}"
        )


def _verdict_doubts(row: Row) -> Iterator[str]:
    found = row.decision
    if found is None or row.speedup is None or row.record.simulated:
        return
    open_ = row.verdict in (Verdict.UNCLEAR, Verdict.NOISY)
    # What one process a side is worth and what the caveats mean is in the legend, for all rows.
    if not found.advisory or row.verdict is Verdict.UNCLEAR:
        yield from row.reasons
    if found.mde is not None and (open_ or row.verdict is Verdict.SAME):
        yield f"a difference of {found.mde:.1%} or more would have shown"
    if row.verdict is Verdict.UNCLEAR:
        more = "standard" if found.advisory else "thorough"
        yield f"comparison.policy={more} takes more processes"


def _accuracy_doubts(record: Record) -> Iterator[str]:
    found = record.accuracy
    special = [n for n in found.notes if "NaN at" in n or "infinity at" in n] if found else []
    if special:
        more = f" (and {len(special) - 1} more like that)" if len(special) > 1 else ""
        yield f"accuracy pass, with {special[0]}{more}"


def _memory_doubts(record: Record) -> Iterator[str]:
    found = record.memory
    if found is None:
        return
    if Caveat.MEMORY_GROWS.name in record.caveats and found.growth_bytes_per_call:
        growth = byte_size(found.growth_bytes_per_call)
        yield f"memory grows by {growth} per call, so its peak depends on the number of calls"
    compiling, steady = found.compile_peak_bytes or 0, found.steady_peak_bytes or 0
    if compiling > max(_LARGE_COMPILE_BYTES, _FAR_OUT * steady):
        yield f"compiling took {byte_size(compiling)} at its peak"


# ---- the columns ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Raw:
    """One machine-readable column: SI unit in the name, full precision."""

    name: str
    value: Callable[[Row], float | int | str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of the table, for people (``cell``) and for machines (``raw``)."""

    key: str
    title: str
    cell: Callable[[Row], str]
    raw: tuple[Raw, ...] = ()
    align: Literal["left", "right"] = "right"
    hidden: bool = False
    """Not in tables for people unless asked for; always in the machine-readable ones."""
    drop: int = 0
    """Order in which a narrow terminal leaves columns out, first the highest; 0 never."""
    heading: bool = False
    """The terminal prints it above the rows that share it."""


def _of(part: str, name: str, column: str | None = None) -> Raw:
    """Return the raw column ``<part>_<name>`` for a field of one of a record's objects."""

    def value(row: Row) -> float | int | str | None:
        found: Any = getattr(getattr(row.record, part), name, None)
        return len(found) if isinstance(found, list) else found

    return Raw(column or f"{part}_{name}", value)


def _case(name: str) -> Raw:
    return Raw(name, lambda row: getattr(row.record.case, name))


def _break_even_raw(row: Row) -> float | str | None:
    return "baseline" if row.is_baseline else row.break_even


COLUMNS: tuple[Column, ...] = (
    Column(
        key="case",
        title="case",
        cell=lambda row: clean(row.group),
        raw=(
            Raw("case_key", lambda row: row.record.case_key),
            *(
                _case(name)
                for name in ("model", "size", "workload", "batch_size", "seq_len", "dtype")
            ),
            _case("device"),
        ),
        align="left",
        heading=True,
    ),
    Column(
        key="mode",
        title="mode",
        cell=_mode,
        raw=(Raw("mode", lambda row: row.mode), _of("graph", "effective")),
        align="left",
    ),
    Column(
        key="status",
        title="status",
        cell=_status,
        raw=(
            Raw("status", lambda row: row.record.status),
            _of("failure", "phase"),
        ),
        align="left",
    ),
    Column(
        key="latency",
        title="latency",
        cell=_if_timed(_latency),
        raw=tuple(
            _of("latency", name)
            for name in (
                "median_s",
                "ci_low_s",
                "ci_high_s",
                "confidence",
                "mean_s",
                "min_s",
                "max_s",
                "n_samples",
                "n_processes",
                "iterations_per_sample",
                "stop_reason",
            )
        ),
    ),
    Column(
        key="speedup",
        title="speedup",
        cell=_if_timed(speedup_text),
        raw=(
            Raw("speedup", lambda row: "baseline" if row.is_baseline else row.speedup),
            Raw("verdict", lambda row: row.verdict.value if row.verdict else None),
            Raw("speedup_ci_low", lambda row: row.decision.ci_low if row.decision else None),
            Raw("speedup_ci_high", lambda row: row.decision.ci_high if row.decision else None),
            Raw("speedup_processes", lambda row: row.decision.n if row.decision else None),
            Raw("smallest_effect", lambda row: row.decision.mde if row.decision else None),
        ),
    ),
    Column(
        key="p90",
        title="p90",
        cell=_percentile("p90", 0.90),
        raw=(_of("latency", "p90_s"), _of("latency", "p95_s"), _of("latency", "p99_s")),
        drop=6,
    ),
    Column(
        key="throughput",
        title="throughput",
        cell=_if_timed(_throughput),
        raw=(
            _of("throughput", "value", "throughput_per_s"),
            _of("throughput", "unit"),
        ),
        drop=8,
    ),
    Column(
        key="compile",
        title="compile cold/warm",
        cell=_if_timed(_compile),
        raw=(
            _of("compile", "cold_s"),
            _of("compile", "warm_s"),
            _of("compile", "warm_word"),
            _of("compile", "cold_cpu_s"),
        ),
        drop=3,
    ),
    Column(
        key="break_even",
        title="break-even",
        cell=_if_timed(_break_even),
        raw=(Raw("break_even_calls", _break_even_raw),),
        drop=4,
    ),
    Column(
        key="memory",
        title="peak memory",
        cell=_bytes("steady_peak_bytes"),
        raw=tuple(
            _of("memory", name)
            for name in (
                "steady_peak_bytes",
                "compile_peak_bytes",
                "weights_bytes",
                "growth_bytes_per_call",
                "meaning",
            )
        ),
        drop=7,
    ),
    Column(
        key="compile_memory",
        title="peak memory compiling",
        cell=_bytes("compile_peak_bytes"),
        hidden=True,
    ),
    Column(
        key="graph",
        title="graphs",
        cell=_graph,
        raw=tuple(
            _of("graph", name)
            for name in ("graphs", "breaks", "recompiles", "captures", "fallbacks", "tuned")
        ),
        drop=5,
    ),
    Column(
        key="accuracy",
        title="accuracy",
        cell=_accuracy,
        raw=tuple(
            _of("accuracy", name)
            for name in (
                "verdict",
                "max_abs",
                "max_rel",
                "cosine",
                "error_eager",
                "error_candidate",
                "tolerance",
            )
        ),
        align="left",
        drop=2,
    ),
    Column(
        key="noise",
        title="noise",
        cell=_if_timed(lambda row: _noise(row.record.latency)),
        raw=(_of("latency", "noise"), _of("latency", "n_outliers")),
        hidden=True,
    ),
    Column(
        key="caveats",
        title="caveats",
        cell=lambda row: marks(row.record) or "none",
        raw=(Raw("caveats", lambda row: " ".join(row.record.caveats)),),
        align="left",
        drop=1,
    ),
    Column(
        key="reason",
        title="reason",
        cell=reason,
        raw=(
            Raw("reason", reason),
            _of("failure", "kind"),
            _of("failure", "log"),
        ),
        align="left",
        hidden=True,
    ),
    Column(
        key="run",
        title="run",
        cell=lambda row: clean(row.record.from_run or row.record.run_id),
        raw=(
            Raw("run_id", lambda row: row.record.from_run or row.record.run_id),
            Raw("started_at", lambda row: row.record.started_at),
        ),
        align="left",
        hidden=True,
    ),
)


def _noise(latency: Latency | None) -> str:
    if latency is None or latency.noise is None:
        return "unknown"
    return f"{significant(latency.noise * 100, 2)}%"


def columns(*extra: str, without: Iterable[str] = ()) -> list[Column]:
    """Return the columns that people see, and those hidden ones that are named in ``extra``."""
    left_out = set(without)
    return [
        column
        for column in COLUMNS
        if (not column.hidden or column.key in extra) and column.key not in left_out
    ]


def cells(view: View, chosen: Sequence[Column]) -> list[list[str]]:
    """Return the table's text, row by row; every cell holds something."""
    return [[column.cell(row) or "none" for column in chosen] for row in view.rows]


# ---- sentences below a table ------------------------------------------------------------------


def counts_text(summary: Summary) -> str:
    """Return ``4 rows: 3 ok, 1 skipped``; the numbers add up."""
    parts = [f"{number} {status.replace('_', ' ')}" for status, number in summary.counts.items()]
    rows = "row" if summary.total == 1 else "rows"
    return f"{summary.total} {rows}: {', '.join(parts)}" if parts else "0 rows"


def best_text(best: Best, baseline: str | None) -> str:
    """Return the sentence about the quickest mode of one group."""
    row = best.row
    start = f"best for {clean(best.group)}: {clean(row.mode)}"
    if best.candidates == 1:
        return f"{start}, the only mode with a result that counts"
    if row.is_baseline:
        return f"{start}, no mode was faster"
    if row.speedup is None:
        return f"{start}, {seconds(row.record.latency.median_s) if row.record.latency else ''}"
    if row.verdict is Verdict.SAME:
        return f"{start}, but the same as {baseline} within {MARGIN:.0%}"
    doubt = " (in doubt)" if in_doubt(row) else ""
    return f"{start}, {times(row.speedup)} than {baseline}{doubt}"


def mean_text(mean: MeanSpeedup, baseline: str | None) -> str:
    """Return the sentence about one mode's geometric mean, always with ``n of m``."""
    over = f"{mean.n} of {mean.m} {'case' if mean.m == 1 else 'cases'}"
    if mean.value is None or mean.low is None or mean.high is None:
        return f"{clean(mean.mode)}: no mean ({over} ok in both)"
    spread = f"; from {times(mean.low)} to {times(mean.high)}" if mean.n > 1 else ""
    return (
        f"{clean(mean.mode)}: {times(mean.value)} than {baseline} "
        f"(geometric mean over {over} ok in both{spread})"
    )


def legend(view: View) -> list[str]:
    """Return one line per caveat that occurs, with its next step."""
    names = {name for row in view.rows for name in row.record.caveats}
    lines = [f"{c.mark} {c.text}: {c.next_step}" for c in Caveat if c.name in names]
    newer = sorted(name for name in names if caveat(name) is None)
    return lines + [f"? {clean(name)}: a caveat of a newer version" for name in newer]


def reading_notes(view: View) -> list[str]:
    """Return what a reader must know to read the figures right."""
    measured = [row.record.latency for row in view.rows if row.record.latency]
    lines = []
    if any(found.n_processes == 1 for found in measured):
        lines.append("n=1: the latency is that of one process")
    if any(half_width(found) is not None for found in measured):
        lines.append("±: 95 % interval of the median, within one process")
    compared = [row for row in view.rows if row.speedup is not None]
    if any(in_doubt(row) and row.verdict is not Verdict.SAME for row in compared):
        lines.append("faster?, slower?: in doubt: one process a side, noisy, or the interval has 1")
    if any(row.decision and row.decision.ci_low is not None for row in compared):
        lines.append("[low, high]: 95 % interval of the speedup, over paired processes")
    if any(found.iterations_per_sample > 1 for found in measured):
        lines.append("batched: several calls per sample, so there are no percentiles")
    if any("/" in _graph(row) for row in view.rows):
        lines.append("graphs: graphs/breaks/recompiles")
    meanings = sorted({row.record.memory.meaning for row in view.rows if row.record.memory})
    lines += [f"peak memory: steady state, {clean(meaning)}" for meaning in meanings if meaning]
    return lines


def summary_lines(view: View) -> list[str]:
    """Return counts, best modes and means as sentences."""
    found = view.summary
    lines = [counts_text(found)]
    lines += [best_text(best, view.baseline) for best in found.best]
    return lines + [mean_text(mean, view.baseline) for mean in found.means]


def difference_lines(view: View) -> list[str]:
    """Return one line per setting in which compared rows differ."""
    return [
        f"differs within {clean(d.group)}: {clean(d.name)}: "
        + ", ".join(f"{clean(mode)} {clean(value)}" for mode, value in d.values)
        for d in view.summary.differences
    ]


def doubt_lines(view: View) -> list[str]:
    """Return one line per ok row whose figures are limited by something."""
    return [
        f"{row.mode}, {row.group}: {found}" for row in view.rows if (found := doubts(row)) != "none"
    ]


def sentences(view: View) -> list[str]:
    """Return everything that belongs below a table in a document, one cleaned line each."""
    lines = [
        *summary_lines(view),
        *doubt_lines(view),
        *legend(view),
        *reading_notes(view),
        *difference_lines(view),
        *view.notes,
        *view.warnings,
        *(f"damaged: {damage}" for damage in view.damage),
    ]
    return [clean(line) for line in lines]
