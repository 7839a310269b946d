"""What really ran: counted by the libraries' own events, never inferred from what was asked for.

:class:`Watch` listens from before the first compile to the end of the worker. Its sources are
PyTorch's compile callbacks, counters, compile metrics and break reasons, the log records and
warnings of torch and torch_npu, and one hook on the call of the backend. All of them act while
something compiles or captures; none runs in a call that only executes.

Most sources are private parts of torch. Each is looked for before it is used, and a missing one
becomes a note ("... not available in torch X"), never a silent zero.
"""

from __future__ import annotations

import functools
import logging
import re
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import torch

from benchbench.breaks import (
    break_reasons,
    breaks_sentence,
    explain_breaks,
    graph_break,
    ops_called,
)
from benchbench.caveats import Caveat
from benchbench.reasons import break_reason, error_reason, one_line, recompile_reason
from benchbench.records import GraphBreak, GraphEvidence

if TYPE_CHECKING:
    import torch._dynamo

    from benchbench.devices import Device
    from benchbench.models import Inputs
    from benchbench.modes import Mode

__all__ = [
    "Watch",
    "breaks_sentence",
    "caveats",
    "error_reason",
    "explain_breaks",
    "one_line",
    "ops_called",
]

MAX_NOTES = 30
MAX_EVENTS = 1000
MAX_FALLBACK = 160  # it stands in the table, too
# Lines that the Graph Engine logs per call while it is listened to; later ones would be in the
# timed path, so listening to them ends after a few (the compile is in the first).
MAX_GE_LINES = 4

_LIMIT = re.compile(r"hit config\.(\w*(?:recompile|cache_size)_limit)|recompile limit exceeded")
_SUPPRESSED = "WON'T CONVERT"
_TO_EAGER = re.compile(r"fall(?:s|ing)? back to eager", re.IGNORECASE)
_SKIPPED_CAPTURE = re.compile(
    r"skipping cudagraphs due to (.*)|NPUGraph: skipped - (.*)", re.DOTALL
)
_GE_EVENT = re.compile(r"process input: (\d+)us, compile (\d+)us, graph run: (\d+)us")
_NOISE = re.compile(r"TypedStorage is deprecated")  # raised by inductor's own autotuning
_NPU_LIBRARIES = ("torch_npu", "torchair", "npugraph_ex")
# Not torchair and npugraph_ex, which make loggers of a class of their own when they are imported:
# a logger that somebody else made before breaks their every call. npu_compat.load listens to them.
_LIBRARIES = ("torch._dynamo", "torch._inductor", "torch._functorch", "torch_npu")

# Counters that are kept in the record: where the other fields were read from.
_KEPT = {
    ("stats", "unique_graphs"),
    ("stats", "calls_captured"),
    ("frames", "total"),
    ("frames", "ok"),
    ("inductor", "select_algorithm_autotune"),
    ("inductor", "select_algorithm_precompile"),
    ("inductor", "extern_calls"),
    ("inductor", "cudagraph_skips"),
    ("inductor", "fxgraph_cache_hit"),
    ("inductor", "fxgraph_cache_miss"),
    ("inductor", "fxgraph_cache_bypass"),
    ("aot_autograd", "autograd_cache_hit"),
    ("aot_autograd", "autograd_cache_miss"),
    ("aot_autograd", "autograd_cache_bypass"),
}
_CAPTURED = "captured_"
_RECAPTURE = "recapture_due_to_"


@dataclass(frozen=True, slots=True)
class _Event:
    """One compile, recompile or capture, when it ended."""

    time_ns: int
    kind: str
    """``compile`` or ``capture``."""
    what: str
    """Compile id or counter, to find the reason later."""
    in_window: bool


class _Listener(logging.Handler):
    """Hands each record of a library's logger to the watch."""

    def __init__(self, watch: Watch) -> None:
        super().__init__(logging.NOTSET)
        self._watch = watch

    def emit(self, record: logging.LogRecord) -> None:
        self._watch.heard(record)


