"""The table for programs: one line per row, SI units, full precision, a word where no number is."""

from __future__ import annotations

import csv
import io

from benchbench import format as text
from benchbench.compare import Row, View

suffix = ".csv"


def render(view: View) -> str:
    """Return CSV with every column, hidden ones included; it reads back to the same values.

    Where a figure cannot be given the cell holds a word: the row's status, or ``none`` in an
    ``ok`` row. ``pandas.to_numeric(..., errors="coerce")`` turns those into gaps.
    """
    raw = [item for column in text.COLUMNS for item in column.raw]
    table = [[item.name for item in raw]]
    table += [[_cell(item.value(row), row) for item in raw] for row in view.rows]
    # The csv module (up to Python 3.12) forgets to quote a lone carriage return.
    odd = any("\r" in cell for line in table for cell in line)
    buffer = io.StringIO()
    writer = csv.writer(
        buffer, lineterminator="\n", quoting=csv.QUOTE_ALL if odd else csv.QUOTE_MINIMAL
    )
    writer.writerows(table)
    return buffer.getvalue()


def _cell(value: float | int | str | None, row: Row) -> str:
    if value is None or value == "":
        return "none" if row.status == "ok" else row.status
    return repr(value) if isinstance(value, float) else str(value)
