"""The table as a piece of HTML, to be put into a page; every text is escaped."""

from __future__ import annotations

import html

from benchbench import format as text
from benchbench.compare import View

suffix = ".html"


def render(view: View) -> str:
    """Return a ``table`` and a list with legend and summary."""
    chosen = text.columns("reason")
    head = "".join(f'<th class="{c.align}">{html.escape(c.title)}</th>' for c in chosen)
    lines = ["<table>", f"<thead><tr>{head}</tr></thead>", "<tbody>"]
    for row, cells in zip(view.rows, text.cells(view, chosen), strict=True):
        inner = "".join(
            f'<td class="{column.align}">{html.escape(cell)}</td>'
            for column, cell in zip(chosen, cells, strict=True)
        )
        lines.append(f'<tr class="{html.escape(row.status)}">{inner}</tr>')
    lines += ["</tbody>", "</table>", "<ul>"]
    lines += [f"<li>{html.escape(line)}</li>" for line in text.sentences(view)]
    return "\n".join([*lines, "</ul>"]) + "\n"