class Watch:
    """Listens to compiling and capturing in this process; one per worker, used from one thread."""

    def __init__(self) -> None:
        self._listener = _Listener(self)
        self._events: list[_Event] = []
        self._n_events = 0
        self._last_ns = 0
        self._in_window = False
        self.measured = False
        """Whether the measured window was reached, so that every capture should be there."""
        self._explained: list[GraphBreak] = []
        self._cudagraphs = 0
        self._messages: list[str] = []
        self._notes: list[str] = []
        self._skips: list[str] = []
        self._npu_seen: dict[str, int] = {}
        self._npu_lost: list[str] = []
        self._fx_ops: Counter[str] = Counter()
        self._ir_ops: Counter[str] = Counter()
        self._callbacks: dict[str, str] = {}
        self._backend_s = 0.0
        self._ge_compile_us = 0
        self._ge_lines = 0
        self._break_reasons_before = 0
        self._undo: list[Callable[[], None]] = []
        self._started = False
        self._attached = False

    # ---- start and stop --------------------------------------------------------

    def start(self, *, compiles: bool = True) -> None:
        """Begin to listen; call it before the mode prepares the module.

        A mode that does not compile spares itself torch's compiler, whose import takes as long as
        torch's own; should the model bring it in, its events are heard from then on.
        """
        self._started = True
        self._hook_warnings()
        for name in _LIBRARIES:
            self.listen(name)
        if compiles or "torch._dynamo" in sys.modules:
            self._attach()

    def _attach(self) -> None:
        """Listen to torch's compiler, which ``torch._dynamo`` imports if it is not there yet."""
        self._attached = True
        self._counters().clear()
        clear = getattr(torch._dynamo.utils, "clear_compilation_metrics", None)
        if clear is not None:
            clear()
        self._break_reasons_before = len(break_reasons())
        self._listen_to_compiles()
        self._hook_backend_call()

    def stop(self) -> None:
        """Take everything back. Nothing needs it at the end of a process; tests do."""
        while self._undo:
            self._undo.pop()()

    def listen(self, logger_name: str, level: int | None = None) -> None:
        """Hear the records of a logger; ``level`` lowers its threshold where that is needed."""
        logger = logging.getLogger(logger_name)
        listener = self._listener
        logger.addHandler(listener)  # twice is once
        self._undo.append(lambda: logger.removeHandler(listener))
        if level is not None and logger.level > level:
            before = logger.level
            logger.setLevel(level)
            self._undo.append(lambda: logger.setLevel(before))

    def note(self, text: str) -> None:
        """Remember one line for the record."""
        if text not in self._notes and len(self._notes) < MAX_NOTES:
            self._notes.append(text)

    def watch_lowering(self) -> None:
        """Count the nodes of each Ascend graph, and the ops that torchair calls back for.

        Needs torchair. A callback runs the op's eager kernel from inside the Ascend graph.
        """
        self._count_ir_ops()
        self._count_callbacks()

    def _count_callbacks(self) -> None:
        try:
            from torchair._ge_concrete_graph import custom_op_codegen_common as codegen
        except ImportError:
            return  # before torch_npu 2.13 there are no automatic callbacks
        original = getattr(codegen, "register_callback_converter", None)
        if original is None:
            self.note("automatic callbacks not available in this torchair")
            return
        callbacks = self._callbacks

        @functools.wraps(original)
        def register_and_note(target: Any, *args: Any, **kwargs: Any) -> Any:
            callbacks[str(target)] = "torchair (automatic callback)"
            return original(target, *args, **kwargs)

        codegen.register_callback_converter = register_and_note
        self._undo.append(lambda: setattr(codegen, "register_callback_converter", original))

    def _count_ir_ops(self) -> None:
        try:
            from torchair._ge_concrete_graph.fx2ge_converter import GeConcreteGraph
        except ImportError as error:
            self.note(f"Ascend IR histogram not available: {error}")
            return
        original = getattr(GeConcreteGraph, "compile", None)
        if original is None:
            self.note("Ascend IR histogram not available in this torchair")
            return
        seen: set[int] = set()
        ir_ops = self._ir_ops

        @functools.wraps(original)
        def compile_and_count(graph: Any, *args: Any, **kwargs: Any) -> Any:
            if id(graph) not in seen:  # compile() is called in each run and returns early
                seen.add(id(graph))
                ir_ops.update(node.type for node in graph.graph.op)
            return original(graph, *args, **kwargs)

        setattr(GeConcreteGraph, "compile", compile_and_count)  # noqa: B010 (mypy)
        self._undo.append(lambda: setattr(GeConcreteGraph, "compile", original))

    # ---- what happens ----------------------------------------------------------

    @property
    def events(self) -> int:
        """Compile, recompile and capture events so far."""
        self._poll()
        return self._n_events

    @property
    def last_event_ns(self) -> int:
        """Monotonic nanoseconds when the last event ended (or was noticed), 0 before the first."""
        self._poll()
        return self._last_ns

    @contextmanager
    def window(self) -> Iterator[None]:
        """Mark the measured window: events inside it invalidate the row."""
        self._poll()
        made = logging.root.manager.loggerDict
        quiet = [logging.getLogger(name) for name in ("torchair", "npugraph_ex") if name in made]
        levels = [logger.level for logger in quiet]
        for logger in quiet:
            # Below this level both libraries format a line in each call.
            logger.setLevel(max(logger.level, logging.ERROR))
        self._in_window = self.measured = True
        try:
            yield
        finally:
            self._poll()
            self._in_window = False
            for logger, level in zip(quiet, levels, strict=True):
                logger.setLevel(level)

    def heard(self, record: logging.LogRecord) -> None:
        """Sort one log record of a library into what it means. Called by the log handlers."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError):  # a library's own formatting mistake
            message = str(record.msg)
        event = _GE_EVENT.search(message)
        if event:
            self._heard_ge_line(record, int(event[2]))
            return
        if record.levelno >= logging.WARNING:
            self._sort(message, f"{record.name}: ")

    def _sort(self, message: str, source: str, *, noted: bool = True) -> None:
        skipped = _SKIPPED_CAPTURE.search(message)
        if skipped:
            reason = one_line(skipped[1] or skipped[2])
            if reason not in self._skips:
                self._skips.append(reason)
        elif _LIMIT.search(message) or _SUPPRESSED in message or _TO_EAGER.search(message):
            self._messages.append(message)
        elif noted and not _NOISE.search(message):
            self.note(source + one_line(message))

    def _heard_ge_line(self, record: logging.LogRecord, compile_us: int) -> None:
        self._ge_compile_us += compile_us
        self._ge_lines += 1
        if self._ge_lines == MAX_GE_LINES:
            logger = logging.getLogger(record.name)
            setattr(logger, "event", lambda *args, **kwargs: None)  # noqa: B010 (mypy)

    # ---- what was found --------------------------------------------------------

    def counter(self, group: str, name: str) -> int:
        """Return one counter of torch's, 0 when it was never raised."""
        return int(self._counters()[group][name])

    def cudagraphs(self, index: int = 0) -> int:
        """Return how many CUDA graphs were recorded on this device."""
        return max(self._cudagraphs, _recorded_cudagraphs(index))

    def npu_captures(self) -> int:
        """Return how many NPU graphs were captured, by npugraph_ex's own counters."""
        self._poll()
        return sum(n for name, n in self._npu_seen.items() if name.startswith(_CAPTURED))

    def ir_ops(self) -> dict[str, int]:
        """Return Ascend IR type -> number of nodes, over all graphs that were loaded."""
        return dict(self._ir_ops.most_common())

    def callbacks(self) -> dict[str, str]:
        """Return op -> how, for ops whose eager kernel runs inside an Ascend graph."""
        return dict(self._callbacks)

    def cache(self) -> Literal["cold", "warm", "bypassed", "none"]:
        """Say what the compile cache did, by its own counters.

        ``bypassed``: nothing of this case can be cached (inductor's freezing does that).
        """
        inductor, aot = self._counters()["inductor"], self._counters()["aot_autograd"]
        hits = inductor["fxgraph_cache_hit"] + aot["autograd_cache_hit"]
        misses = inductor["fxgraph_cache_miss"] + aot["autograd_cache_miss"]
        bypasses = inductor["fxgraph_cache_bypass"] + aot["autograd_cache_bypass"]
        if hits and not misses:
            return "warm"
        if inductor["fxgraph_cache_bypass"] or (bypasses and not misses):
            return "bypassed"
        return "cold" if misses else "none"

    def compile_stages(self) -> dict[str, float]:
        """Return stage -> wall seconds of compiling, by torch's own clock; stages overlap."""
        times = getattr(torch._dynamo.utils, "compilation_time_metrics", None)
        if times is None:
            self.note(f"compile stages not available in torch {torch.__version__}")
            return {}
        stages = {name: float(sum(seconds)) for name, seconds in times.items() if seconds}
        if self._backend_s:
            stages["backend"] = self._backend_s
        if self._ge_lines:
            stages["torchair.compile"] = self._ge_compile_us / 1e6
        return stages

    def explain(
        self, error: BaseException, module: Callable[..., Any], inputs: Inputs
    ) -> str | None:
        """Return one line naming all that kept a model out of a full graph; keep the breaks.

        ``None`` when the error is of another kind, or nothing more can be found out because the
        model does not run without a full graph either.
        """
        if not isinstance(error, torch._dynamo.exc.Unsupported):
            return None
        try:
            self._explained = explain_breaks(module, inputs)
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError) as again:
            self.note(f"the other graph breaks could not be found: {one_line(str(again))}")
        return breaks_sentence(self._explained) or None

    def collect(self, mode: Mode, device: Device) -> GraphEvidence:
        """Return all of it, with the verdict on what really ran.

        A non-empty ``fallbacks`` means that work ran in eager although a graph was asked for.
        """
        self._poll()
        if not mode.compiles:
            return _finished(GraphEvidence(effective="eager", notes=self._notes), mode, device)
        metrics = _compile_metrics()
        recompiles = self._recompiles(metrics)
        fallbacks = self._fallbacks(metrics, diagnosis=bool(mode.diagnosis()))
        backend = mode.backend(device.kind)
        evidence = GraphEvidence(
            effective=_effective(backend, fallbacks),
            graphs=self.counter("stats", "unique_graphs"),
            captured_ops=self.counter("stats", "calls_captured"),
            breaks=self._breaks(),
            recompiles=recompiles,
            recaptures=self._recaptures(),
            skips=self._capture_skips(device),
            fallbacks=fallbacks,
            in_window=self._window_texts(metrics),
            compile_events=sum(event.kind == "compile" for event in self._events),
            fx_ops=dict(self._fx_ops.most_common()),
            counters=self._kept_counters(),
            notes=list(self._notes),
        )
        return _finished(evidence, mode, device)

    # ---- sources ---------------------------------------------------------------

    def _listen_to_compiles(self) -> None:
        handler = getattr(torch._dynamo.callback, "callback_handler", None)
        if handler is None:
            self.note(f"compile events not available in torch {torch.__version__}")
            return
        handler.register_end_callback(self._compiled)
        self._undo.append(lambda: _forget(handler, self._compiled))

    def _still_listening(self) -> None:
        """Register again after somebody called ``torch._dynamo.reset()``, which forgets us."""
        handler = getattr(torch._dynamo.callback, "callback_handler", None)
        if self._undo and handler is not None and self._compiled not in handler.end_callbacks:
            handler.register_end_callback(self._compiled)
            self.note("torch._dynamo.reset() was called in this process; events before it may lack")

    def _compiled(self, *args: Any) -> None:
        """End callback of torch; the trigger and compile id came with torch 2.7."""
        trigger = getattr(getattr(args[0], "callback_trigger", None), "name", "") if args else ""
        compile_id = str(getattr(args[0], "compile_id", "")) if args else ""
        if trigger == "CUDAGRAPH_RECORDING":
            self._cudagraphs += 1
            self._happened("capture", f"CUDA graph of compile {compile_id}")
        else:
            self._happened("compile", compile_id)

    def _happened(self, kind: str, what: str) -> None:
        self._last_ns = time.monotonic_ns()
        self._n_events += 1
        if len(self._events) < MAX_EVENTS:
            self._events.append(_Event(self._last_ns, kind, what, self._in_window))

    def _poll(self) -> None:
        """Notice captures that no callback tells of: npugraph_ex only counts them."""
        if self._started and not self._attached:
            if "torch._dynamo" not in sys.modules:
                return
            self._attach()
            self._happened("compile", "the model's own, before it was watched")
        self._still_listening()
        counted = self._counters()["npugraph_ex"]
        if not counted and not self._npu_seen:
            return
        for name, value in counted.items():
            before = self._npu_seen.get(name, 0)
            if value > before:
                self._happened("capture", f"{name}: {before} -> {value}")
                self._npu_seen[name] = int(value)
        for name in self._npu_seen:
            # The library drops a graph's counters when it gives up capturing it.
            if name.startswith(_CAPTURED) and name not in counted and name not in self._npu_lost:
                self._npu_lost.append(name)

    def _hook_backend_call(self) -> None:
        """Count the ops of each graph on its way to the backend: once per compile, not per call."""
        from torch._dynamo.output_graph import OutputGraph

        original = getattr(OutputGraph, "call_user_compiler", None)
        if original is None:
            self.note(f"FX op histogram not available in torch {torch.__version__}")
            return
        watch = self

        @functools.wraps(original)
        def counted(output: Any, gm: torch.fx.GraphModule, *args: Any, **kwargs: Any) -> Any:
            watch._fx_ops.update(_op_names(gm))
            began = time.perf_counter()
            try:
                return original(output, gm, *args, **kwargs)
            finally:
                watch._backend_s += time.perf_counter() - began

        setattr(OutputGraph, "call_user_compiler", counted)  # noqa: B010 (mypy)
        self._undo.append(lambda: setattr(OutputGraph, "call_user_compiler", original))

    def _hook_warnings(self) -> None:
        shown = warnings.showwarning

        def show(
            message: Any, category: Any, filename: str, lineno: int, *args: Any, **kwargs: Any
        ) -> None:
            self._sort(str(message), f"{category.__name__}: ", noted=_is_compiler(filename))
            shown(message, category, filename, lineno, *args, **kwargs)

        warnings.showwarning = show
        self._undo.append(lambda: setattr(warnings, "showwarning", shown))

    @staticmethod
    def _counters() -> Any:
        return torch._dynamo.utils.counters

    # ---- conclusions -----------------------------------------------------------

    def _recompiles(self, metrics: list[Any]) -> list[str]:
        reasons = []
        for metric in metrics:
            number = str(getattr(metric, "compile_id", "") or "").rpartition("/")[2]
            if number.split("_")[0] in ("", "0") or getattr(metric, "fail_type", None):
                continue  # a first compile, or one that never came to be
            reason = getattr(metric, "recompile_reason", None)
            place = f" ({metric.co_name})" if getattr(metric, "co_name", None) else ""
            missing = f"reason not available in torch {torch.__version__}"
            reasons.append((recompile_reason(reason) if reason else missing) + place)
        return reasons

    def _fallbacks(self, metrics: list[Any], *, diagnosis: bool) -> list[str]:
        found: list[str] = []
        if not self.counter("stats", "unique_graphs"):
            found.append("eager (0 graphs)")
        unimplemented = " ".join(str(key) for key in self._counters()["unimplemented"])
        if any(_LIMIT.search(text) for text in [*self._messages, unimplemented]):
            found.append(f"eager after the recompile limit{_last_reason(metrics)}")
        for text in self._messages:
            if _SUPPRESSED in text:
                found.append(f"eager, the error was suppressed: {one_line(text)}")
            elif _TO_EAGER.search(text) and not _LIMIT.search(text):
                # Under a debug switch this is what was asked for; the row is no timing anyway.
                if diagnosis:
                    self.note(one_line(text))
                else:
                    found.append(f"eager: {one_line(text, MAX_FALLBACK)}")
        if self._npu_lost and not any(_TO_EAGER.search(text) for text in self._messages):
            found.append(f"eager: npugraph_ex dropped {', '.join(self._npu_lost)}")
        return list(dict.fromkeys(found))

    def _breaks(self) -> list[GraphBreak]:
        if self._explained:
            return self._explained
        reasons = break_reasons()
        # dynamo.reset() empties the list; then all of it is new.
        start = self._break_reasons_before if len(reasons) >= self._break_reasons_before else 0
        breaks = [graph_break(reason) for reason in reasons[start:]]
        texts = {one.reason for one in breaks}
        jumps = any(one.reason.startswith("data-dependent branch") for one in breaks)
        for group in ("graph_break", "unimplemented"):
            for key in self._counters()[group]:
                text = break_reason(str(key))
                covered = text in texts or (jumps and text.startswith("Data-dependent branching"))
                if not covered and not _LIMIT.search(str(key)):
                    breaks.append(GraphBreak(reason=text))
        unique = {(one.reason, one.location): one for one in breaks}
        return list(unique.values())

    def _recaptures(self) -> dict[str, int]:
        causes: Counter[str] = Counter()
        for name, count in self._npu_seen.items():
            if name.startswith(_RECAPTURE):
                # The counter ends in the graph's name; the cause is what it shares with the others.
                causes[re.sub(r"_graph_\w+$|_[^_]*\d+$", "", name[len(_RECAPTURE) :])] += count
        return dict(causes)

    def _capture_skips(self, device: Device) -> list[str]:
        counted = self.counter("inductor", "cudagraph_skips")
        if counted and not self._skips:
            return [f"{device.kind} device"]
        return list(self._skips)

    def _kept_counters(self) -> dict[str, int]:
        counters = self._counters()
        kept = {
            f"{group}.{name}": int(counters[group][name])
            for group, name in sorted(_KEPT)
            if group in counters and counters[group][name]
        }
        return kept | {f"npugraph_ex.{name}": value for name, value in self._npu_seen.items()}

    def _window_texts(self, metrics: list[Any]) -> list[str]:
        return [self._event_text(event, metrics) for event in self._events if event.in_window]

    def _event_text(self, event: _Event, metrics: list[Any]) -> str:
        if event.kind != "compile":
            return f"capture: {event.what}"
        for metric in metrics:
            if str(getattr(metric, "compile_id", "")) == event.what:
                reason = getattr(metric, "recompile_reason", None)
                why = f": {recompile_reason(reason)}" if reason else ""
                return f"compile of {metric.co_name or 'a frame'}{why}"
        return f"compile {event.what}".strip()


