"""Modes as a worker uses them: what reaches torch.compile, and the npu code over small fakes."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import types

import pytest

torch = pytest.importorskip("torch")

from benchbench import evidence  # noqa: E402
from benchbench.evidence import Watch  # noqa: E402
from benchbench.models import Inputs  # noqa: E402
from benchbench.modes import npu_compat  # noqa: E402
from benchbench.modes.cudagraphs import Cudagraphs  # noqa: E402
from benchbench.modes.inductor import Inductor  # noqa: E402
from benchbench.modes.max_autotune import MaxAutotune  # noqa: E402
from benchbench.modes.npugraph_ex import NpugraphEx  # noqa: E402
from benchbench.modes.torch_compile import TorchCompile  # noqa: E402

X = torch.ones(4, 4)


class FakeDevice:
    def __init__(self, kind="cpu"):
        self.kind = kind
        self.index = 0


CPU, CUDA, NPU = FakeDevice(), FakeDevice("cuda"), FakeDevice("npu-sim")


class Plain(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


@pytest.fixture(autouse=True)
def fresh_dynamo():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.fixture
def watch():
    made = Watch()
    made.start()
    yield made
    made.stop()


@pytest.fixture
def inductor_config():
    import torch._inductor.config as config

    with config.patch(freezing=False):
        yield config


# ---- stand-ins -----------------------------------------------------------------------------------


STAND_IN = """
from torch._dynamo.utils import counters

seen = {}

def capture(gm, example_inputs, **kwargs):
    seen.update(kwargs.get("options") or {})
    counters["npugraph_ex"]["captured_graph_1"] += 1
    return gm

def broken(gm, example_inputs, **kwargs):
    raise RuntimeError("capture failed: 流资源不足\\nStream resources are insufficient")
"""


def test_a_stand_in_from_a_file_gets_the_graph_and_the_options(watch, tmp_path):
    """Recipe of the cases: any backend function stands in, counts captures, sees the options."""
    file = tmp_path / "mine.py"
    file.write_text(STAND_IN, encoding="utf-8")
    options = {"frozen_parameter": True, "clone_input": True}
    mode = NpugraphEx("npugraph_ex", stand_in=f"{file}:capture", options=options)
    assert mode.unavailable("cpu") is None
    assert mode.prepare(Plain(), CPU, watch)(X).sum() == 32
    found = watch.collect(mode, CPU)
    assert found.effective == f"stand-in {file}:capture"
    assert (found.graphs, found.captures, found.fallbacks) == (1, 1, [])
    (module,) = [m for m in sys.modules.values() if getattr(m, "__file__", "") == str(file)] or [
        None
    ]
    if module is not None:
        assert module.seen == {"frozen_parameter": True}


def test_a_stand_in_that_fails_fails_the_row(watch, tmp_path):
    """Case 19."""
    file = tmp_path / "mine.py"
    file.write_text(STAND_IN, encoding="utf-8")
    mode = NpugraphEx("npugraph_ex", stand_in=f"{file}:broken")
    with pytest.raises(Exception, match="capture failed") as raised:
        mode.prepare(Plain(), CPU, watch)(X)
    assert evidence.error_reason(raised.value)[:2] == ("RuntimeError", "capture failed: 流资源不足")


def test_a_debug_switch_reads_as_eager_even_with_a_stand_in(watch):
    """Case 8."""
    mode = NpugraphEx("npugraph_ex", stand_in="eager", options={"force_eager": True})
    assert mode.diagnosis() == "force_eager=True"
    mode.prepare(Plain(), CPU, watch)(X)
    assert watch.collect(mode, CPU).effective == "eager (force_eager=True)"


# ---- what inductor is asked for ------------------------------------------------------


def test_a_compile_mode_is_opened_into_options(watch):
    """Case 10: torch refuses a mode beside options, so the mode's options are written out."""
    mode = Cudagraphs("cudagraphs", options={"triton": {"cudagraph_trees": False}})
    assert mode.compile_arguments(CUDA, watch) == {
        "backend": "inductor",
        "options": {"triton.cudagraphs": True, "triton.cudagraph_trees": False},
    }
    assert Inductor("inductor").compile_arguments(CPU, watch) == {"backend": "inductor"}


