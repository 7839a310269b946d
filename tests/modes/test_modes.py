"""Modes as the parent asks them: where they run, what is wrong with their settings."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest
import yaml

from benchbench.modes import npu_compat
from benchbench.modes.aot_eager import AotEager
from benchbench.modes.cudagraphs import Cudagraphs
from benchbench.modes.eager import Eager
from benchbench.modes.inductor import Inductor
from benchbench.modes.max_autotune import MaxAutotune
from benchbench.modes.npugraph_ex import NpugraphEx
from benchbench.modes.options import Table
from benchbench.modes.options_inductor import INDUCTOR
from benchbench.modes.options_npu import NPUGRAPH_EX, TORCHAIR
from benchbench.modes.torch_compile import TorchCompile
from benchbench.paths import shipped

FILES = sorted((shipped("configs") / "mode").glob("*.yaml"))
TABLES: dict[type, list[Table]] = {
    Inductor: [INDUCTOR],
    Cudagraphs: [INDUCTOR],
    NpugraphEx: [NPUGRAPH_EX],
    MaxAutotune: [TORCHAIR, INDUCTOR],
}
VARIANTS = {
    "npugraph_ex-static": {"static_kernel_compile", "frozen_parameter"},
    "npugraph_ex-superkernel": {
        "static_kernel_compile",
        "frozen_parameter",
        "super_kernel_optimize",
    },
    "max-autotune-frozen": {
        "experimental_config.frozen_parameter",
        "experimental_config.tiling_schedule_optimize",
        "experimental_config.topology_sorting_strategy",
    },
}


def from_file(path: Path):
    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    module, _, name = content.pop("_target_").rpartition(".")
    made = getattr(importlib.import_module(module), name)
    return made, made(name=path.stem, **content), content


def leaves(options, prefix=""):
    for key, value in options.items():
        if isinstance(value, dict):
            yield from leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_a_mode_file_makes_its_mode_and_lists_all_options(path):
    kind, mode, content = from_file(path)
    assert path.read_text(encoding="utf-8").startswith(f"# @package mode.{path.stem}\n")
    listed = content["options"]
    names = list(leaves(listed))
    tables = TABLES.get(kind, [])
    expected = [option.path for table in tables for option in table.options if not option.refused]
    found = [option.path for table in tables for name in names if (option := table.find(name))]
    assert sorted(found) == sorted(expected)
    changed = {name for t in tables for name in t.changed(listed) if t.find(name)}
    assert changed == VARIANTS.get(path.stem, set())
    assert mode.invalid("npu") is None
    assert mode.diagnosis() is None


@pytest.mark.parametrize(
    ("mode", "device", "words"),
    [
        (NpugraphEx("npugraph_ex"), "cpu", "nothing to capture on a CPU"),
        (NpugraphEx("npugraph_ex"), "cpu", "device=npu-sim"),
        (NpugraphEx("npugraph_ex"), "cuda", "use cudagraphs"),
        (Cudagraphs("cudagraphs"), "cpu", "nothing is captured on a CPU"),
        (Cudagraphs("cudagraphs"), "npu", "npugraph_ex"),
        (NpugraphEx("npugraph_ex"), "npu", None),
        (NpugraphEx("npugraph_ex"), "npu-sim", None),
        (MaxAutotune("max-autotune"), "npu-sim", None),
        (AotEager("aot_eager"), "cpu", None),
        (Eager(), "npu", None),
        (NpugraphEx("npugraph_ex", stand_in="eager"), "cpu", None),
        (Cudagraphs("cudagraphs", stand_in="pkg.mod.backend"), "cpu", None),
    ],
)
def test_where_a_mode_can_run(mode, device, words):
    """Case 11: a capture that a device cannot make is known before anything starts."""
    reason = mode.unavailable(device)
    assert (reason is None) if words is None else (reason is not None and words in reason)


def test_inductor_needs_a_compiler(monkeypatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert "C++ compiler" in (Inductor("inductor").unavailable("cpu") or "")
    assert "C++ compiler" in (MaxAutotune("max-autotune").unavailable("cpu") or "")


def test_inductor_on_npu_needs_triton_or_another_generator(monkeypatch):
    monkeypatch.delenv("TORCHINDUCTOR_NPU_BACKEND", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert "triton-ascend" in (Inductor("inductor").unavailable("npu") or "")
    assert Inductor("inductor", options={"npu_backend": "dvm"}).unavailable("npu") is None


@pytest.mark.parametrize(
    ("mode", "device", "words"),
    [
        (Eager(options={"x": 1}), "cpu", "eager has no options"),
        (Eager(stand_in="eager"), "cpu", "stand in for"),
        (AotEager("aot_eager", options={"x": 1}), "cpu", "has no options"),
        (Inductor("inductor", compile_mode="reduce-overhead"), "cpu", "mode=NAME"),
        (NpugraphEx("npugraph_ex", compile_mode="max-autotune"), "npu", "mode=NAME"),
        (NpugraphEx("npugraph_ex", fullgraph=1), "npu", "fullgraph"),
        (NpugraphEx("npugraph_ex", dynamic="yes"), "npu", "dynamic"),
        (NpugraphEx("npugraph_ex", options={"foo": 1}), "npu", "no such option"),
        (NpugraphEx("npugraph_ex", stand_in="eager", options={"foo": 1}), "cpu", "no such option"),
        (
            TorchCompile("t", compile_mode="reduce-overhead", options={"triton.cudagraphs": False}),
            "cpu",
            "cannot both be given",
        ),
        (TorchCompile("t", backend="eager", compile_mode="x"), "cpu", "ignores it"),
        (TorchCompile("t", backend=""), "cpu", "does not name a backend"),
        (TorchCompile("t", options={"max_autotun": True}), "cpu", "did you mean"),
        (TorchCompile("t", backend="other", options={"anything": 1}), "cpu", None),
    ],
)
def test_wrong_settings_are_usage_errors(mode, device, words):
    """Cases 10 and 23: refused before torch would swallow or ignore them."""
    problem = mode.invalid(device)
    assert (problem is None) if words is None else (problem is not None and words in problem)


def test_options_of_another_device_make_a_mode_unavailable():
    turned = MaxAutotune("max-autotune", options={"frozen_parameter": True, "freezing": None})
    assert turned.invalid("npu") is None
    assert "frozen_parameter belongs to max-autotune on npu" in (turned.unavailable("cpu") or "")
    untouched = MaxAutotune("max-autotune", options={"frozen_parameter": False, "oo_level": "O3"})
    assert untouched.unavailable("cpu") is None
    assert untouched.invalid("cpu") is None
    assert untouched.changed_options("cpu") == {}


def test_gears_need_one_dynamic_graph():
    """Case 17."""
    gears = {"dim_gears": {0: {0: [2, 4, 8]}}}
    assert "dynamic=true" in (MaxAutotune("m", options=gears).invalid("npu") or "")
    assert MaxAutotune("m", dynamic=True, options=gears).invalid("npu") is None
    eleven = list(range(2, 13))
    many = {"dim_gears": {0: {0: eleven, 1: eleven}}, "dynamic_gears_merge_policy": "product"}
    assert "121 > 100" in (MaxAutotune("m", dynamic=True, options=many).invalid("npu") or "")


def test_what_really_runs_is_named():
    assert MaxAutotune("max-autotune").backend("npu") == "torchair"
    assert MaxAutotune("max-autotune").backend("cpu") == "inductor"
    assert NpugraphEx("npugraph_ex", stand_in="a.b.c").backend("cpu") == "stand-in a.b.c"
    assert TorchCompile("t", backend="openxla").backend("cpu") == "openxla"


@pytest.mark.parametrize("newer", [True, False])
def test_an_old_torch_npu_is_said_to_run_reduce_overhead(newer, tmp_path, monkeypatch):
    dynamo = tmp_path / "torch_npu" / "dynamo"
    dynamo.mkdir(parents=True)
    (dynamo.parent / "__init__.py").touch()
    (dynamo / "__init__.py").write_text("NPUGRAPH_EX_BACKEND = 'npugraph_ex'" if newer else "")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "torch_npu", raising=False)
    expected = npu_compat.NPUGRAPH_EX if newer else npu_compat.LEGACY_BACKEND
    assert NpugraphEx("npugraph_ex").backend("npu") == expected
