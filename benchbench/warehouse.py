"""Many runs as one history: the rows that a question needs, read newest first.

A question is about the cases of one run, and is answered from its last runs and its first ones.
So the folder is read from both ends and reading stops when there is enough: the cost depends on
what is asked, not on how many runs there are. Nothing is cached, so nothing can be stale.
"""

from __future__ import annotations

import fnmatch
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from benchbench.errors import StoreError
from benchbench.history import Point, point_of
from benchbench.store import RECORDS, list_runs, read_records

LAST = 100
"""Runs with the asked cases that are read, newest first."""
FIRST = 10
"""Oldest runs that are read as well: slow drift is invisible to neighbours."""


@dataclass(frozen=True, slots=True)
class Excerpt:
    """Rows of several runs in no promised order, and every defect that reading met."""

    points: list[Point]
    damage: list[str] = field(default_factory=list)
    runs: int = 0


def run_points(run_dir: Path, damage: list[str]) -> list[Point]:
    """Return the rows of one run; none for a run that has not stored one yet."""
    path = run_dir / RECORDS
    if not path.exists():
        return []
    found: list[str] = []
    points = [point_of(record) for record in read_records(path, found)]
    damage += [f"{run_dir.name}/{text}" for text in found]
    return points


def read(
    results_dir: Path,
    *,
    cases: Collection[str] | None = None,
    patterns: Iterable[str] = (),
    until: str | None = None,
    since: str | None = None,
    last: int = LAST,
    first: int = FIRST,
) -> Excerpt:
    """Return the rows of the last and the first runs that have any of the asked cases.

    ``cases`` are case keys, ``patterns`` are shell patterns over them; without either every case
    counts. ``until`` and ``since`` are run ids, both included. Raises :class:`StoreError` when
    the folder holds no run.
    """
    wanted = list(patterns)
    runs = [
        run
        for run in list_runs(results_dir)
        if (until is None or run <= until) and (since is None or run >= since)
    ]
    if not runs:
        raise StoreError(f"no run in {results_dir}\n  next: python -m benchbench")
    result = Excerpt([], [], len(runs))

    def take(run: str) -> bool:
        rows = [
            point
            for point in run_points(results_dir / run, result.damage)
            if (cases is None or point.case_key in cases)
            and (not wanted or any(fnmatch.fnmatchcase(point.case_key, p) for p in wanted))
        ]
        result.points.extend(rows)
        return bool(rows)

    at, taken = len(runs), 0
    while at > 0 and taken < last:
        at -= 1
        taken += take(runs[at])
    start, taken = 0, 0
    while start < at and taken < first:
        taken += take(runs[start])
        start += 1
    return result


def machines(points: Iterable[Point]) -> Counter[str]:
    """Return class of machine -> rows."""
    return Counter(point.host_class for point in points)