def test_max_autotune_on_a_cpu_freezes_and_asks_for_no_device_graphs(watch, inductor_config):
    config = inductor_config
    mode = MaxAutotune("max-autotune", options={"frozen_parameter": False, "freezing": None})
    options = mode.compile_arguments(CPU, watch)["options"]
    assert options["max_autotune"] is True
    assert options["freezing"] is True
    assert config.freezing is True
    assert not options.get("triton.cudagraphs")
    off = MaxAutotune("max-autotune", options={"freezing": False})
    assert off.compile_arguments(CPU, watch)["options"]["freezing"] is False
    assert config.freezing is False
    on_cuda = MaxAutotune("max-autotune").compile_arguments(CUDA, watch)["options"]
    assert on_cuda["triton.cudagraphs"] is True
    assert "freezing" not in on_cuda


def test_cudagraphs_without_a_capture_is_a_fallback(watch):
    """Case 11 on CUDA: the row must not pass for a captured one."""
    mode = Cudagraphs("cudagraphs")
    mode._watch = watch
    torch.compile(Plain(), backend="eager")(X)
    logging.getLogger("torch._inductor.cudagraph_utils").warning(
        "skipping cudagraphs due to mutated inputs"
    )
    found = watch.collect(mode, CUDA)
    assert found.captures == 0
    assert found.fallbacks == ["no device graph captured: mutated inputs"]
    assert "NOT_CAPTURED" in evidence.caveats(mode, found)
    silent = Watch()
    mode._watch = silent
    assert silent.collect(mode, CUDA).fallbacks == []  # the second call may still record
    with silent.window():
        pass
    assert "no device graph captured" in silent.collect(mode, CUDA).fallbacks[0]
    mode._watch = watch
    watch._cudagraphs = 2
    assert watch.collect(mode, CUDA).captures == 2
    assert watch.collect(mode, CUDA).fallbacks == []


def test_nothing_tuned_is_said(watch):
    mode = MaxAutotune("max-autotune")
    mode._watch = watch
    torch.compile(Plain(), backend="eager")(X)
    found = watch.collect(mode, CPU)
    assert found.tuned == 0
    assert evidence.caveats(mode, found) == ["NOTHING_TUNED"]
    torch._dynamo.utils.counters["inductor"]["select_algorithm_autotune"] = 5
    assert watch.collect(mode, CPU).tuned == 5
    assert evidence.caveats(mode, watch.collect(mode, CPU)) == []


def test_other_backends_get_their_options_unread(watch):
    mode = TorchCompile("t", backend="openxla", options={"a": {"b": 1}, "c": None})
    assert mode.compile_arguments(CPU, watch) == {"backend": "openxla", "options": {"a": {"b": 1}}}
    by_mode = TorchCompile("t", compile_mode="reduce-overhead")
    assert by_mode.compile_arguments(CPU, watch) == {
        "backend": "inductor",
        "mode": "reduce-overhead",
    }


@pytest.mark.slow
def test_inductor_for_real(watch, tmp_path, monkeypatch):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
    mode = Inductor("inductor")
    with torch.no_grad():
        assert torch.equal(mode.prepare(Plain(), CPU, watch)(X), Plain()(X))
    found = watch.collect(mode, CPU)
    assert (found.effective, found.graphs, found.tuned) == ("inductor", 1, None)
    assert watch.cache() == "cold"


