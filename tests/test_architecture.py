"""The import rules: the parent never imports torch, and pure modules stay pure."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchbench.paths import PACKAGE

MODULES = sorted(PACKAGE.rglob("*.py"))
PARENT = [
    "cli",
    "config",
    "config_files",
    "hydra_source",
    "overrides",
    "schema",
    "names",
    "plan",
    "paths",
    "records",
    "errors",
    "caveats",
    "runner",
    "process",
    "forkserver",
    "resume",
    "store",
    "stats",
    "compare",
    "verdicts",
    "format",
    "progress",
    "loading",
    "targets",
    "environment",
    "devices",
    "modes",
    "reporters",
    "doctor",
]
"""Modules and folders that the parent imports; a worker's modules may import torch as they like."""


def imports(path: Path) -> Iterator[str]:
    """Yield the modules that a file imports when it is imported."""
    todo: list[ast.stmt] = list(ast.parse(path.read_text(encoding="utf-8")).body)
    while todo:
        node = todo.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield node.module or ""
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            todo += node.orelse
        elif isinstance(node, (ast.If, ast.Try, ast.With)):
            todo += [child for child in ast.iter_child_nodes(node) if isinstance(child, ast.stmt)]


@pytest.mark.parametrize("name", PARENT)
def test_the_parents_modules_import_torch_inside_functions_only(name: str) -> None:
    files = [path for path in MODULES if path.relative_to(PACKAGE).parts[0] in (name, f"{name}.py")]
    for path in files:
        assert not [n for n in imports(path) if n.split(".")[0] in ("torch", "torch_npu")], path


def test_the_parent_does_not_import_torch() -> None:
    """All that the command line needs up to the table, in one fresh interpreter."""
    code = (
        "import sys, benchbench.cli, benchbench.config, benchbench.plan, benchbench.runner,"
        " benchbench.compare, benchbench.progress, benchbench.reporters.terminal as t\n"
        "from benchbench.config import compose\n"
        "benchbench.plan.build_plan(compose(['model=[llama,mlp]']), overrides=[], run_id='r')\n"
        "assert 'torch' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_usage_error_needs_neither_pandas_nor_torch() -> None:
    code = (
        "import sys\nfrom benchbench.__main__ import main\n"
        "assert main(['mode=max-autotun']) == 2\n"
        "assert main(['list']) == 0 and main(['--help']) == 0\n"
        "assert not {'torch', 'pandas', 'pyarrow', 'scipy', 'numpy'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_records_import_nothing_of_ours() -> None:
    assert not [name for name in imports(PACKAGE / "records.py") if name.startswith("benchbench")]


@pytest.mark.parametrize(
    "name",
    [
        "compare.py",
        "stats.py",
        "format.py",
        *(f"reporters/{p.name}" for p in (PACKAGE / "reporters").glob("*.py")),
    ],
)
def test_pure_modules_do_no_input_or_output(name: str) -> None:
    found = set(imports(PACKAGE / name))
    assert not found & {"os", "pathlib", "subprocess", "socket", "tempfile", "time"}
    calls = {
        node.func.id
        for node in ast.walk(ast.parse((PACKAGE / name).read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }
    assert not calls & {"open", "print"}


def test_only_the_worker_catches_everything() -> None:
    """A broad ``except`` turns a defect into a plausible answer; one place may have it.

    The simulated device is called from C++, which no exception may pass through.
    """
    broad = [
        str(path.relative_to(PACKAGE))
        for path in MODULES
        if path.relative_to(PACKAGE).parts[0] != "npusim"
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or ast.unparse(node.type) in ("Exception", "BaseException"))
    ]
    assert set(broad) <= {"worker.py"}
