"""Evidence: what ran is counted, and every way to run something else is noticed."""

from __future__ import annotations

import logging
import warnings

import pytest

torch = pytest.importorskip("torch")

from benchbench import evidence, reasons  # noqa: E402
from benchbench.evidence import Watch  # noqa: E402
from benchbench.models import Inputs  # noqa: E402
from benchbench.modes.eager import Eager  # noqa: E402
from benchbench.modes.max_autotune import MaxAutotune  # noqa: E402
from benchbench.modes.npugraph_ex import NpugraphEx  # noqa: E402
from benchbench.modes.torch_compile import TorchCompile  # noqa: E402
from benchbench.records import GraphBreak  # noqa: E402


class FakeDevice:
    kind = "cpu"
    index = 0


DEVICE = FakeDevice()
X = torch.ones(4, 4)


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


@pytest.fixture(scope="module")
def gaps():
    """Two ops that run in eager and have no Meta: neither gets into a graph."""
    library = torch.library.Library("bbgap", "FRAGMENT")
    for name, factor in (("gap_a", 2), ("gap_b", 3)):
        library.define(f"{name}(Tensor x) -> Tensor")
        library.impl(name, torch._dynamo.disable(lambda x, f=factor: x * f), "CPU")
    yield library
    library._destroy()


class TwoGaps(torch.nn.Module):
    def forward(self, x):
        x = torch.ops.bbgap.gap_a(x + 1)
        x = torch.ops.bbgap.gap_b(x * 2)
        return torch.ops.bbgap.gap_a(x) + 1


class Counting(torch.nn.Module):
    """An integer attribute is guarded as a constant: it recompiles in each call."""

    def __init__(self):
        super().__init__()
        self.step = 0

    def forward(self, x):
        self.step += 1
        return x + self.step


class Plain(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x) + 1


def eager_backend(**settings):
    return TorchCompile("torch_compile", backend="eager", **settings)


def test_one_graph(watch):
    mode = eager_backend(fullgraph=True)
    compiled = mode.prepare(Plain(), DEVICE, watch)
    compiled(X)
    found = watch.collect(mode, DEVICE)
    assert (found.effective, found.graphs, found.captured_ops) == ("eager", 1, 2)
    assert found.fx_ops == {"relu": 1, "add": 1}
    assert found.compile_events == watch.events == 1
    assert watch.last_event_ns > 0
    assert (found.breaks, found.recompiles, found.fallbacks, found.in_window) == ([], [], [], [])
    assert evidence.caveats(mode, found) == []
    assert watch.compile_stages()["backend"] > 0


def test_the_measured_callable_is_what_torch_compile_returns(watch):
    compiled = eager_backend().prepare(Plain(), DEVICE, watch)
    assert type(compiled) is type(torch.compile(Plain(), backend="eager"))


def test_eager_compiles_nothing(watch):
    module = Plain()
    assert Eager().prepare(module, DEVICE, watch) is module
    found = watch.collect(Eager(), DEVICE)
    assert (found.effective, found.graphs, found.fallbacks) == ("eager", 0, [])


def test_every_break_has_its_place(watch, gaps):
    mode = eager_backend()
    mode.prepare(TwoGaps(), DEVICE, watch)(X)
    found = watch.collect(mode, DEVICE)
    assert len(found.breaks) == 3
    assert all(__file__ in (one.location or "") for one in found.breaks)
    assert any("bbgap.gap_b" in one.reason for one in found.breaks)
    assert found.fallbacks == []
    assert evidence.caveats(mode, found) == ["GRAPH_BREAKS"]


def test_a_failed_full_graph_names_all_gaps_and_their_calls(watch, gaps):
    """Case 1: both ops and how often each is called, not only the first."""
    mode = NpugraphEx("npugraph_ex", stand_in="eager")
    with pytest.raises(torch._dynamo.exc.Unsupported) as raised:
        mode.prepare(TwoGaps(), DEVICE, watch)(X)
    kind, reason, hint = evidence.error_reason(raised.value)
    assert kind == "Unsupported"
    assert "bbgap.gap_a" in reason
    assert hint
    sentence = watch.explain(raised.value, TwoGaps(), Inputs((X,))) or ""
    assert "bbgap.gap_a.default (2 calls)" in sentence
    assert "bbgap.gap_b.default (1 call)" in sentence
    breaks = watch.collect(mode, DEVICE).breaks
    assert [one.ops for one in breaks] == [
        {"bbgap.gap_a.default": 2},
        {"bbgap.gap_b.default": 1},
        {"bbgap.gap_a.default": 2},
    ]


