"""The table for a terminal: fits its width, aligns wide characters, explains itself below.

No colour and no escape codes, so that a pipe, a log and a screen show the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tabulate import tabulate

from benchbench import format as text
from benchbench.compare import Row, View
from benchbench.format import Column
from benchbench.records import GraphEvidence, Record

suffix = ".txt"

_LEAST_MODE_WIDTH = 14
_MOST_BREAKS = 3


def render(view: View) -> str:
    """Return table, legend, failures, counts, best modes and means."""
    if not view.rows:
        return "\n".join(["no rows", *_section(_about(view))]) + "\n"
    notes = _Notes(view)
    table, left_out = _fitted(view, notes)
    lines = [*table]
    lines += _section([*text.legend(view), *text.reading_notes(view), *_left_out(left_out, view)])
    lines += _section(list(notes.lines()))
    lines += _section([*_graph_lines(view), *text.difference_lines(view)])
    lines += _section(text.summary_lines(view))
    lines += _section(_about(view))
    return "\n".join(lines) + "\n"


def _section(lines: Sequence[str]) -> list[str]:
    return ["", *lines] if lines else []


# ---- the table ------------------------------------------------------------------------------


def _fitted(view: View, notes: _Notes) -> tuple[list[str], list[Column]]:
    """Return the table's lines, with columns left out until it fits the terminal."""
    everything = [column for column in text.columns() if not column.heading]
    table = _table(view, notes, everything)
    if view.width is None or text.width_of(table[0]) <= view.width:
        return table, []
    chosen = [column for column in everything if not column.drop]
    table = _table(view, notes, chosen)
    if text.width_of(table[0]) > view.width:
        table = _with_short_modes(view, notes, chosen, table)
    for column in sorted(everything, key=lambda column: column.drop):
        tried = [c for c in everything if c in chosen or c is column]
        wider = _table(view, notes, tried)
        if column not in chosen and text.width_of(wider[0]) <= view.width:
            chosen, table = tried, wider
    return table, [column for column in everything if column not in chosen]


def _with_short_modes(
    view: View, notes: _Notes, chosen: list[Column], table: list[str]
) -> list[str]:
    assert view.width is not None  # a table without a limit always fits
    widest = max(text.width_of(_cell(row, _mode_column(chosen), notes)) for row in view.rows)
    limit = max(_LEAST_MODE_WIDTH, widest - (text.width_of(table[0]) - view.width))
    return _table(view, notes, chosen, mode_width=limit)


def _mode_column(chosen: list[Column]) -> Column:
    return next(column for column in chosen if column.key == "mode")


def _table(
    view: View, notes: _Notes, chosen: list[Column], mode_width: int | None = None
) -> list[str]:
    """Return lines of equal display width; a line of its own names each group of rows."""
    body = [[_cell(row, column, notes) for column in chosen] for row in view.rows]
    if mode_width is not None:
        place = chosen.index(_mode_column(chosen))
        for cells in body:
            cells[place] = text.cut(cells[place], mode_width)
    drawn = tabulate(
        body,
        headers=[column.title for column in chosen],
        tablefmt="pretty",
        disable_numparse=True,
        colalign=[column.align for column in chosen],
        headersglobalalign="left",
    ).split("\n")
    top, header, rule, *rows, bottom = drawn
    lines = [top, header, rule]
    group = None
    for row, line in zip(view.rows, rows, strict=True):
        if row.group != group:
            group = row.group
            lines += _heading(group, text.width_of(top))
        lines.append(line)
    return [*lines, bottom]


def _heading(group: str, width: int) -> Iterator[str]:
    """Yield the group's name as rows across the whole table, broken where it is too long."""
    room = width - 4
    rest = text.clean(group)
    while rest:
        taken = rest
        while text.width_of(taken) > room and len(taken) > 1:
            taken = taken[:-1]
        yield f"| {taken}{' ' * (room - text.width_of(taken))} |"
        rest = rest[len(taken) :]


