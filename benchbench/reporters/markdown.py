"""The table in GitHub's Markdown, with the sentences that belong to it as a list."""

from __future__ import annotations

import re

from tabulate import tabulate

from benchbench import format as text
from benchbench.compare import View

suffix = ".md"

# What would end a cell, start markup or smuggle a tag in. `_` inside words is harmless.
_SPECIAL = re.compile(r"([\\|`*~\[\]])")


def render(view: View) -> str:
    """Return the table and, below it, legend, differences and summary."""
    chosen = text.columns("reason")
    table = tabulate(
        [[escape(cell) for cell in row] for row in text.cells(view, chosen)],
        headers=[escape(column.title) for column in chosen],
        tablefmt="github",
        disable_numparse=True,
        colalign=[column.align for column in chosen] if view.rows else None,
    )
    listed = "\n".join(f"- {escape(line)}" for line in text.sentences(view))
    return f"{table}\n\n{listed}\n"


def escape(cell: str) -> str:
    """Return text that Markdown shows literally, inside a table and outside."""
    cell = cell.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _SPECIAL.sub(r"\\\1", cell)