def _finished(evidence: GraphEvidence, mode: Mode, device: Device) -> GraphEvidence:
    """Return the evidence with what the mode knows, and a device that counts by itself."""
    evidence = mode.finish_evidence(evidence, device)
    counted = getattr(device, "finish_evidence", None)
    return counted(evidence) if counted is not None else evidence


def caveats(mode: Mode, evidence: GraphEvidence) -> list[str]:
    """Return the names of the caveats that the evidence alone gives reason for."""
    found = []
    if getattr(mode, "stand_in", None):
        found.append(Caveat.STAND_IN)
    if evidence.breaks:
        found.append(Caveat.GRAPH_BREAKS)
    if evidence.tuned == 0:
        found.append(Caveat.NOTHING_TUNED)
    if evidence.captures == 0:
        found.append(Caveat.NOT_CAPTURED)
    if any("callback" in how for how in evidence.converters.values()):
        found.append(Caveat.CALLBACK_USED)
    return [one.name for one in found]


def _last_reason(metrics: list[Any]) -> str:
    for metric in reversed(metrics):
        reason = getattr(metric, "recompile_reason", None)
        if reason:
            return f": {recompile_reason(reason)}"
    return ""


def _effective(backend: str, fallbacks: list[str]) -> str:
    if not fallbacks:
        return backend
    return fallbacks[0] if fallbacks[0] == "eager (0 graphs)" else f"{backend}, then {fallbacks[0]}"


