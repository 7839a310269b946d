"""Where a series changed its level, and what changed in the environment just then.

Pure. The partition into levels is the exact minimiser of squared error plus a penalty per level
(what PELT computes; docs/design.md says why it is written out here), on logarithms, with isolated
spikes set aside first. A boundary counts only when it is larger than the metric's margin, has at
least three runs on either side, and a t test with sample standard deviations puts it below
p = 1e-4: with the usual p of 0.001 and levels of a single run, a third of the series that never
changed raise an alarm within 40 runs (docs/method.md).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from benchbench.history import Metric, Point, Series, cause_name

Floats = NDArray[np.float64]

MIN_RUNS = 3
"""Runs that a level needs to be one."""
MAX_P = 1e-4
"""Largest p of a change point."""

_PENALTY = 3.0  # times log(n) noise variances per level: over-segments, and the test below prunes
_SPIKE = 5.0  # robust standard deviations off its six neighbours: a spike, not a level
_SPIKE_WINDOW = 7
_WELCH_FROM = 8  # runs on either side from which unequal variances can be estimated
_ALL_BEYOND = 6  # a level of fewer runs must lie on one side of the old one, run by run
_NOISE_FLOOR = 0.1  # of the margin: series without noise have no changes below it
_BACKGROUND = 1 / 3  # a fact that changes in more than this share of the runs explains no step

Kind = Literal["attributed", "confounded", "unexplained", "model changed"]


class FactChange(msgspec.Struct, frozen=True):
    """One version, setting or source that was another one before."""

    name: str
    before: str
    after: str

    @property
    def text(self) -> str:
        """``CANN 8.3 -> 8.5``."""
        return f"{self.name} {self.before} -> {self.after}"


class Cause(msgspec.Struct, frozen=True, kw_only=True):
    """What changed when the level did."""

    kind: Kind
    changes: tuple[FactChange, ...] = ()

    @property
    def text(self) -> str:
        """Return one phrase: the change, ``confounded: ...``, or that nothing known changed."""
        listed = "; ".join(change.text for change in self.changes)
        if self.kind == "unexplained":
            return "no recorded version changed then"
        if self.kind == "confounded":
            return f"confounded, {len(self.changes)} changed at once: {listed}"
        if self.kind == "model changed":
            return "model source or weights changed" + (f"; {listed}" if listed else "")
        return f"with {listed}"


class Segment(msgspec.Struct, frozen=True, kw_only=True):
    """One level: runs ``start`` (included) to ``stop`` (not included)."""

    start: int
    stop: int
    level: float
    """Median, in the metric's unit."""
    sd: float
    """Standard deviation between runs without spikes: relative, or in counts."""
    n: int
    """Runs without spikes."""


class ChangePoint(msgspec.Struct, frozen=True, kw_only=True):
    """The run with which a new level began."""

    index: int
    run_id: str
    """First run of the new level."""
    previous_run_id: str
    before: float
    after: float
    """Levels in the metric's unit."""
    change: float | None
    """after / before - 1, a fraction; ``None`` from a count of zero."""
    low: float | None = None
    high: float | None = None
    """95 % interval of the change."""
    p: float | None = None
    """``None`` at a change of the model, which is no test."""
    n_before: int
    n_after: int
    worse: bool
    cause: Cause


# ---- scales -------------------------------------------------------------------------------------


def scaled(metric: Metric, values: Sequence[float]) -> Floats:
    """Return logarithms, on which a margin is a distance; counts stay as they are."""
    x = np.asarray(values, dtype=np.float64)
    return x if metric.exact else np.log(x)


def unscaled(metric: Metric, value: float) -> float:
    """Return a value in the metric's unit again."""
    return float(value) if metric.exact else math.exp(value)


def margin_of(metric: Metric) -> float:
    """Return the smallest distance that matters on the scale of :func:`scaled`."""
    return 0.5 if metric.exact else math.log1p(metric.margin)


def noise_of(x: Floats, floor: float) -> float:
    """Return a standard deviation that steps and spikes hardly feel: from neighbours' distances."""
    if x.size < 2:
        return floor
    # 0.9539 = 0.6745 * sqrt(2): the median absolute difference of neighbours of a normal series.
    return max(float(np.median(np.abs(np.diff(x)))) / 0.9539, floor)


