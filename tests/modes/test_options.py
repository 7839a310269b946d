"""Option tables: mistakes end in one sentence before anything starts (cases 8, 10, 17, 23)."""

from __future__ import annotations

import subprocess
import sys

import pytest

from benchbench.modes.options import gear_combinations, is_list_option
from benchbench.modes.options_inductor import INDUCTOR, installed_names
from benchbench.modes.options_npu import LEGACY_PATHS, NPUGRAPH_EX, TORCHAIR


@pytest.mark.parametrize(
    ("table", "options", "words"),
    [
        (NPUGRAPH_EX, {"frozen_paramter": True}, "did you mean 'frozen_parameter'?"),
        (NPUGRAPH_EX, {"as_dict": True}, "no such option"),
        (NPUGRAPH_EX, {"clone_input": 0}, "1 and 0 are not taken"),
        (NPUGRAPH_EX, {"clone_input": "false"}, "not true or false"),
        (NPUGRAPH_EX, {"capture_limit": 0}, "at least 1"),
        (NPUGRAPH_EX, {"capture_limit": True}, "not a whole number"),
        (NPUGRAPH_EX, {"capture_error_mode": "thread-local"}, "did you mean 'thread_local'?"),
        (NPUGRAPH_EX, {"super_kernel_optimize": True}, "without static_kernel_compile"),
        (NPUGRAPH_EX, {"use_graph_pool": "x"}, "pool handle"),
        (NPUGRAPH_EX, {"mode": "max-autotune"}, "means nothing to npugraph_ex"),
        (NPUGRAPH_EX, {"post_grad_custom_pre_pass": "f"}, "package.module.function"),
        (NPUGRAPH_EX, {"dump_tensor_data": True, "data_dump_dir": "/no/such"}, "existing folder"),
        (TORCHAIR, {"ge_config": {"aicore_num": 24}}, "'24|48'"),
        (TORCHAIR, {"aicore_num": "24"}, "'24|48'"),
        (TORCHAIR, {"optimization_switch": "PassA=on"}, "PassA:on;PassB:off"),
        (TORCHAIR, {"topology_sorting_strategy": "stablerdfs"}, "did you mean 'StableRDFS'?"),
        (TORCHAIR, {"jit_compile": True}, "not one of auto"),
        (TORCHAIR, {"export": {"export_mode": True}}, "instead of running"),
        (TORCHAIR, {"aclgraph_config": {"use_custom_pool": 1}}, "belongs to npugraph_ex"),
        (TORCHAIR, {"aclgraph_config": {"no_such": 1}}, "no such option"),
        (TORCHAIR, {"type": "csv"}, "several options have this name"),
        (TORCHAIR, {"fusion_switch_file": "/no/such"}, "existing file"),
        (TORCHAIR, {"enable_dump": True, "dump_step": "a"}, "0|2-5"),
        (TORCHAIR, {"dump_step": "1"}, "without enable_dump"),
        (TORCHAIR, {"decompositions": "all"}, "'core'"),
        (INDUCTOR, {"max_autotun": True}, "did you mean 'max_autotune'?"),
        (INDUCTOR, {"triton": {"cudagraph": True}}, "did you mean 'triton.cudagraphs'?"),
        (INDUCTOR, {"freezing": 1}, "1 and 0 are not taken"),
    ],
)
def test_a_mistake_is_named(table, options, words):
    problem = table.problem(options, "mode.m.options")
    assert problem is not None
    assert problem.startswith("mode.m.options.")
    assert words in problem


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (NPUGRAPH_EX, {"static_kernel_compile": True, "super_kernel_optimize": True}),
        (NPUGRAPH_EX, {"_vllm_aclnn_static_kernel_sym_range": [1], "static_kernel_compile": True}),
        (TORCHAIR, {"aicore_num": "24|48", "optimization_switch": "PassA:on;PassB:off"}),
        (TORCHAIR, {"experimental_config": {"frozen_parameter": True}, "oo_level": "O1"}),
        (TORCHAIR, {"decompositions": ["aten.amax", "aten.isnan.default"]}),
        (TORCHAIR, {"data_dump_stage": "optimized", "frozen_parameter": None}),
        (INDUCTOR, {"triton.cudagraphs": True, "epilogue_fusion_first": True}),
    ],
)
def test_what_the_libraries_take_passes(table, options):
    assert table.problem(options, "mode.m.options") is None


