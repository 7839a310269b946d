"""Every reporter over the same rows: failed, skipped, noisy, and names that break tables.

Covers cases 70 (wide characters, pipes, newlines, tags), 71 (what an ASCII stream does), 19 (long
Chinese reasons), 80 (n of m). Run with ``BENCHBENCH_UPDATE_GOLDEN=1`` to write the files anew.
"""

from __future__ import annotations

import csv
import io
import os
import re
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType

import pytest
from some_records import RUN_ID, make_case, make_failed, make_record, many_sided
from wcwidth import wcswidth

from benchbench import compare
from benchbench.compare import View
from benchbench.reporters import csv_table, html_table, latex, markdown, terminal

GOLDEN = Path(__file__).parent.parent / "golden"
REPORTERS = [terminal, markdown, csv_table, latex, html_table]

NAMES = [
    "模型测试",
    "a|b",
    "x\ny",
    "👨\u200d👩\u200d👧",
    "e\u0301 e\u0301",
    "<b>x</b>",
    "\\",
    "\x1b[31mred",
    "a\r\tb",
]


def make_view(width: int | None = None) -> View:
    return compare.view(
        many_sided(),
        baseline="eager",
        run_dir=f"results/{RUN_ID}",
        warnings=["clock | odd"],
        damage=["records.jsonl:3: torn"],
        width=width,
    )


def one_model(name: str, width: int | None = None) -> View:
    records = [
        make_record("eager", model=name),
        make_record("inductor", 0.001, case=make_case("inductor", name, options={"o": name})),
        make_failed("max-autotune", model=name),
    ]
    return compare.view(records, baseline="eager", width=width)


@pytest.mark.parametrize(
    ("reporter", "width", "name"),
    [
        (terminal, None, "table.txt"),
        (terminal, 100, "table_100.txt"),
        (markdown, None, "table.md"),
        (csv_table, None, "table.csv"),
        (latex, None, "table.tex"),
        (html_table, None, "table.html"),
    ],
)
def test_golden(reporter: ModuleType, width: int | None, name: str) -> None:
    text = reporter.render(make_view(width))
    path = GOLDEN / name
    if os.environ.get("BENCHBENCH_UPDATE_GOLDEN"):
        path.write_bytes(text.encode())
    assert text == path.read_bytes().decode()


@pytest.mark.parametrize("reporter", REPORTERS)
def test_rendering_is_pure_and_has_no_holes(reporter: ModuleType) -> None:
    view = make_view()
    text = reporter.render(view)
    assert reporter.render(view) == text
    assert "\x1b" not in text
    assert not re.search(r"\bnan\b|\bNone\b", text)
    assert text.endswith("\n")
    text.encode("utf-8")


@pytest.mark.parametrize("reporter", REPORTERS)
def test_no_rows_at_all(reporter: ModuleType) -> None:
    assert reporter.render(compare.view([], baseline="eager")).strip()


@pytest.mark.parametrize("reporter", REPORTERS)
def test_an_ascii_stream_can_take_it(reporter: ModuleType) -> None:
    """Case 71: what prints it replaces what the stream cannot show; nothing else is needed."""
    reporter.render(make_view()).encode("ascii", "backslashreplace").decode("ascii")


# ---- terminal -------------------------------------------------------------------------------


def table_lines(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith(("|", "+"))]


@pytest.mark.parametrize("width", [None, 200, 120, 80, 60])
@pytest.mark.parametrize("name", [*NAMES, "型" * 120])
def test_terminal_lines_have_equal_display_width(name: str, width: int | None) -> None:
    lines = table_lines(terminal.render(one_model(name, width)))
    assert len(lines) >= 8
    assert len({wcswidth(line) for line in lines}) == 1
    assert wcswidth(lines[0]) > 0


