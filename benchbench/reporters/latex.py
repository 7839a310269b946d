"""The table for LaTeX (packages booktabs; xelatex or lualatex for Chinese names)."""

from __future__ import annotations

from tabulate import tabulate

from benchbench import format as text
from benchbench.compare import View

suffix = ".tex"

_ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "±": r"\(\pm\)",
    "µ": r"\(\mu\)",
}


def render(view: View) -> str:
    """Return a ``tabular`` and the summary as comments above it."""
    chosen = text.columns()
    table = tabulate(
        [[escape(cell) for cell in row] for row in text.cells(view, chosen)],
        headers=[escape(column.title) for column in chosen],
        tablefmt="latex_raw",
        disable_numparse=True,
        colalign=[column.align for column in chosen] if view.rows else None,
    )
    for rule in (r"\toprule", r"\midrule", r"\bottomrule"):
        table = table.replace(r"\hline", rule, 1)
    comments = [*text.summary_lines(view), *text.legend(view), *text.reading_notes(view)]
    return "".join(f"% {text.clean(line)}\n" for line in comments) + table + "\n"


def escape(cell: str) -> str:
    """Return text that LaTeX prints literally."""
    return "".join(_ESCAPES.get(character, character) for character in cell)