def _cell(row: Row, column: Column, notes: _Notes) -> str:
    cell = column.cell(row) or "none"
    number = notes.number(row) if column.key == "status" else None
    return f"{cell} [{number}]" if number else cell


# ---- below it -------------------------------------------------------------------------------


class _Notes:
    """Numbered reasons; rows with the very same reason share a number."""

    def __init__(self, view: View) -> None:
        self._rows: dict[tuple[str, ...], list[Row]] = {}
        self._numbers: dict[int, int] = {}
        for row in view.rows:
            if _said(row) == "none":
                continue
            members = self._rows.setdefault(self._key(row), [])
            members.append(row)
        for number, members in enumerate(self._rows.values(), start=1):
            for row in members:
                self._numbers[id(row)] = number

    @staticmethod
    def _key(row: Row) -> tuple[str, ...]:
        shared = (row.mode, text.status_word(row.record), _said(row))
        return shared if row.status in ("skipped", "ok") else (*shared, row.group)

    def number(self, row: Row) -> int | None:
        return self._numbers.get(id(row))

    def lines(self) -> Iterator[str]:
        for number, members in enumerate(self._rows.values(), start=1):
            yield from _note(number, members)


def _said(row: Row) -> str:
    """Return why a row has no figures, else what limits them; ``none`` when nothing does."""
    found = text.reason(row)
    return found if found != "none" else text.doubts(row)


def _note(number: int, members: list[Row]) -> Iterator[str]:
    row = members[0]
    mark = f"[{number}]"
    where = f", {text.clean(row.group)}" if len(members) == 1 else f" ({len(members)} cases)"
    yield f"{mark} {text.clean(row.mode)}{where}: {_happened(row.record)}{_said(row)}"
    failure = row.record.failure
    if failure is None:
        return
    indent = " " * (len(mark) + 1)
    if failure.hint:
        yield f"{indent}hint: {text.clean(failure.hint)}"
    if row.status in ("skipped", "not_run"):
        return
    if failure.log:
        yield f"{indent}log: {text.clean(failure.log)}"
    if failure.rerun:
        yield f"{indent}run again: {text.clean(failure.rerun)}"


def _happened(record: Record) -> str:
    word, failure = text.status_word(record), record.failure
    if failure is None:
        return ""
    if record.status in ("skipped", "not_run"):
        return f"{word}: "
    return f"{word} in phase {failure.phase} ({text.clean(failure.kind)}): "


def _graph_lines(view: View) -> Iterator[str]:
    for row in view.rows:
        if row.record.graph is not None:
            name = f"{text.clean(row.mode)}, {text.clean(row.group)}"
            yield from (f"{name}: {line}" for line in _evidence(row.record.graph))


def _evidence(graph: GraphEvidence) -> Iterator[str]:
    breaks = [
        f"graph break: {text.clean(found.reason)}"
        + (f" at {text.clean(found.location)}" if found.location else "")
        for found in graph.breaks
    ]
    recompiles = [f"recompiled: {text.clean(found)}" for found in graph.recompiles]
    skips = [f"no device graph: {text.clean(found)}" for found in graph.skips]
    for lines in (breaks, recompiles, skips):
        yield from lines[:_MOST_BREAKS]
        if len(lines) > _MOST_BREAKS:
            yield f"and {len(lines) - _MOST_BREAKS} more like that (records.jsonl has all)"


def _left_out(left_out: list[Column], view: View) -> list[str]:
    if not left_out:
        return []
    names = ", ".join(column.title for column in left_out)
    where = f"{view.run_dir}/table.csv" if view.run_dir else "the csv format"
    return [f"left out for this width: {names} ({where} has them)"]


def _about(view: View) -> list[str]:
    lines = [f"note: {text.clean(note)}" for note in view.notes]
    lines += [f"warning: {text.clean(warning)}" for warning in view.warnings]
    lines += [f"damaged: {text.clean(damage)}" for damage in view.damage]
    if view.run_dir:
        lines.append(f"results: {text.clean(view.run_dir)}")
    return lines
