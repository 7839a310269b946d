"""The table that both READMEs show is rendered from a kept run, so it cannot go stale.

``BENCHBENCH_UPDATE_README=1`` writes it anew after a change of the table's form.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from benchbench import compare
from benchbench.reporters import terminal
from benchbench.store import load_run

ROOT = Path(__file__).resolve().parent.parent
RUN = Path(__file__).parent / "data" / "readme_run"
BLOCK = re.compile(r"(<!-- table: .*? -->\n```text\n)(.*?)(```\n<!-- end of table -->)", re.S)
WIDTH = 150


def table() -> str:
    run = load_run(RUN)
    assert not run.damage
    assert run.plan is not None
    view = compare.view(run.records, baseline=run.plan.baseline, plan=run.plan, width=WIDTH)
    return terminal.render(view).rstrip() + "\n"


@pytest.mark.parametrize("name", ["README.md", "README.zh-CN.md"])
def test_the_table_is_that_of_the_kept_run(name: str) -> None:
    path = ROOT / name
    text = path.read_text(encoding="utf-8")
    found = BLOCK.search(text)
    assert found is not None
    if os.environ.get("BENCHBENCH_UPDATE_README"):
        path.write_text(BLOCK.sub(lambda m: m[1] + table() + m[3], text), encoding="utf-8")
    else:
        assert found[2] == table()


def test_both_languages_show_the_same_commands() -> None:
    """Commands and code blocks are the same; only what explains them differs."""
    english, chinese = (
        [
            re.split(r"\s+# |\s{2,}#", line)[0].strip()
            for block in re.findall(r"```console\n(.*?)```", text, re.S)
            for line in block.splitlines()
        ]
        for text in (
            (ROOT / "README.md").read_text(encoding="utf-8"),
            (ROOT / "README.zh-CN.md").read_text(encoding="utf-8"),
        )
    )
    assert english == chinese
