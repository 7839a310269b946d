"""The gate: is the latest run worse than its history, and may this be merged.

Status comes before time: a case that worked and fails is a regression whatever its speed. A level
that changed, or one run far outside its level, is reported with the run it began with and with the
versions that changed then. Over all series the false discovery rate is held (Benjamini-Hochberg).
No data is never "no regression": it has words and an exit code of its own.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np

from benchbench import changes, history
from benchbench.changes import Segment
from benchbench.history import Point, Series

Outcome = Literal[
    "regressed",
    "improved",
    "no change",
    "model changed",
    "too few runs",
    "no baseline",
    "no data",
    "failed",
    "flaky",
]
NOTHING_SAID = frozenset({"too few runs", "no baseline", "no data", "failed", "flaky"})

RECENT = 10
"""A level that began within so many runs is still this run's business."""
FALSE_DISCOVERIES = 0.05
_SINGLE_MAX_P = 1e-3
_DRIFT = 1.5  # times the margin: neighbours must not reach it step by step
_FEW = 3


class Finding(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One thing to say of one case and metric."""

    outcome: Outcome
    case_key: str
    metric: str
    text: str
    change: float | None = None
    """after / before - 1, a fraction."""
    before: float | None = None
    after: float | None = None
    since: str | None = None
    """The run with which it began."""
    cause: str | None = None
    p: float | None = None
    rule: str | None = None
    """``level``, ``one run``, ``drift`` or ``status``."""

    @property
    def command(self) -> str:
        """The command line that shows it."""
        import shlex

        words = ["python", "-m", "benchbench", "history", self.case_key]
        return shlex.join([*words, *([] if self.metric == "status" else ["--metric", self.metric])])


def findings(
    points: Sequence[Point], run_id: str, *, metrics: Sequence[str] = history.PRIMARY
) -> list[Finding]:
    """Return what is to say of run ``run_id`` against the rows before it, worst first."""
    rows = [point for point in history.in_order(points) if point.origin <= run_id]
    current = {p.case_key: p for p in points if run_id in (p.run_id, p.origin)}
    found: list[Finding] = []
    for key, past in history.statuses(rows).items():
        if key in current:
            earlier = [p for p in past if p.origin != current[key].origin]
            found += _status(current[key], earlier)
    judged: list[Finding] = []
    for name in metrics:
        for series in history.series_of(rows, name):
            now = current.get(series.case_key)
            if now is None or now.status != "ok" or now.host_class != series.host_class:
                continue
            judged.append(judge(series, now))
    found += _discoveries(judged)
    order = ["regressed", "flaky", "failed", "model changed", "improved", "no data"]
    return sorted(found, key=lambda f: order.index(f.outcome) if f.outcome in order else 9)


def _status(now: Point, earlier: Sequence[Point]) -> list[Finding]:
    """Compare the status with what it was; empty when it is and was fine."""

    def say(outcome: Outcome, text: str) -> list[Finding]:
        return [
            Finding(
                outcome=outcome,
                case_key=now.case_key,
                metric="status",
                text=text,
                since=now.origin,
                rule="status",
            )
        ]

    if now.status in ("skipped", "not_run", "interrupted"):
        return say("no data", f"{now.status.replace('_', ' ')}: {now.reason or 'no reason given'}")
    ran = [p for p in earlier if p.status not in ("skipped", "not_run", "interrupted")]
    good = [p.status == "ok" for p in ran][-20:]
    flips = sum(a != b for a, b in itertools.pairwise(good))
    if now.status == "ok":
        if good and not good[-1] and flips < 3:
            return say("improved", f"{ran[-1].status} -> ok")
        return []
    if flips >= 3:
        return say("flaky", f"{now.status}; {good.count(False)} of {len(good)} runs before failed")
    where = f" in {now.phase}" if now.phase else ""
    if good and good[-1]:
        what = "accuracy: pass -> fail" if now.accuracy == "fail" else f"ok -> {now.status}{where}"
        return say("regressed", f"{what}: {now.reason or 'no reason given'}")
    return say("failed", f"{now.status}{where}, as before" if good else f"{now.status}{where}")


def judge(series: Series, now: Point) -> Finding:
    """Judge the last run of a series; the p of several series are weighed by the caller."""

    def say(outcome: Outcome, text: str) -> Finding:
        return Finding(
            outcome=outcome, case_key=series.case_key, metric=series.metric.name, text=text
        )

    reason = history.obstacle(now, series.metric)
    if reason is not None:
        return say("no data", reason)
    n = len(series.values) - 1
    if n < _FEW:
        left = [f"{number} {why}" for why, number in series.left_out.items()]
        left += [f"{number} on {host}" for host, number in series.other_hosts.items()]
        more = f"; not used: {', '.join(left)}" if left else ""
        if n == 0:
            return say("no baseline", f"no earlier run on {series.host_class}{more}")
        return say("too few runs", f"{n} of {_FEW}{more}")
    levels = changes.segments(series)
    return (
        _new_level(series, levels)
        or _one_run(series, levels)
        or _drift(series, levels)
        or say("no change", f"within {series.metric.margin:.0%} or noise, {n} earlier runs")
    )


def _finding(
    series: Series,
    before: float,
    after: float,
    at: int,
    *,
    p: float | None,
    rule: str,
    cause: changes.Cause,
) -> Finding:
    metric = series.metric
    worse = history.is_worse(metric, before, after)
    outcome: Outcome = "regressed" if worse else "improved"
    if cause.kind == "model changed":
        outcome = "model changed"
    change = after / before - 1 if before > 0 else None
    size = f"{change:+.1%}" if change is not None and not metric.exact else ""
    since = series.points[at].origin
    return Finding(
        outcome=outcome,
        case_key=series.case_key,
        metric=metric.name,
        change=change,
        before=before,
        after=after,
        since=since,
        cause=cause.text,
        p=p,
        rule=rule,
        text=f"{size} ({before:.4g} -> {after:.4g} {metric.unit}) {rule} since {since}, "
        f"{cause.text}",
    )


def _new_level(series: Series, levels: Sequence[Segment]) -> Finding | None:
    """Report the newest level when it is recent, differs, and is no level it often had."""
    points = changes.change_points(series, levels)
    if not points or points[-1].index < len(series.values) - RECENT:
        return None
    newest = points[-1]
    near = changes.margin_of(series.metric)
    scale = changes.scaled(series.metric, [max(s.level, 1e-300) for s in levels])
    visits = int((np.abs(scale[:-2] - scale[-1]) <= near).sum())
    if visits >= 2 and newest.cause.kind == "unexplained":
        return None  # it goes to and fro between two levels
    return _finding(
        series,
        newest.before,
        newest.after,
        newest.index,
        p=newest.p,
        rule="level",
        cause=newest.cause,
    )


def _one_run(series: Series, levels: Sequence[Segment]) -> Finding | None:
    """Report a single run far outside its level: larger than what its spread and spikes explain."""
    metric, last = series.metric, len(series.values) - 1
    segment = levels[-1]
    start = segment.start
    x = changes.scaled(metric, series.values)
    model = last in changes.eras(series.points)
    if model:
        start = levels[-2].start if len(levels) > 1 else 0
    past = x[start:last]
    if past.size < _FEW:
        return None
    middle = float(np.median(past))
    step = float(x[last] - middle)
    least = 0.5 if metric.exact else math.log1p(metric.single)
    if abs(step) <= least:
        return None
    p = _p_single(past - middle, step, changes.margin_of(metric) * 0.1)
    if p > FALSE_DISCOVERIES and not model:
        return None
    return _finding(
        series,
        changes.unscaled(metric, middle),
        series.values[last],
        last,
        p=None if model else p,
        rule="one run",
        cause=changes.cause_at(series.points, last, model_changed=model),
    )


def _p_single(past: changes.Floats, step: float, floor: float) -> float:
    """Return a p that both the spread (t) and the rank among earlier runs must agree on."""
    from scipy.special import stdtr

    n = past.size
    kept = past[changes.regular(past, floor=floor)]
    sd = max(float(kept.std(ddof=1)) if kept.size > 1 else 0.0, floor)
    t = abs(step) / (sd * math.sqrt(1 + 1 / n))
    by_spread = float(stdtr(max(n - 1, 1), -t))
    if by_spread > _SINGLE_MAX_P:
        return 1.0
    beyond = int((past * math.copysign(1.0, step) >= abs(step)).sum())
    return max(by_spread, (beyond + 0.5) / (n + 1) if beyond else by_spread)


def _drift(series: Series, levels: Sequence[Segment]) -> Finding | None:
    """Report a level that crept away from the oldest one without a step that accounts for it."""
    metric = series.metric
    era = max([0, *changes.eras(series.points)])
    x = changes.scaled(metric, series.values)[era:]
    if metric.exact or x.size < 20:
        return None
    old, new = x[:10], x[-10:]
    inside = [s for s in levels if s.start >= era]
    steps = sum(math.log(b.level / a.level) for a, b in itertools.pairwise(inside) if a.level > 0)
    moved = float(np.median(new) - np.median(old))
    limit = _DRIFT * changes.margin_of(metric)
    floor = 0.1 * changes.margin_of(metric)
    if abs(moved) <= limit or abs(moved - steps) <= limit:
        return None
    test = changes.t_test(old, new, floor)
    if test.p > changes.MAX_P:
        return None
    before, after = (changes.unscaled(metric, float(np.median(part))) for part in (old, new))
    return _finding(
        series,
        before,
        after,
        era,
        p=test.p,
        rule="drift",
        cause=changes.Cause(kind="unexplained"),
    )


def _discoveries(judged: Sequence[Finding]) -> list[Finding]:
    """Keep the findings that survive Benjamini-Hochberg over all series that were tested."""
    tested = [f for f in judged if f.outcome not in NOTHING_SAID]
    m = len(tested)
    ranked = sorted(f.p for f in tested if f.p is not None)
    passed = [p for k, p in enumerate(ranked, start=1) if p <= FALSE_DISCOVERIES * k / m]
    limit = max(passed, default=-1.0)
    result = []
    for finding in judged:
        if finding.p is None or finding.p <= limit:
            result.append(finding)
            continue
        note = f"one in {m} comparisons, not enough to tell from chance: {finding.text}"
        result.append(
            msgspec.structs.replace(finding, outcome="no change", text=note, change=finding.change)
        )
    return result


def exit_code(found: Sequence[Finding]) -> int:
    """Return 3 for a regression, 4 when nothing could be judged, else 0."""
    outcomes = {finding.outcome for finding in found}
    if "regressed" in outcomes:
        return 3
    return 0 if outcomes - NOTHING_SAID else 4


def lines(found: Sequence[Finding]) -> list[str]:
    """Return one line per finding that says something, and the counts, which add up."""
    told = []
    for finding in found:
        if finding.outcome == "no change" and finding.p is None:
            continue
        told.append(f"{finding.outcome}: {finding.case_key} {finding.metric}: {finding.text}")
        if finding.outcome in ("regressed", "model changed", "flaky"):
            told.append(f"  see: {finding.command}")
    counts: dict[str, int] = {}
    for finding in found:
        counts[finding.outcome] = counts.get(finding.outcome, 0) + 1
    listed = ", ".join(f"{number} {outcome}" for outcome, number in counts.items())
    return [*told, f"{len(found)} comparisons: {listed or 'nothing to compare'}"]


def main(argv: list[str]) -> int:
    """Print the findings of a run against its history; return 0, 3 or 4."""
    from benchbench import warehouse
    from benchbench.cli import results_folder
    from benchbench.store import find_run

    parser = argparse.ArgumentParser(
        prog="python -m benchbench check",
        description="Gate: the latest (or given) run against its history. "
        "Exit code 3 on a regression, 4 when there is nothing to say.",
    )
    add = parser.add_argument
    add("run", nargs="?", default="latest", help="run id, folder, latest, previous")
    add("--results-dir", metavar="DIR")
    add("--metric", action="append", metavar="NAME", help=f"default: {', '.join(history.PRIMARY)}")
    add("--since", metavar="RUN", help="older runs do not count (accept a change this way)")
    add("--json", action="store_true", help="a JSON list of findings")
    arguments = parser.parse_args(argv)
    metrics = [history.metric(name).name for name in arguments.metric or history.PRIMARY]
    folder: Path = results_folder(arguments.results_dir)
    run_dir = find_run(folder, arguments.run)
    since = find_run(folder, arguments.since).name if arguments.since else None
    damage: list[str] = []
    cases = {point.case_key for point in warehouse.run_points(run_dir, damage)}
    excerpt = warehouse.read(run_dir.parent, cases=cases, until=run_dir.name, since=since)
    found = findings(excerpt.points, run_dir.name, metrics=metrics)
    if arguments.json:
        text = json.dumps([msgspec.to_builtins(f) for f in found], ensure_ascii=False, indent=2)
    else:
        text = "\n".join([*lines(found), *(f"damaged: {what}" for what in excerpt.damage)])
    sys.stdout.write(f"{text}\n")
    return exit_code(found)