def regular(x: Floats, *, floor: float) -> NDArray[np.bool_]:
    """Return which values are no isolated spikes; the last two may be the start of a level."""
    n, half = x.size, _SPIKE_WINDOW // 2
    if n < _SPIKE_WINDOW:
        return np.ones(n, dtype=np.bool_)
    padded = np.pad(x, half, mode="reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, _SPIKE_WINDOW)
    away = np.abs(x - np.median(windows, axis=1))
    spread = max(1.4826 * float(np.median(away)), noise_of(x, floor) / 2, floor)
    keep = np.asarray(away <= _SPIKE * spread, dtype=np.bool_)
    keep[-2:] = True
    return keep


# ---- the partition ------------------------------------------------------------------------------


def partition(x: Floats, penalty: float, min_size: int = MIN_RUNS) -> list[int]:
    """Return the inner boundaries of the partition with the least squared error plus penalties."""
    n = int(x.size)
    if n < 2 * min_size:
        return []
    centred = x - x.mean()
    sums = np.concatenate([[0.0], np.cumsum(centred)])
    squares = np.concatenate([[0.0], np.cumsum(centred**2)])
    size = np.arange(n + 1)[None, :] - np.arange(n + 1)[:, None]
    with np.errstate(divide="ignore", invalid="ignore"):
        cost = squares[None, :] - squares[:, None] - (sums[None, :] - sums[:, None]) ** 2 / size
    cost[size < min_size] = np.inf
    best = np.full(n + 1, np.inf)
    best[0] = -penalty
    last = np.zeros(n + 1, dtype=np.int64)
    for end in range(min_size, n + 1):
        total = best[:end] + cost[:end, end]
        last[end] = int(total.argmin())
        best[end] = total[last[end]] + penalty
    bounds, end = [], int(last[n])
    while end > 0:
        bounds.append(end)
        end = int(last[end])
    return bounds[::-1]


class _Test(msgspec.Struct, frozen=True):
    p: float
    difference: float
    half: float
    """Half-width of the 95 % interval of the difference."""


def t_test(a: Floats, b: Floats, floor: float) -> _Test:
    """Compare two levels: with one variance while one side is short, with two (Welch) later.

    Three runs cannot tell their own variance: Welch's test would then need a step of some thirty
    standard deviations. That a short level lies wholly on one side is asked for separately.
    """
    from scipy.special import stdtr, stdtrit

    n, m = a.size, b.size
    var_a = float(a.var(ddof=1)) if n > 1 else 0.0
    var_b = float(b.var(ddof=1)) if m > 1 else 0.0
    if min(n, m) >= _WELCH_FROM:
        va, vb = max(var_a, floor**2) / n, max(var_b, floor**2) / m
        error = math.sqrt(va + vb)
        freedom = (va + vb) ** 2 / (va**2 / (n - 1) + vb**2 / (m - 1))
    else:
        freedom = float(max(n + m - 2, 1))
        pooled = max(((n - 1) * var_a + (m - 1) * var_b) / freedom, floor**2)
        error = math.sqrt(pooled * (1 / n + 1 / m))
    difference = float(b.mean() - a.mean())
    p = 2.0 * float(stdtr(freedom, -abs(difference) / error))
    return _Test(p=p, difference=difference, half=float(stdtrit(freedom, 0.975)) * error)


def _counts(a: Floats, b: Floats, margin: float, floor: float) -> _Test | None:
    """Return the test of a boundary that counts, ``None`` for one that does not."""
    shift = float(np.median(b) - np.median(a))
    if abs(shift) <= margin:
        return None
    small, other = (a, b) if a.size <= b.size else (b, a)
    if small.size < _ALL_BEYOND:
        towards = -1.0 if (small is a) == (shift > 0) else 1.0
        side = (small - float(np.median(other))) * towards
        if bool((side <= margin / 2).any()):
            return None
    found = t_test(a, b, floor)
    return found if found.p < MAX_P and abs(found.difference) > margin else None


def boundaries(x: Floats, margin: float) -> list[int]:
    """Return the first index of every level but the first one, on the scale of :func:`scaled`."""
    floor = _NOISE_FLOOR * margin
    keep = np.flatnonzero(regular(x, floor=floor))
    y = x[keep]
    if y.size < 2 * MIN_RUNS or _is_flat(y, margin):
        return []
    penalty = _PENALTY * math.log(y.size) * noise_of(y, floor) ** 2
    bounds = partition(y, penalty)
    while bounds:
        edges = [0, *bounds, y.size]
        worst, weakest = -1.0, -1
        for k in range(len(bounds)):
            a, b = y[edges[k] : edges[k + 1]], y[edges[k + 1] : edges[k + 2]]
            if _counts(a, b, margin, floor) is None:
                weakness = 1.0 / (1e-12 + abs(float(np.median(b) - np.median(a))))
                if weakness > worst:
                    worst, weakest = weakness, k
        if weakest < 0:
            break
        del bounds[weakest]
    return [int(keep[bound]) for bound in bounds]


def _is_flat(y: Floats, margin: float) -> bool:
    """No three neighbours' median lies a margin away from another: no level can have changed."""
    triples = np.median(np.lib.stride_tricks.sliding_window_view(y, MIN_RUNS), axis=1)
    return bool(triples.max() - triples.min() <= margin)


# ---- levels of a series -------------------------------------------------------------------------


def eras(points: Sequence[Point]) -> list[int]:
    """Return the indices at which the model's sources or weights are others than before."""
    found, known = [], None
    for index, point in enumerate(points):
        if point.sources is None:
            continue
        if known is not None and point.sources != known:
            found.append(index)
        known = point.sources
    return found


def segments(series: Series) -> list[Segment]:
    """Return the levels of a series, in order; a change of the model always starts a new one."""
    x = scaled(series.metric, series.values)
    margin = margin_of(series.metric)
    edges = [0, *eras(series.points), len(series.values)]
    starts: list[int] = []
    for start, stop in itertools.pairwise(edges):
        if stop > start:
            starts += [start, *(start + bound for bound in boundaries(x[start:stop], margin))]
    stops = [*starts[1:], len(series.values)]
    return [
        _segment(series.metric, x, start, stop) for start, stop in zip(starts, stops, strict=True)
    ]


def _segment(metric: Metric, x: Floats, start: int, stop: int) -> Segment:
    part = x[start:stop]
    floor = _NOISE_FLOOR * margin_of(metric)
    kept = part[regular(part, floor=floor)]
    return Segment(
        start=start,
        stop=stop,
        level=unscaled(metric, float(np.median(kept))),
        sd=float(kept.std(ddof=1)) if kept.size > 1 else 0.0,
        n=int(kept.size),
    )


def change_points(series: Series, levels: Sequence[Segment] | None = None) -> list[ChangePoint]:
    """Return where the level changed, oldest first, each with what changed in the environment.

    Where the model's sources or weights changed, the step is the model's and is called so.
    """
    levels = segments(series) if levels is None else levels
    new_models = set(eras(series.points))
    found = []
    for old, new in itertools.pairwise(levels):
        point = _change_point(series, old, new, new.start in new_models)
        if point is not None:
            found.append(point)
    return found


def _change_point(
    series: Series, old: Segment, new: Segment, model_changed: bool
) -> ChangePoint | None:
    metric = series.metric
    x = scaled(metric, series.values)
    margin = margin_of(metric)
    floor = _NOISE_FLOOR * margin
    a, b = x[old.start : old.stop], x[new.start : new.stop]
    a, b = a[regular(a, floor=floor)], b[regular(b, floor=floor)]
    if model_changed and abs(float(np.median(b) - np.median(a))) <= margin:
        return None
    test = t_test(a, b, floor)
    change = new.level / old.level - 1 if old.level > 0 else None
    relative = not metric.exact
    return ChangePoint(
        index=new.start,
        run_id=series.points[new.start].origin,
        previous_run_id=series.points[new.start - 1].origin,
        before=old.level,
        after=new.level,
        change=change,
        low=math.expm1(test.difference - test.half) if relative else None,
        high=math.expm1(test.difference + test.half) if relative else None,
        p=None if model_changed else test.p,
        n_before=old.n,
        n_after=new.n,
        worse=(new.level > old.level) == (metric.better == "lower"),
        cause=cause_at(series.points, new.start, model_changed=model_changed),
    )


# ---- what changed then --------------------------------------------------------------------------


def _named(point: Point) -> dict[str, str]:
    return {**point.facts, "commit": point.commit}


def fact_changes(before: Point, after: Point) -> dict[str, FactChange]:
    """Return cause -> change between two rows; versions known by several names count once."""
    old, new = _named(before), _named(after)
    found: dict[str, FactChange] = {}
    for fact in sorted({*old, *new}, key=lambda name: (len(name), name)):
        if old.get(fact) == new.get(fact):
            continue
        name = cause_name(fact)
        if name is not None and name not in found:
            was, now = old.get(fact, "absent"), new.get(fact, "absent")
            found[name] = FactChange(name, was, now)
    return found


def environment_changes(points: Sequence[Point]) -> dict[int, list[FactChange]]:
    """Return index -> what changed with that run, for each run at which something did."""
    found = {}
    for index in range(1, len(points)):
        changes = fact_changes(points[index - 1], points[index])
        if changes:
            found[index] = list(changes.values())
    return found


def cause_at(points: Sequence[Point], index: int, *, model_changed: bool = False) -> Cause:
    """Return what changed with run ``index``, or failing that one run before or after.

    A fact that differs between most runs, such as the commit of a nightly run, is no cause beside
    one that changed just then; it is named where nothing else changed.
    """
    rest: list[FactChange] = []
    changes: list[FactChange] = []
    for place in (index, index - 1, index + 1):
        if not 0 < place < len(points):
            continue
        here = fact_changes(points[place - 1], points[place])
        usual = _background(points, here)
        changes = [change for name, change in here.items() if name not in usual]
        if place == index:
            rest = [change for name, change in here.items() if name in usual]
        if changes or model_changed:
            break
    if model_changed:
        return Cause(kind="model changed", changes=tuple(changes))
    changes = changes or rest
    if not changes:
        return Cause(kind="unexplained")
    kind: Kind = "attributed" if len(changes) == 1 else "confounded"
    return Cause(kind=kind, changes=tuple(changes))


def _background(points: Sequence[Point], among: Mapping[str, FactChange]) -> set[str]:
    """Return those of the changed facts that change all the time."""
    counted = dict.fromkeys(among, 0)
    if not counted:
        return set()
    for before, after in itertools.pairwise(points):
        if before.facts is after.facts and before.commit == after.commit:
            continue
        for name in fact_changes(before, after):
            if name in counted:
                counted[name] += 1
    steps = max(len(points) - 1, 1)
    return {name for name, n in counted.items() if n >= 3 and n > _BACKGROUND * steps}
