"""Rows that an earlier run has measured already and that nothing has changed since."""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from benchbench import paths
from benchbench.caveats import Caveat
from benchbench.records import Case, Plan, Record, Samples
from benchbench.store import find_run, load_run

_SAME_FACTS = ("packages", "host")


@dataclass(frozen=True, slots=True)
class Earlier:
    """What a run may take over from an earlier one."""

    records: dict[str, Record]
    samples: dict[str, list[Samples]]

    @classmethod
    def load(cls, results_dir: Path, name: str | None) -> Earlier:
        """Read the run that ``name`` means. Raises :class:`StoreError` when there is none."""
        if name is None:
            return cls({}, {})
        run = load_run(find_run(results_dir, name))
        # Rows of one key: the last one is the one that counts.
        return cls({record.case_key: record for record in run.records}, run.samples)

    def take_over(self, plan: Plan, case: Case, facts: dict[str, Any]) -> Record | None:
        """Return the earlier row for this case, or ``None`` when it has to run (again).

        Only good rows count, of the same case under the same settings, whose sources have the
        same content now, measured with the same packages on the same machine.
        """
        record = self.records.get(case.key)
        if record is None or record.status != "ok" or not _same_case(record.case, case):
            return None
        if (record.policy, record.settings) != (plan.policy, plan.settings):
            return None
        if plan.accuracy and case.mode != plan.baseline and not _was_checked(record):
            return None
        if _changed_sources(record, plan.search_paths) or _other_place(record, facts):
            return None
        origin = record.from_run or record.run_id
        return msgspec.structs.replace(
            record,
            from_run=origin,
            caveats=list(dict.fromkeys([*record.caveats, Caveat.RESUMED.name])),
            notes=[*record.notes, f"taken over from run {origin}"],
        )


def _was_checked(record: Record) -> bool:
    return record.accuracy is not None and record.accuracy.verdict != "off"


def _same_case(one: Case, other: Case) -> bool:
    """Compare all but the alias that was typed."""
    return msgspec.structs.replace(one, mode_typed=None) == msgspec.structs.replace(
        other, mode_typed=None
    )


def _other_place(record: Record, facts: dict[str, Any]) -> bool:
    known = record.environment
    return any(known[name] != facts.get(name) for name in _SAME_FACTS if name in known)


def _changed_sources(record: Record, search_paths: Iterable[str]) -> bool:
    """Say whether a file that the model was made from is gone or has another content."""
    if not record.model_sources:
        return True
    roots = [paths.PACKAGE.parent, *map(Path, search_paths), *map(Path, sys.path)]
    return any(_sha256_of(name, roots) != known for name, known in record.model_sources.items())


def _sha256_of(name: str, roots: Iterable[Path]) -> str | None:
    """Hash a file that is named by its path below one of the folders modules come from."""
    for root in roots:
        file = root / name
        if file.is_file():
            return hashlib.sha256(file.read_bytes()).hexdigest()
    return None
