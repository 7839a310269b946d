"""CONTRIBUTING.md followed to the letter: its files written and its commands run, in a copy.

A recipe is a section of the file. Its fenced blocks are followed in order: a block whose first line
names a file is that file, a ``bash`` block is run and must succeed. Nothing else is touched, so a
recipe that forgets a step, or needs a further place, fails here.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
SECTION = re.compile(r"^## Add a (\w+)\n(.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)
BLOCK = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```", re.MULTILINE | re.DOTALL)
RECIPES = {name: BLOCK.findall(body) for name, body in SECTION.findall(TEXT)}

EXPECTED = {
    "mode": ["dynamo_only Captured by Dynamo", "dynamo_only (eager (captured)) | ok"],
    "model": ["gated Gated feed-forward block", "gated[tiny,hidden_size=32]/forward/b4/float32"],
    "device": [
        "cpu-flush The processor with denormals flushed",
        "mlp[tiny]/forward/b1/float32/cpu-flush",
    ],
    "reporter": ["mode\tstatus\t"],
    "converter": ["aten_trunc aten::trunc(Tensor self) -> Tensor"],
}
"""Recipe -> what its commands must have printed; several spaces count as one."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of what the recipes extend, without any results."""
    copy = tmp_path / "checkout"
    for folder in ("benchbench", "configs", "converters", "tests"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", copy)
    return copy


def run(command: str, folder: Path) -> str:
    """Run a block as a user would, with this environment's Python first on the path."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    environment = {**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"}
    environment["PYTHONPATH"] = str(folder)
    environment.pop("BENCHBENCH_RESULTS", None)
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def follow(recipe: str, folder: Path) -> str:
    printed = []
    for language, file, content in RECIPES[recipe]:
        if file:
            path = folder / file
            assert not path.exists(), f"{file} is there already: the recipe would overwrite it"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content, encoding="utf-8")
        else:
            assert language == "bash"
            printed.append(run(content, folder))
    return "\n".join(printed)


def records(folder: Path) -> Iterator[dict]:
    for file in sorted((folder / "results").rglob("records.jsonl")):
        for line in file.read_text(encoding="utf-8").splitlines():
            yield json.loads(line)


@pytest.mark.slow
@pytest.mark.parametrize("recipe", sorted(EXPECTED))
def test_a_recipe_works_as_it_stands(recipe: str, checkout: Path) -> None:
    printed = re.sub(" +", " ", follow(recipe, checkout))
    for text in EXPECTED[recipe]:
        assert text in printed
    found = list(records(checkout))
    assert all(record["status"] == "ok" for record in found)
    for record in found:
        if record["case"]["mode"] != "eager":
            assert record["graph"]["graphs"] == 1
            assert record["accuracy"]["verdict"] == "pass"


def test_every_recipe_is_followed() -> None:
    assert sorted(RECIPES) == sorted(EXPECTED)
    for recipe, blocks in RECIPES.items():
        files = [file for _, file, _ in blocks if file]
        yaml = [file for file in files if file.endswith(".yaml")]
        tests = [file for file in files if file.startswith("tests/")]
        code = [file for file in files if file not in yaml and file not in tests]
        assert len(code) == 1, f"{recipe}: one Python file"
        assert len(yaml) <= 1
        assert any(language == "bash" for language, file, _ in blocks if not file)


@pytest.mark.parametrize(
    "file", sorted({file for blocks in RECIPES.values() for _, file, _ in blocks if file})
)
def test_templates_are_no_leftovers(file: str) -> None:
    """A template is copied for ever: it must not exist under its own name by accident."""
    assert not (ROOT / file).exists()