def test_only_a_broken_graph_is_explained(watch):
    assert watch.explain(RuntimeError("x"), Plain(), Inputs((X,))) is None
    unsupported = torch._dynamo.exc.Unsupported("x", "y", False)
    assert watch.explain(unsupported, Plain(), Inputs(("no tensor",))) is None
    assert any("could not be found" in note for note in watch.collect(Eager(), DEVICE).notes)


def test_breaks_without_an_op_keep_reason_and_place():
    breaks = [GraphBreak(reason="data-dependent branch", location="a.py:3")]
    assert evidence.breaks_sentence(breaks) == "not in graph: data-dependent branch at a.py:3"
    assert evidence.breaks_sentence([]) == ""


def test_a_data_dependent_branch_is_one_break(watch):
    class Branch(torch.nn.Module):
        def forward(self, x):
            y = x + 1
            if y.sum() > 0:
                y = y * 2
            return y + 1

    mode = eager_backend()
    mode.prepare(Branch(), DEVICE, watch)(X)
    assert [one.reason for one in watch.collect(mode, DEVICE).breaks] == ["data-dependent branch"]


def test_a_disabled_forward_is_eager(watch):
    """Case 10: nothing was compiled, so nothing may pass for compiled."""

    class Disabled(torch.nn.Module):
        @torch.compiler.disable
        def forward(self, x):
            return x + 1

    mode = eager_backend()
    mode.prepare(Disabled(), DEVICE, watch)(X)
    found = watch.collect(mode, DEVICE)
    assert found.effective == "eager (0 graphs)"
    assert found.fallbacks == ["eager (0 graphs)"]


def test_recompiles_and_the_fallback_at_their_limit(watch):
    """Cases 13 and 14: seven recompiles, then eager with one log line as the only sign."""
    mode = eager_backend()
    compiled = mode.prepare(Counting(), DEVICE, watch)
    for _ in range(10):
        compiled(X)
    found = watch.collect(mode, DEVICE)
    assert found.graphs == torch._dynamo.config.recompile_limit
    assert len(found.recompiles) == torch._dynamo.config.recompile_limit - 1
    assert found.recompiles[0] == "self.step == 0 (forward)"
    assert found.fallbacks == ["eager after the recompile limit: self.step == 7"]
    assert "recompile limit" in found.effective


def test_the_recompile_limit_under_fullgraph_is_an_error(watch):
    compiled = eager_backend(fullgraph=True).prepare(Counting(), DEVICE, watch)
    for _ in range(torch._dynamo.config.recompile_limit):
        compiled(X)
    with pytest.raises(Exception, match="fullgraph") as raised:
        compiled(X)
    assert evidence.error_reason(raised.value)[1] == "recompile limit reached under fullgraph"


def test_a_compile_inside_the_window_is_caught(watch):
    """Case 16: warmed up with one shape, timed with another."""
    mode = eager_backend(dynamic=False)
    compiled = mode.prepare(Plain(), DEVICE, watch)
    compiled(X)
    with watch.window():
        compiled(X)
    assert watch.collect(mode, DEVICE).in_window == []
    with watch.window():
        compiled(torch.ones(5, 4))
    (event,) = watch.collect(mode, DEVICE).in_window
    assert event.startswith("compile of forward: ")
    assert "size" in event


def test_a_capture_inside_the_window_is_caught(watch):
    """npugraph_ex only counts; the counters are compared at both ends of the window."""
    counters = torch._dynamo.utils.counters["npugraph_ex"]
    mode = NpugraphEx("npugraph_ex", stand_in="eager")
    mode.prepare(Plain(), DEVICE, watch)(X)
    counters["captured_graph_1"] = 1
    assert watch.events == 2
    with watch.window():
        counters["captured_graph_1"] = 2
        counters["recapture_due_to_mutated_input_change_graph_1"] += 1
    found = watch.collect(mode, DEVICE)
    assert found.captures == 2
    assert found.recaptures == {"mutated_input_change": 1}
    assert found.in_window == [
        "capture: captured_graph_1: 1 -> 2",
        "capture: recapture_due_to_mutated_input_change_graph_1: 0 -> 1",
    ]


