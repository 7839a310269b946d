"""The plan: which cases, in which order, with which keys, and what cannot run here."""

from __future__ import annotations

import re
import subprocess
from datetime import datetime, timezone
from pathlib import Path

import pytest

from benchbench.config import compose
from benchbench.devices.cpu import Cpu
from benchbench.devices.cuda import Cuda
from benchbench.devices.npu import Npu
from benchbench.errors import ConfigError
from benchbench.modes.inductor import Inductor
from benchbench.paths import safe_name
from benchbench.plan import auto_device, build_plan, new_run_id
from benchbench.records import Plan


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this machine have a CPU, a compiler and nothing else."""
    monkeypatch.setattr(Cuda, "unavailable", lambda self: "no GPU")
    monkeypatch.setattr(Npu, "unavailable", lambda self: "no NPU")
    monkeypatch.setattr(Cpu, "unavailable", lambda self: None)
    monkeypatch.setattr(Inductor, "absent", lambda self, kind: None)


def plan(*words: str, cwd: Path | None = None) -> Plan:
    return build_plan(compose(list(words)), overrides=list(words), run_id="r", cwd=cwd)


def keys(*words: str) -> list[str]:
    return [case.key for case in plan(*words).cases]


def error(*words: str, cwd: Path | None = None) -> str:
    with pytest.raises(ConfigError) as caught:
        plan(*words, cwd=cwd)
    return str(caught.value)


# ---- cases and keys ---------------------------------------------------------------------------


def test_groups_with_the_baseline_first() -> None:
    assert keys("model=[mlp,llama]", "mode=[inductor,eager]", "batch_size=[1,8]", "seq_len=32") == [
        "mlp[tiny]/forward/b1/float32/cpu/eager",
        "mlp[tiny]/forward/b1/float32/cpu/inductor",
        "mlp[tiny]/forward/b8/float32/cpu/eager",
        "mlp[tiny]/forward/b8/float32/cpu/inductor",
        "llama[tiny]/prefill/b1s32/float32/cpu/eager",
        "llama[tiny]/prefill/b1s32/float32/cpu/inductor",
        "llama[tiny]/prefill/b8s32/float32/cpu/eager",
        "llama[tiny]/prefill/b8s32/float32/cpu/inductor",
    ]


def test_a_group_is_a_key_without_its_mode() -> None:
    cases = plan("model=mlp", "mode=[eager,inductor]").cases
    assert {case.group for case in cases} == {"mlp[tiny]/forward/b1/float32/cpu"}
    assert all(case.key.startswith(f"{case.group}/") for case in cases)


def test_every_axis_is_a_list() -> None:
    found = keys("mode=eager", "workload=[prefill,decode]", "seq_len=[16,32]", "dtype=[fp32,bf16]")
    assert len(found) == len(set(found)) == 8
    assert "llama[tiny]/decode/b1s32/bfloat16/cpu/eager" in found


def test_only_what_differs_from_the_defaults_is_in_the_key() -> None:
    same = keys("mode=inductor", "mode.inductor.fullgraph=false")
    assert same == keys("mode=inductor")
    assert keys("mode=inductor", "mode.inductor.fullgraph=true")[1].endswith(
        "/inductor{fullgraph=true}"
    )
    other = plan("model=mlp", "mode=eager", "model.mlp.options.hidden_size=32").cases[0]
    assert other.key.startswith("mlp[tiny,hidden_size=32]/")
    assert other.model_options == {"hidden_size": 32}
    assert other.model_target.options["hidden_size"] == 32
    assert other.model_target.options["num_layers"] == 2
    assert keys("model=mlp", "mode=eager", "model.mlp.options.hidden_size=128") == keys(
        "model=mlp", "mode=eager"
    )


def test_a_list_for_a_scalar_option_is_one_case_per_value() -> None:
    cases = plan(
        "mode=inductor", "baseline=null", "mode.inductor.options.max_autotune=[false,true]"
    ).cases
    assert [case.options for case in cases] == [{"max_autotune": False}, {"max_autotune": True}]
    assert len({case.key for case in cases}) == 2
    assert cases[1].mode_target.options["options"]["max_autotune"] is True


def test_two_spellings_of_an_option_are_one() -> None:
    short = keys("mode=inductor", "mode.inductor.options.cudagraphs=true")
    assert short == keys("mode=inductor", "mode.inductor.options.triton.cudagraphs=true")


def test_the_alias_that_was_typed_is_kept() -> None:
    """Case 23."""
    cases = plan("mode=[eager,ACLGraph]").cases
    assert [(case.mode, case.mode_typed) for case in cases] == [
        ("eager", None),
        ("npugraph_ex", "ACLGraph"),
    ]


def test_duplicates_run_once_and_are_noted() -> None:
    made = plan("model=mlp", "mode=eager", "batch_size=[8,1,8]")
    assert [case.batch_size for case in made.cases] == [8, 1]
    assert any("8 is given twice" in note for note in made.notes)


def test_a_model_without_length_ignores_it_with_a_note() -> None:
    made = plan("model=mlp", "mode=eager", "seq_len=16")
    assert made.cases[0].seq_len is None
    assert any("seq_len is ignored" in note for note in made.notes)


def test_a_model_of_its_own_shape_beats_the_shape_for_all() -> None:
    made = plan("model=[mlp,llama]", "mode=eager", "batch_size=4", "model.mlp.batch_size=2")
    assert [case.batch_size for case in made.cases] == [2, 4]


def test_keys_keep_odd_values_and_have_safe_file_names(tmp_path: Path) -> None:
    """Case 64: slashes, blanks, Chinese and long names."""
    (tmp_path / "model").mkdir()
    names = ["模型", "模" * 60, "a b", "x"]
    for name in names:
        (tmp_path / "model" / f"{name}.yaml").write_text("_target_: a.b.c\n", encoding="utf-8")
    conf = compose([f"model=[{','.join(names)}]", "mode=eager"], config_dirs=[str(tmp_path)])
    made = [case.key for case in build_plan(conf, overrides=[], run_id="r").cases]
    assert [key.split("/")[0] for key in made] == names
    files = [safe_name(key) for key in made]
    assert len(set(files)) == len(files)
    assert all(len(file.encode()) <= 100 and "/" not in file for file in files)


def test_the_same_name_in_other_case_stays_apart() -> None:
    made = keys("model=[a,A]", "model.a._target_=p.q.r", "model.A._target_=p.q.r", "mode=eager")
    assert len(set(made)) == 2


# ---- the baseline -----------------------------------------------------------------------------


def test_the_baseline_is_added_with_a_note() -> None:
    made = plan("model=mlp", "mode=inductor")
    assert [case.mode for case in made.cases] == ["eager", "inductor"]
    assert any("baseline eager was added" in note for note in made.notes)


def test_no_baseline() -> None:
    made = plan("model=mlp", "mode=inductor", "baseline=null")
    assert ([case.mode for case in made.cases], made.baseline) == (["inductor"], None)


def test_another_mode_as_baseline() -> None:
    made = plan("model=mlp", "mode=[eager,inductor]", "baseline=inductor")
    assert [case.mode for case in made.cases] == ["inductor", "eager"]


def test_a_baseline_for_nothing_is_left_out() -> None:
    """Asking only for modes that are not there leaves nothing to measure."""
    made = plan("model=mlp", "mode=npugraph_ex")
    assert [case.mode for case in made.cases] == ["npugraph_ex"]
    assert set(made.skipped) == {made.cases[0].key}
    assert not any("baseline" in note for note in made.notes)


# ---- skipped ----------------------------------------------------------------------------------


def test_a_mode_that_is_not_there_is_skipped_with_its_reason() -> None:
    made = plan("model=mlp", "mode=[eager,npugraph_ex,cudagraphs]")
    assert [key.rsplit("/", 1)[1] for key in made.skipped] == ["npugraph_ex", "cudagraphs"]
    assert all("CPU" in reason for reason in made.skipped.values())


def test_a_device_that_is_not_there_skips_everything() -> None:
    made = plan("model=mlp", "mode=eager", "device=cuda")
    assert list(made.skipped.values()) == ["no GPU"]


def test_a_workload_that_a_model_lacks_is_skipped() -> None:
    made = plan("model=[bert,llama]", "mode=eager", "workload=decode")
    assert list(made.skipped.values()) == ["bert offers forward only"]
    assert "no selected model offers it" in error("model=bert", "workload=decode")


def test_auto_takes_npu_then_cuda_then_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    assert auto_device() == "cpu"
    monkeypatch.setattr(Cuda, "unavailable", lambda self: None)
    assert auto_device() == "cuda"
    monkeypatch.setattr(Npu, "unavailable", lambda self: None)
    assert auto_device() == "npu"


def test_an_option_of_another_device_skips_the_mode() -> None:
    made = plan("model=mlp", "mode=max-autotune", "mode.max-autotune.options.frozen_parameter=true")
    assert "frozen_parameter" in made.cases[0].key
    assert "frozen_parameter belongs to" in made.skipped[made.cases[0].key]


# ---- errors -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (["batch_size=0"], ["batch_size", "0"]),
        (["batch_size=-1"], ["-1"]),
        (["batch_size=2.5"], ["2.5"]),
        (["batch_size=true"], ["true"]),
        (["batch_size=010"], ["leading zero", "batch_size=10"]),
        (["batch_size=eight"], ["eight"]),
        (["model=mlp", "seq_len=five"], ["seq_len", "five"]),
        (["batch_size='1'"], ["'1' is text", "batch_size=1"]),
        (["mode=npugraph_ex", "mode.npugraph_ex.stand_in=nowhere.py:fn"], ["nowhere.py"]),
        (["batch_size=[]"], ["batch_size=[]"]),
        (["model.llama.seq_len=0"], ["model.llama.seq_len"]),
        (["dtype=flaot16"], ["unknown dtype 'flaot16'", "'float16'"]),
        (["workload=prefil"], ["'prefill'"]),
        (["size=ful"], ["'full'"]),
        (
            ["model.llama.options.sourc=own"],
            ["unknown option in model.llama.options 'sourc'", "'source'"],
        ),
        (["mode=inductor", "mode.inductor.options.max_autotun=true"], ["'max_autotune'"]),
        (["mode.inductor.fullgraph=maybe"], ["mode.inductor.fullgraph", "maybe"]),
        (["mode=npugraph_ex", "mode.npugraph_ex.compile_mode=max-autotune"], ["compile_mode"]),
        (
            ["mode=npugraph_ex", "mode.npugraph_ex.options.frozen_paramter=true"],
            ["'frozen_parameter'"],
        ),
        (["measure.max_time_s=-1"], ["measure.max_time_s", "-1"]),
        (
            ["measure.max_time_s=0.2"],
            ["measure.min_time_s=0.3 is above", "next: measure.min_time_s=0.2"],
        ),
        (["measure.min_samples=50", "measure.max_samples=10"], ["measure.max_samples=10"]),
        (["limits.compile_s=0"], ["limits.compile_s"]),
        (["settings.threads=0"], ["settings.threads"]),
        (["settings.start=frech"], ["'fresh'"]),
        (["device.index=-1"], ["device.index"]),
        (["plugins=[nowhere.py]"], ["nowhere.py"]),
        (["model.mine._target_=nowhere.py:build"], ["nowhere.py"]),
        (["model.mine._target_=build"], ["'build' names nothing"]),
    ],
)
def test_errors_help(words: list[str], parts: list[str]) -> None:
    """Cases 10, 17, 23, 61: ranges and rules across keys."""
    text = error(*words)
    for part in parts:
        assert part in text


# ---- the user's own ---------------------------------------------------------------------------


def test_a_file_becomes_an_absolute_target_and_is_never_imported(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("raise SystemExit('imported')\ndef build(*, depth=1): ...\n")
    (tmp_path / "plug.py").write_text("")
    made = plan(
        "model=mine.py",
        "mode=eager",
        "plugins=[plug.py,a.b]",
        "model.mine.options.depth=3",
        cwd=tmp_path,
    )
    assert made.cases[0].model_target.path == f"{tmp_path}/mine.py:build"
    assert made.cases[0].key == "mine[depth=3]/forward/b1/float32/cpu/eager"
    assert made.plugins == [f"{tmp_path}/plug.py", "a.b"]
    assert made.search_paths[0] == str(tmp_path)
    assert "'depth'" in error(
        "model=mine.py", "mode=eager", "model.mine.options.dept=3", cwd=tmp_path
    )


def test_a_mode_of_ones_own_gets_only_what_was_given(tmp_path: Path) -> None:
    (tmp_path / "m.py").write_text("raise SystemExit('imported')\n")
    made = plan(
        "model=mlp",
        "baseline=null",
        "mode.mine._target_=m.py:Mine",
        "mode.mine.options.x=1",
        cwd=tmp_path,
    )
    assert made.cases[0].mode_target.options == {"name": "mine", "options": {"x": 1}}
    backend = plan("model=mlp", "baseline=null", "mode.mine.backend=eager").cases[0]
    assert backend.mode_target.options == {"name": "mine", "backend": "eager"}
    assert backend.key.endswith("/mine{backend=eager}")


# ---- the run ----------------------------------------------------------------------------------


def test_one_limit_for_every_phase_that_has_none() -> None:
    limits = plan("limits.timeout_s=5", "limits.compile_s=60").limits
    assert (limits.load_s, limits.sample_s, limits.compile_s) == (5, 5, 60)


def test_run_ids_are_unique_and_name_the_commit(tmp_path: Path) -> None:
    """Case 62."""
    moment = datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)
    made = {new_run_id(tmp_path, now=moment) for _ in range(3)}
    assert len(made) == 3
    assert all(re.fullmatch(r"20260102T030405Z_nogit_[0-9a-f]{4}", name) for name in made)
    git = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path)]
    (tmp_path / "a").write_text("1")
    for command in (["init", "-q"], ["add", "a"], ["commit", "-qm", "a"]):
        subprocess.run([*git, *command], check=True)
    assert re.fullmatch(r"\d{8}T\d{6}Z_[0-9a-f]{8}_[0-9a-f]{4}", new_run_id(tmp_path))
    (tmp_path / "a").write_text("2")
    assert "-dirty_" in new_run_id(tmp_path)