def test_super_kernel_options_are_checked_key_by_key():
    base = {"static_kernel_compile": True, "super_kernel_optimize": True}

    def problem(**inner):
        return NPUGRAPH_EX.problem({**base, "super_kernel_optimize_options": inner}, "o")

    assert problem(preload_code=1, dcci_disable_on_kernel=[".*"]) is None
    assert "did you mean 'preload_code'?" in problem(preload_cod=1)
    assert "str_list" in problem(dcci_disable_on_kernel=".*")


def test_options_newer_than_the_installed_torch_npu_are_refused():
    problem = NPUGRAPH_EX.problem({"force_recapture": True}, "o", "2.9.0.post1")
    assert problem is not None
    assert "needs torch_npu 2.13 or newer; 2.9.0.post1" in problem
    assert NPUGRAPH_EX.problem({"force_recapture": True}, "o", "2.13.0") is None


@pytest.mark.parametrize("table", [NPUGRAPH_EX, TORCHAIR, INDUCTOR])
def test_every_default_is_a_value_of_its_option(table):
    for name, default in table.defaults().items():
        assert table.find(name) is not None, name
        assert table.problem({name: default}, "o") is None
    assert table.changed(table.defaults()) == {}


@pytest.mark.parametrize(
    ("table", "options", "named"),
    [
        (NPUGRAPH_EX, {"force_eager": True}, "force_eager=True"),
        (NPUGRAPH_EX, {"force_recapture": True}, "force_recapture=True"),
        (NPUGRAPH_EX, {"dump_tensor_data": True}, "dump_tensor_data=True"),
        (TORCHAIR, {"run_eagerly": True}, "run_eagerly=True"),
        (TORCHAIR, {"debug": {"data_dump": {"type": "npy"}}}, "data_dump.type='npy'"),
        (TORCHAIR, {"fx_summary": {"type": "csv"}}, "fx_summary.type='csv'"),
        (TORCHAIR, {"fx_summary": {"type": "csv", "skip_compile": False}}, None),
        (NPUGRAPH_EX, {"force_eager": False, "frozen_parameter": True}, None),
    ],
)
def test_a_debug_switch_makes_a_diagnosis(table, options, named):
    """Case 8: a switch that turns the graph off must not pass for a timing."""
    assert table.diagnosis(options) == named


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([1, 2, 4], "gear 1 is not allowed"),
        ([0, 2], "gear 0 is not allowed"),
        ([2, 4, 4], "duplicate"),
        ([2], "2 to 100"),
        (list(range(2, 103)), "2 to 100"),
        ("2,4", "not a list"),
        ([2, 4, 8], None),
    ],
)
def test_gears_are_checked_before_a_run(sizes, words):
    """Case 17: 0 and 1 never fit, duplicates and more than 100 are refused by the Graph Engine."""
    problem = TORCHAIR.problem({"dim_gears": {0: {0: sizes}}}, "o")
    assert (problem is None) if words is None else (problem is not None and words in problem)


def test_gear_combinations():
    eleven = list(range(2, 13))
    assert "121 > 100" in (gear_combinations({0: {0: eleven, 1: eleven}}, "product") or "")
    assert gear_combinations({0: {0: eleven, 1: eleven}}, "zip") is None
    assert "need one length" in (
        gear_combinations({0: {0: [2, 4]}, 1: {0: [2, 4, 8]}}, "zip") or ""
    )


def test_only_lists_that_are_one_value_are_no_sweep():
    lists = {o.path for t in (NPUGRAPH_EX, TORCHAIR) for o in t.options if is_list_option(o)}
    assert lists == {"_vllm_aclnn_static_kernel_sym_range", "decompositions"}


def test_legacy_options_are_options_of_today():
    for name, (path, _) in LEGACY_PATHS.items():
        assert NPUGRAPH_EX.find(name) is not None
        assert TORCHAIR.find(path) is not None, path


def test_the_table_of_inductor_agrees_with_the_installed_torch():
    ours = {option.path for option in INDUCTOR.options if not option.refused}
    assert ours - set(installed_names()) == {"npu_backend"}


def test_the_parent_can_ask_without_torch():
    code = (
        "import sys\n"
        "from benchbench.modes import max_autotune, npugraph_ex, cudagraphs, inductor, eager\n"
        "from benchbench.modes import aot_eager, torch_compile\n"
        "m = max_autotune.MaxAutotune('max-autotune', options={'combo_kernels': True})\n"
        "print(m.unavailable('cpu'), m.invalid('cpu'), m.backend('npu'), m.diagnosis())\n"
        "sys.exit('torch' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[-2:] == ["torchair", "None"]