def test_reaching_the_capture_limit_is_a_fallback(watch):
    """Cases 19 and 20: the library warns, drops its counters and goes on in eager."""
    counters = torch._dynamo.utils.counters["npugraph_ex"]
    mode = NpugraphEx("npugraph_ex", stand_in="eager")
    mode.prepare(Plain(), DEVICE, watch)(X)
    counters["captured_graph_1"] = 64
    assert watch.events == 2
    counters.pop("captured_graph_1")
    (text,) = watch.collect(mode, DEVICE).fallbacks
    assert text == "eager: npugraph_ex dropped captured_graph_1"


def test_a_warning_of_the_fallback_is_read(watch):
    mode = NpugraphEx("npugraph_ex", stand_in="eager")
    mode.prepare(Plain(), DEVICE, watch)(X)
    warnings.showwarning(
        UserWarning("The capture_limit reached, we will fall back to eager for all"),
        UserWarning,
        "somewhere.py",
        1,
    )
    (text,) = watch.collect(mode, DEVICE).fallbacks
    assert "capture_limit" in text


def test_under_a_debug_switch_eager_is_what_was_asked_for(watch):
    mode = NpugraphEx("npugraph_ex", stand_in="eager", options={"force_eager": True})
    mode.prepare(Plain(), DEVICE, watch)(X)
    watch.listen("npugraph_ex", logging.WARNING)
    logging.getLogger("npugraph_ex").warning("force_eager=True: the graph FALLS BACK to EAGER")
    found = watch.collect(mode, DEVICE)
    assert found.fallbacks == []
    assert any("FALLS BACK" in note for note in found.notes)
    assert watch.collect(eager_backend(), DEVICE).fallbacks != []


def test_hidden_log_lines_reach_the_record(watch):
    logger = logging.getLogger("torchair")
    watch.listen("torchair", logging.WARNING)
    logger.warning("Skip auto-callback for bb.op: no kernel")
    logger.warning("When debug.run_eagerly=True is enabled, we will fall back to eager")
    mode = eager_backend()
    mode.prepare(Plain(), DEVICE, watch)(X)
    found = watch.collect(mode, DEVICE)
    assert found.notes == ["torchair: Skip auto-callback for bb.op: no kernel"]
    assert "run_eagerly" in found.fallbacks[0]


def test_the_window_is_quiet(watch):
    """Below WARNING both NPU libraries format a line in each call: not while timing."""
    logger = logging.getLogger("torchair")
    watch.listen("torchair", logging.WARNING)
    with watch.window():
        assert not logger.isEnabledFor(35)
    assert logger.isEnabledFor(logging.WARNING)


def test_graph_engine_lines_give_the_compile_time(watch):
    logger = logging.getLogger("torchair")
    watch.listen("torchair", logging.WARNING)
    line = "torchair run at 1, process input: 5us, compile 2000000us, graph run: 7us"
    for _ in range(evidence.MAX_GE_LINES):
        logger.log(35, line.replace("2000000", "500000"))
    assert watch.compile_stages()["torchair.compile"] == pytest.approx(2.0)
    logger.event(line)  # a no-op by now: nothing is logged per call any more
    assert watch.compile_stages()["torchair.compile"] == pytest.approx(2.0)
    del logger.event


def test_suppressed_errors_are_a_fallback(watch):
    def broken(gm, inputs):
        raise RuntimeError("no kernel today")

    torch._dynamo.config.suppress_errors = True
    try:
        mode = eager_backend()
        torch.compile(Plain(), backend=broken)(X)
    finally:
        torch._dynamo.config.suppress_errors = False
    fallbacks = watch.collect(mode, DEVICE).fallbacks
    assert any("the error was suppressed" in text for text in fallbacks)


