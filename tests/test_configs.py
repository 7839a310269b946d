"""Every YAML file that is shipped: it composes, its target exists, every suite makes a plan."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from benchbench import paths
from benchbench.config import compose
from benchbench.config_files import available, describe, load_yaml
from benchbench.plan import build_plan

FILES = [
    (group, name, path) for group in ("model", "mode") for name, path in available(group).items()
]


@pytest.mark.parametrize(("group", "name", "path"), FILES, ids=[f"{g}/{n}" for g, n, _ in FILES])
def test_a_file_composes_and_names_what_exists(group: str, name: str, path: Path) -> None:
    conf = compose([f"{group}={name}", "baseline=null"])
    assert list(getattr(conf, group)) == [name]
    content = load_yaml(path)
    *module, attribute = content["_target_"].split(".")
    source = paths.PACKAGE.parent.joinpath(*module).with_suffix(".py")
    tree = ast.parse(source.read_text(encoding="utf-8"))
    assert attribute in {
        node.name for node in tree.body if isinstance(node, (ast.ClassDef, ast.FunctionDef))
    }
    assert describe(path, content)


@pytest.mark.parametrize("name", list(available("suite")))
def test_a_suite_makes_a_plan(name: str) -> None:
    plan = build_plan(compose([f"suite={name}"]), overrides=[], run_id="r")
    assert len(plan.cases) > len(plan.skipped)
    assert describe(available("suite")[name], {})


@pytest.mark.parametrize("name", list(available("device")))
def test_a_device_makes_a_plan(name: str) -> None:
    assert build_plan(compose([f"device={name}"]), overrides=[], run_id="r").cases