def _op_names(gm: torch.fx.GraphModule) -> Iterable[str]:
    for node in gm.graph.nodes:
        if node.op == "call_method":
            yield f"Tensor.{node.target}"
        elif node.op == "call_function":
            yield getattr(node.target, "__name__", str(node.target))
        elif node.op == "call_module":
            yield type(gm.get_submodule(str(node.target))).__name__


def _is_compiler(filename: str) -> bool:
    """Say whether a warning comes from a compiler, whose warnings belong into the record."""
    return any(part in filename for part in ("_inductor", "_dynamo", *_NPU_LIBRARIES))


def _forget(handler: Any, callback: Callable[..., None]) -> None:
    if callback in handler.end_callbacks:
        handler.remove_end_callback(callback)


def _compile_metrics() -> list[Any]:
    read = getattr(torch._dynamo.utils, "get_compilation_metrics", None)
    return list(read()) if read else []


def _recorded_cudagraphs(index: int) -> int:
    """Ask inductor's CUDA graph manager of a device; 0 where there is none."""
    if not torch.cuda.is_available():
        return 0
    from torch._inductor import cudagraph_trees

    get_manager = getattr(cudagraph_trees, "get_manager", None)
    if get_manager is None:
        return 0
    manager = get_manager(index, create_if_none_exists=False)
    counted = re.fullmatch(r"count\((\d+)\)", repr(getattr(manager, "graph_counter", "")))
    return int(counted[1]) if counted else 0