def test_skipped_captures_carry_their_reason(watch):
    """Case 11: only a counter, or a log line, tells that nothing was captured."""
    torch._dynamo.utils.counters["inductor"]["cudagraph_skips"] += 1
    mode = eager_backend()
    mode.prepare(Plain(), DEVICE, watch)(X)
    assert watch.collect(mode, DEVICE).skips == ["cpu device"]
    logging.getLogger("torch._inductor.cudagraph_utils").warning(
        "skipping cudagraphs due to mutated inputs (1 instances)"
    )
    assert watch.collect(mode, DEVICE).skips == ["mutated inputs (1 instances)"]


def test_a_reset_of_dynamo_does_not_make_the_watch_deaf(watch):
    mode = eager_backend()
    mode.prepare(Plain(), DEVICE, watch)(X)
    torch._dynamo.reset()
    assert watch.events == 1
    torch.compile(Plain(), backend="eager")(X)
    assert watch.events == 2


def test_a_stand_in_says_so(watch):
    mode = MaxAutotune("max-autotune", stand_in="eager", options={"freezing": None})
    mode.prepare(Plain(), DEVICE, watch)(X)
    found = watch.collect(mode, DEVICE)
    assert found.effective == "stand-in eager"
    assert evidence.caveats(mode, found) == ["STAND_IN"]


def test_caches_speak_for_themselves(watch):
    counters = torch._dynamo.utils.counters
    assert watch.cache() == "none"
    counters["inductor"]["fxgraph_cache_miss"] = 1
    assert watch.cache() == "cold"
    counters["inductor"].clear()
    counters["inductor"]["fxgraph_cache_hit"] = 1
    assert watch.cache() == "warm"
    counters["inductor"].clear()
    counters["inductor"]["fxgraph_cache_bypass"] = 1
    assert watch.cache() == "bypassed"


def test_evidence_that_torch_lacks_is_said(monkeypatch):
    from torch._dynamo.output_graph import OutputGraph

    monkeypatch.delattr(OutputGraph, "call_user_compiler")
    monkeypatch.delattr(torch._dynamo.callback, "callback_handler")
    made = Watch()
    made.start()
    try:
        notes = made.collect(Eager(), DEVICE).notes
    finally:
        made.stop()
    assert any("compile events not available in torch" in note for note in notes)
    assert any("FX op histogram not available in torch" in note for note in notes)


def test_stop_leaves_torch_as_it_was():
    from torch._dynamo.output_graph import OutputGraph

    before = (OutputGraph.call_user_compiler, warnings.showwarning)
    handlers = list(logging.getLogger("torch._dynamo").handlers)
    made = Watch()
    made.start()
    made.stop()
    assert (OutputGraph.call_user_compiler, warnings.showwarning) == before
    assert logging.getLogger("torch._dynamo").handlers == handlers


# ---- texts -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (
            "expected size 8==4, stride 5==5 at dim=0\nError in op: torch.ops.bb.wide.default\n"
            "This error most often comes from a incorrect fake (aka meta) kernel for a custom op.",
            "torch.ops.bb.wide.default: expected size 8==4, stride 5==5 at dim=0",
        ),
        ("流资源不足 |\n\tStream resources are insufficient", "流资源不足 |"),
        ("", "RuntimeError"),
    ],
)
def test_the_reason_is_one_line_and_names_the_op(message, reason):
    """Cases 5 and 19: many lines, Chinese, tabs; the op stands in a later line."""
    kind, text, _ = reasons.error_reason(RuntimeError(message))
    assert kind == "RuntimeError"
    assert "\n" not in text
    assert text.startswith(reason)


def test_the_backend_s_own_exception_is_shown(watch):
    def broken(gm, inputs):
        raise NotImplementedError("torch.ops.aten.amax.default ge_converter is not implemented!")

    with pytest.raises(Exception, match="amax") as raised:
        torch.compile(Plain(), backend=broken)(X)
    kind, reason, hint = reasons.error_reason(raised.value)
    assert kind == "NotImplementedError"
    assert "aten.amax" in reason
    assert "converter" in (hint or "")


def test_recompile_reasons_lose_torch_s_quotation():
    text = (
        "0/7: self.step == 7       # self.step+=1  # a.py:35 in forward (HINT: torch.compile ...)"
    )
    assert reasons.recompile_reason(text) == "self.step == 7"


def test_long_reasons_are_cut():
    assert len(reasons.one_line("x " * 1000)) <= reasons.MAX_REASON