@pytest.mark.parametrize("width", [200, 120, 100, 80])
def test_terminal_table_fits_its_width_and_says_what_it_left_out(width: int) -> None:
    text = terminal.render(make_view(width))
    assert all(wcswidth(line) <= width for line in table_lines(text))
    if width < 200:
        assert "left out for this width: " in text
        assert "throughput" in text.split("left out for this width: ")[1].splitlines()[0]
    for needed in ("latency", "speedup", "status", "mode"):
        assert needed in table_lines(text)[1]


def test_terminal_tells_failures_in_sentences() -> None:
    text = terminal.render(make_view())
    assert "[1] npugraph_ex (2 cases): skipped: no NPU on this machine" in text
    assert "failed in phase compile (Unsupported): 流资源不足" in text
    assert "hint: write a converter" in text
    assert "log: logs/max-autotune.log" in text
    assert "run again: python -m benchbench model=模型测试 mode=max-autotune" in text
    assert "8 rows: 4 ok, 1 failed, 1 timeout, 2 skipped" in text
    assert "1.32x faster than eager" in text
    assert "2 of 2 cases" in text
    assert "damaged: records.jsonl:3: torn" in text
    assert "graph break: call to print | \\n here at mlp.py:12" in text


# ---- markdown -------------------------------------------------------------------------------


def unescaped_pipes(line: str) -> int:
    return len(re.findall(r"(?<!\\)(?:\\\\)*\|", line))


@pytest.mark.parametrize("name", NAMES)
def test_markdown_is_rectangular(name: str) -> None:
    """Case 70: the same number of unescaped pipes on every row, no tag and no line of its own."""
    text = markdown.render(one_model(name))
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert len(lines) == 5
    assert len({unescaped_pipes(line) for line in lines}) == 1
    assert "<b>" not in text


# ---- csv --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_csv_round_trips(name: str) -> None:
    view = one_model(name)
    found = list(csv.DictReader(io.StringIO(csv_table.render(view), newline="")))
    assert len(found) == 3
    for line, row in zip(found, view.rows, strict=True):
        assert line["model"] == name
        assert line["case_key"] == row.record.case_key
        assert all(value for value in line.values())
        assert None not in line
        if row.record.latency:
            assert float(line["latency_median_s"]) == row.record.latency.median_s
    assert found[2]["latency_median_s"] == "failed"
    assert found[2]["status"] == "failed"
    assert float(found[1]["speedup"]) == view.rows[1].speedup


def test_csv_is_read_by_pandas() -> None:
    import pandas as pd

    frame = pd.read_csv(io.StringIO(csv_table.render(make_view())))
    numbers = pd.to_numeric(frame["latency_median_s"], errors="coerce")
    assert numbers.notna().sum() == 4
    assert list(frame["model"].unique()) == [row.record.case.model for row in make_view().rows[::4]]


# ---- latex and html -----------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*NAMES, "100% & $x_1$ #{}~^"])
def test_latex_cells_are_escaped(name: str) -> None:
    text = latex.render(one_model(name))
    body = text[text.index(r"\midrule") : text.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    assert len(rows) == 3
    assert len({len(re.findall(r"(?<!\\)&", line)) for line in rows}) == 1
    assert not re.search(r"(?<!\\)[%$#_]", "".join(rows))
    assert all(line.startswith("%") for line in text[: text.index(r"\begin")].splitlines())


class _Cells(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.rows: list[list[str]] = []
        self._cell: list[str] | None = None

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self._cell = []

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th") and self._cell is not None:
            self.rows[-1].append("".join(self._cell))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._cell is not None:
            self._cell.append(data)


@pytest.mark.parametrize("name", [*NAMES, "</table><script>alert(1)</script>"])
def test_html_shows_names_literally(name: str) -> None:
    parser = _Cells()
    parser.feed(html_table.render(one_model(name)))
    assert parser.tags <= {"table", "thead", "tbody", "tr", "th", "td", "ul", "li"}
    assert len(parser.rows) == 4
    assert len({len(row) for row in parser.rows}) == 1
    from benchbench.format import clean

    assert parser.rows[1][0].startswith(clean(name))
