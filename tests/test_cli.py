"""The command line: verbs, exit codes, usage errors that leave nothing behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from benchbench import cli
from benchbench.__main__ import main
from benchbench.errors import StoreError
from benchbench.paths import shipped
from benchbench.records import SCHEMA_VERSION, Plan, Record
from benchbench.runner import RunResult
from benchbench.store import RunWriter


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in an empty folder without settings of the shell."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("BENCHBENCH_RESULTS", raising=False)
    return tmp_path


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[Plan]:
    """Let runs be recorded as plans and end at once, every case ``ok`` and stored."""
    seen: list[Plan] = []

    def run_plan(plan: Plan, *, results_dir: Path, **_: Any) -> RunResult:
        seen.append(plan)
        with RunWriter.create(results_dir, plan) as writer:
            run_dir = writer.run_dir
        records = [
            Record(
                schema_version=SCHEMA_VERSION,
                run_id=plan.run_id,
                case_key=case.key,
                started_at="2026-01-02T03:04:05Z",
                case=case,
                status="skipped" if case.key in plan.skipped else "ok",
            )
            for case in plan.cases
        ]
        return RunResult(records=records, exit_code=0, run_dir=run_dir)

    import benchbench.runner

    monkeypatch.setattr(benchbench.runner, "run_plan", run_plan)
    return seen


# ---- verbs ------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [["--help"], ["-h"], ["run", "--help"], ["list", "--help"]])
def test_help_has_examples(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    try:
        code = main(words)
    except SystemExit as left:
        code = int(left.code or 0)
    assert code == 0
    assert "examples:" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("benchbench ")


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["lsit"], ["unknown verb 'lsit'", "'list'"]),
        (["dokter"], ["'doctor'"]),
        (["llama"], ["model=llama"]),
        (["max-autotune"], ["mode=max-autotune"]),
        (["list", "converter_s"], ["'converters'"]),
        (["--multrun", "model=mlp"], ["'--multrun'", "'--multirun'"]),
        (["mode=max-autotun"], ["'max-autotune'"]),
        (["run", "mode=max-autotun"], ["'max-autotune'"]),
        (["-m", "mode=eager,inducto"], ["'inductor'"]),
        (["-m", "batch_size=0,1"], ["batch_size: 0"]),
        (["--cfg", "job", "mode=eagr"], ["'eager'"]),
        (["--config-dir", "nowhere", "model=mlp"], ["nowhere"]),
        (["list", "models", "--config-dir", "nowhere"], ["nowhere"]),
    ],
)
def test_usage_errors(
    words: list[str], parts: list[str], capsys: pytest.CaptureFixture[str], elsewhere: Path
) -> None:
    """Exit 2, a few lines, no traceback, no folder left behind."""
    assert main(words) == 2
    text = capsys.readouterr().err
    assert text.startswith("error: ")
    assert len(text.splitlines()) <= 4
    for part in parts:
        assert part in text
    assert list(elsewhere.iterdir()) == []


def test_the_doctor_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    doctor = ModuleType("benchbench.doctor")
    doctor.main = lambda argv: 7 if argv == ["--json"] else 8  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "benchbench.doctor", doctor)
    assert main(["doctor", "--json"]) == 7


def test_every_verb_has_one_line_of_help() -> None:
    for target, text in cli.VERBS.values():
        assert ":" in target
        assert "\n" not in text


# ---- list -------------------------------------------------------------------------------------


def test_list_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "models"]) == 0
    lines = capsys.readouterr().out.splitlines()
    names = [path.stem for path in (shipped("configs") / "model").glob("*.yaml")]
    assert sorted(line.split()[0] for line in lines) == sorted(names)
    assert "workloads: prefill, decode" in next(line for line in lines if line.startswith("llama"))


@pytest.mark.parametrize("kind", ["models", "mode", "devices", "suites", "converters"])
def test_list_as_json(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", kind, "--json"]) == 0
    for entry in json.loads(capsys.readouterr().out):
        assert entry["name"]
        assert entry["description"]


def test_list_with_a_folder_of_ones_own(
    elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (elsewhere / "model").mkdir()
    (elsewhere / "model" / "模型.yaml").write_text("# 我的\n_target_: a.b.c\n", encoding="utf-8")
    assert main(["list", "models", "--config-dir", "."]) == 0
    assert "模型" in capsys.readouterr().out


# ---- run --------------------------------------------------------------------------------------


def test_run_is_the_verb_when_none_is_given(plans: list[Plan], elsewhere: Path) -> None:
    assert main([]) == 0
    assert main(["run"]) == 0
    assert [case.mode for case in plans[0].cases] == [
        "eager",
        "inductor",
        "npugraph_ex",
        "max-autotune",
    ]
    assert [case.key for case in plans[0].cases] == [case.key for case in plans[1].cases]
    assert [path.name for path in elsewhere.iterdir()] == ["results"]
    assert len(list((elsewhere / "results").iterdir())) == 2


def test_the_table_is_printed_and_kept(
    plans: list[Plan], elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    main(["model=mlp", "mode=aot_eager"])
    assert "aot_eager" in capsys.readouterr().out
    (run_dir,) = (elsewhere / "results").iterdir()
    assert "aot_eager" in (run_dir / "table.md").read_text(encoding="utf-8")
    assert "aot_eager" in (run_dir / "table.csv").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "variable", "folder"),
    [
        ([], None, "results"),
        ([], "by_env", "by_env"),
        (["results_dir=by word"], "by_env", "by word"),
        (["results_dir=结果"], None, "结果"),
    ],
)
def test_results_folder(
    words: list[str],
    variable: str | None,
    folder: str,
    plans: list[Plan],
    elsewhere: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if variable:
        monkeypatch.setenv("BENCHBENCH_RESULTS", variable)
    assert main(["model=mlp", "mode=eager", *words]) == 0
    assert [path.name for path in elsewhere.iterdir()] == [folder]


def test_asking_only_for_what_is_not_there(plans: list[Plan]) -> None:
    assert main(["model=mlp", "mode=npugraph_ex", "device=cpu"]) == 4


def test_a_model_of_ones_own_folder(plans: list[Plan], elsewhere: Path) -> None:
    (elsewhere / "model").mkdir()
    (elsewhere / "model" / "mine.yaml").write_text("_target_: a.b.c\n", encoding="utf-8")
    assert main(["--config-dir", ".", "model=mine", "mode=eager"]) == 0
    assert main(["model=mine", "mode=eager", "--config-dir=."]) == 0
    assert {case.model for plan in plans for case in plan.cases} == {"mine"}


@pytest.mark.parametrize(
    ("raised", "code"), [(KeyboardInterrupt(), 130), (StoreError("the disk is full"), 2)]
)
def test_how_a_run_ends(
    raised: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def stop(*_: object, **__: object) -> None:
        raise raised

    monkeypatch.setattr(cli, "execute", stop)
    assert main(["model=mlp"]) == code
    assert "Traceback" not in capsys.readouterr().err


# ---- through Hydra ----------------------------------------------------------------------------


def test_cfg_prints_the_configuration(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--cfg", "job", "model=mlp", "measure.max_time_s=7"]) == 0
    text = capsys.readouterr().out
    assert "max_time_s: 7.0" in text
    assert list(elsewhere.iterdir()) == []


def test_a_sweep_is_separate_runs_in_one_folder(
    plans: list[Plan], elsewhere: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (elsewhere / "mine.py").write_text("def build(*, depth=1): ...\n")
    words = ["-m", "model=mlp,mine.py", "mode=[aclgraph,eager]", "seed=1,2", "results_dir=out"]
    assert main(words) == 0
    assert [(plan.cases[0].model, plan.cases[0].seed) for plan in plans] == [
        ("mlp", 1), ("mlp", 2), ("mine", 1), ("mine", 2)
    ]  # fmt: skip
    assert plans[0].cases[1].mode_typed == "aclgraph"
    assert "model.mine._target_=mine.py:build" in plans[2].overrides
    assert sorted(path.name for path in elsewhere.iterdir()) == ["mine.py", "out"]
    assert len([p for p in (elsewhere / "out").iterdir() if not p.name.startswith(".")]) == 4
    assert "all 4 runs" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("codes", "joint"),
    [([0, 0], 0), ([0, 4], 0), ([4, 4], 4), ([0, 1], 1), ([1, 130], 130), ([], 4)],
)
def test_one_exit_code_for_several_runs(codes: list[int], joint: int) -> None:
    assert cli.joint_exit_code(codes) == joint


# ---- locale -----------------------------------------------------------------------------------


def test_an_ascii_locale_does_not_kill_the_printing(elsewhere: Path) -> None:
    """Case 71: an error text with Chinese in a C locale, printed to a pipe."""
    environment = {
        **{k: v for k, v in os.environ.items() if not k.startswith(("LC_", "LANG"))},
        "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii",
    }  # fmt: skip
    (elsewhere / "model").mkdir()
    (elsewhere / "model" / "模型.yaml").write_text("_target_: a.b.c\n", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "benchbench", "list", "models", "--config-dir", "."],
        env=environment, capture_output=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert b"\\u6a21\\u578b" in done.stdout
    done = subprocess.run(
        [sys.executable, "-m", "benchbench", "mode=模型"],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert done.returncode == 2
    assert b"unknown mode '\\u6a21\\u578b'" in done.stderr


def test_words_that_are_not_text_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([os.fsdecode(b"name=\xff")]) == 2
    assert "not UTF-8" in capsys.readouterr().err