@pytest.mark.slow
def test_max_autotune_really_tunes_on_a_cpu(watch, tmp_path, monkeypatch, inductor_config):
    """Without freezing the counter stays 0 for the same module."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("TORCHINDUCTOR_VEC_ISA_OK", "1")
    mode = MaxAutotune("max-autotune")
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU())
    x = torch.ones(8, 64)
    with torch.no_grad():
        torch.testing.assert_close(mode.prepare(module, CPU, watch)(x), module(x))
    found = watch.collect(mode, CPU)
    assert found.tuned is not None
    assert found.tuned > 0
    assert watch.cache() == "bypassed"


# ---- npu code over fakes -------------------------------------------------------------


class _Part:
    """A branch of a fake configuration."""


def fake_torchair(monkeypatch, seen):
    """Put packages into sys.modules that behave at import as torchair and npugraph_ex do."""

    class CompilerConfig:
        def __init__(self):
            self.ge_config, self.experimental_config, self.debug = _Part(), _Part(), _Part()
            self.debug.graph_dump, self.debug.aclgraph = _Part(), _Part()

    def get_npu_backend(*, compiler_config=None, custom_decompositions=None):
        seen.update(config=compiler_config, decompositions=custom_decompositions)
        return lambda gm, inputs, **kwargs: gm

    def set_dim_gears(tensor, gears):
        seen["gears"] = gears

    for name in ("torchair", "npugraph_ex"):
        package = types.ModuleType(name)
        package.__path__ = []
        package.CompilerConfig = CompilerConfig
        package.get_npu_backend = get_npu_backend
        package.inference = types.ModuleType(f"{name}.inference")
        package.inference.set_dim_gears = set_dim_gears
        core = types.ModuleType(f"{name}.core")
        core.__path__ = []
        for module in (package, core, package.inference):
            monkeypatch.setitem(sys.modules, module.__name__, module)
        monkeypatch.setitem(
            sys.modules, f"{name}.core.utils", types.ModuleType(f"{name}.core.utils")
        )
        monkeypatch.setattr(logging.getLogger(name), "level", logging.ERROR)


def test_torchair_gets_the_options_by_their_paths_and_stays_quiet(watch, monkeypatch, tmp_path):
    seen = {}
    fake_torchair(monkeypatch, seen)
    monkeypatch.setenv("BENCHBENCH_SCRATCH", str(tmp_path))
    options = {
        "frozen_parameter": True,
        "oo_level": "O1",
        "graph_dump": {"type": "py"},
        "decompositions": ["aten.addmm"],
        "max_autotune_gemm_backends": None,
    }
    mode = MaxAutotune("max-autotune", options=options)
    assert mode.invalid("npu") is None
    mode.prepare(Plain(), NPU, watch)(X)
    config = seen["config"]
    assert config.experimental_config.frozen_parameter is True
    assert config.ge_config.oo_level == "O1"
    # Nothing may be written into the folder that the user started us in.
    assert config.ge_config.export_compile_stat == "0"
    assert config.debug.graph_dump.path.startswith(str(tmp_path))
    assert any(str(op).startswith("aten.addmm") for op in seen["decompositions"])
    found = watch.collect(mode, NPU)
    assert found.effective == "torchair"
    assert any("Ascend IR histogram not available" in note for note in found.notes)


def test_gears_mark_the_inputs_and_refuse_other_sizes(watch, monkeypatch):
    """Case 17: an off-gear batch is an error of its row, with the gears named."""
    seen = {}
    fake_torchair(monkeypatch, seen)
    mode = MaxAutotune("m", dynamic=True, options={"dim_gears": {"0": {"0": [2, 4]}}})
    mode.mark_inputs(Inputs((X,)))
    assert seen["gears"] == {0: [2, 4]}
    with pytest.raises(ValueError, match=r"size 5 of input 0, dimension 0.*\[2, 4\]"):
        mode.mark_inputs(Inputs((torch.ones(5, 4),)))
    MaxAutotune("m").mark_inputs(Inputs((X,)))


def test_npugraph_ex_is_a_backend_name_with_options(watch, monkeypatch):
    fake_torchair(monkeypatch, {})
    monkeypatch.setattr(npu_compat, "has_npugraph_ex", lambda: True)
    options = {
        "frozen_parameter": True,
        "clone_input": True,
        "post_grad_custom_pre_pass": "os.getcwd",
    }
    arguments = NpugraphEx("npugraph_ex", options=options).compile_arguments(NPU, watch)
    assert arguments["backend"] == "npugraph_ex"
    assert arguments["options"]["frozen_parameter"] is True
    assert callable(arguments["options"]["post_grad_custom_pre_pass"])
    assert "clone_input" not in arguments["options"]
    assert logging.getLogger("npugraph_ex").level == logging.WARNING


def test_without_the_backend_reduce_overhead_runs_and_says_so(watch, monkeypatch):
    """Case 23: on an older torch_npu."""
    seen = {}
    fake_torchair(monkeypatch, seen)
    monkeypatch.setattr(npu_compat, "has_npugraph_ex", lambda: False)
    options = {"inplace_pass": False, "force_recapture": True}
    arguments = NpugraphEx("npugraph_ex", options=options).compile_arguments(NPU, watch)
    assert callable(arguments["backend"])
    assert seen["config"].mode == "reduce-overhead"
    assert seen["config"].debug.aclgraph.disable_reinplace_inplaceable_ops_pass is True
    notes = watch.collect(TorchCompile("t", backend="eager"), NPU).notes
    assert any("reduce-overhead ran in its place" in note for note in notes)
    assert any("force_recapture" in note for note in notes)


def test_npugraph_ex_without_a_capture_is_a_fallback(watch):
    mode = NpugraphEx("npugraph_ex")
    mode._watch = watch
    torch.compile(Plain(), backend="eager")(X)
    assert "no device graph captured" in watch.collect(mode, NPU).fallbacks[0]
    torch._dynamo.utils.counters["npugraph_ex"]["captured_graph_1"] = 1
    found = watch.collect(mode, NPU)
    assert (found.captures, found.fallbacks) == (1, [])


def test_signal_handlers_survive_the_import(watch, monkeypatch):
    """Both packages install handlers that keep a process alive; ours are put back."""
    fake_torchair(monkeypatch, {})
    before = signal.getsignal(signal.SIGTERM)
    utils = "torchair.core.utils"
    monkeypatch.delitem(sys.modules, utils)

    class Finder:
        @staticmethod
        def find_spec(name, path=None, target=None):
            """Find nothing, but do at import what the real package does."""
            if name == utils:
                signal.signal(signal.SIGTERM, lambda *args: None)
                monkeypatch.setitem(sys.modules, utils, types.ModuleType(utils))

    monkeypatch.setattr(sys, "meta_path", [Finder, *sys.meta_path])
    with contextlib.suppress(ModuleNotFoundError):
        npu_compat.load("torchair", watch)
    assert signal.getsignal(signal.SIGTERM) is before


def test_ascend_ir_is_counted_once_per_graph(watch, monkeypatch):
    class Node:
        def __init__(self, kind):
            self.type = kind

    class GeConcreteGraph:
        def __init__(self):
            self.graph = types.SimpleNamespace(op=[Node("Add"), Node("Add"), Node("MatMulV2")])

        def compile(self):
            return "compiled"

    fake_torchair(monkeypatch, {})
    inner = types.ModuleType("torchair._ge_concrete_graph.fx2ge_converter")
    inner.GeConcreteGraph = GeConcreteGraph
    parent = types.ModuleType("torchair._ge_concrete_graph")
    parent.__path__ = []
    monkeypatch.setitem(sys.modules, parent.__name__, parent)
    monkeypatch.setitem(sys.modules, inner.__name__, inner)
    watch.watch_lowering()
    graph = GeConcreteGraph()
    assert [graph.compile(), graph.compile()] == ["compiled", "compiled"]
    assert watch.ir_ops() == {"Add": 2, "MatMulV2": 1}
