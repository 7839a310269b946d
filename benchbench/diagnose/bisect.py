"""Finds the first op of a graph at which a mode departs from eager. Worker only.

The model's graph is recorded as AOTAutograd hands it to a backend, with the inputs of a real call.
Then it is run op by op in eager, and once through the mode with every op's result as an output. If
that hides the difference (a fusion does not happen when its inside is asked for), ever shorter
beginnings of the graph are compiled. Each op's real result is also held against its Meta function.
"""

from __future__ import annotations

import copy
import importlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import torch
from torch.fx import GraphModule, Interpreter, Node

from benchbench.calls import grad_mode
from benchbench.devices import Device
from benchbench.diagnose.ladder import Found
from benchbench.evidence import Watch
from benchbench.findings import Findings
from benchbench.jobs import Side
from benchbench.reasons import error_reason, one_line
from benchbench.records import Job

# Relative to the root mean square of the expected values; far above rounding and fused rounding.
_TOLERANCE = {
    torch.float64: 1e-9,
    torch.float32: 1e-3,
    torch.float16: 1e-2,
    torch.bfloat16: 5e-2,
}
_PLACE = re.compile(r'File "([^"]+)", line (\d+)')
# What compiling or running a part of a graph may raise because that part is at fault.
_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NameError,
    RuntimeError,
    TypeError,
    ValueError,
)


class _CompiledError(RuntimeError):
    """Ends a call once the Graph Engine has compiled."""


def run(job: Job, device: Device, findings: Findings) -> None:
    """Do the job: ``ask["what"]`` is ``graph`` (bisect) or ``ge-compile``."""
    if job.ask.get("what") == "ge-compile":
        _compile_only(job, device, findings)
    else:
        findings.report = msgspec.to_builtins(_Bisection(job, device, findings).run())


def _compile_only(job: Job, device: Device, findings: Findings) -> None:
    """Go on until the Graph Engine has compiled, and no further."""
    from benchbench.modes import npu_compat

    side = Side(job, device, findings)
    phases = findings.phases
    with phases.enter("load"):
        side.load()
    with grad_mode(job.settings.grad_mode):
        with phases.enter("inputs"):
            side.make_inputs()
        with phases.enter("converters"):
            npu_compat.load("torchair")
            side.register_converters()
        from torchair._ge_concrete_graph.fx2ge_converter import GeConcreteGraph

        original = GeConcreteGraph.compile

        def stop(graph: Any) -> None:
            original(graph)
            raise _CompiledError("compiled")

        GeConcreteGraph.compile = stop
        try:
            side.compile()
        except _CompiledError:
            findings.report = {"compiled": True}


@dataclass
class _Recorded:
    """One graph with the arguments of its first call."""

    gm: GraphModule
    args: list[Any] = field(default_factory=list)


class _Bisection:
    def __init__(self, job: Job, device: Device, findings: Findings) -> None:
        self.side = Side(job, device, findings)
        self.job = job
        self.device = device
        self.phases = findings.phases
        self.compiles = 0

    def run(self) -> Found:
        """Return the first op at fault, over all graphs of one call."""
        side = self.side
        with self.phases.enter("load"):
            side.load()
        with grad_mode(self.job.settings.grad_mode):
            with self.phases.enter("inputs"):
                side.make_inputs()
            with self.phases.enter("converters"):
                side.register_converters()
                graphs = self.record()
            with self.phases.enter("compile"):
                for graph in graphs:
                    found = self.look_at(graph)
                    if found.kind != "nothing":
                        return found
        total = sum(len(_steps(graph.gm)) for graph in graphs)
        return Found(
            kind="nothing",
            text="every op of the graph agrees with eager in one call",
            nodes=total,
            compiles=self.compiles,
        )

    def record(self) -> list[_Recorded]:
        """Run the model once in eager through AOTAutograd; keep its graphs."""
        from torch._dynamo.backends.common import aot_autograd

        graphs: list[_Recorded] = []
        aot_autograd_module: Any = importlib.import_module("torch._functorch.aot_autograd")

        def compiler(gm: GraphModule, example_inputs: Sequence[Any]) -> Callable[..., Any]:
            recorded = _Recorded(copy.deepcopy(gm))
            graphs.append(recorded)

            def call(*args: Any) -> Any:
                if not recorded.args:
                    recorded.args = [_copied(value) for value in args]
                return gm(*args)

            boxed: Callable[..., Any] = aot_autograd_module.make_boxed_func(call)
            return boxed

        torch._dynamo.reset()
        mode: Any = self.side.mode
        inputs = self.side.recorder.inputs(0)
        compiled = torch.compile(
            self.side.workload.module,
            backend=aot_autograd(fw_compiler=compiler, inference_compiler=compiler),
            fullgraph=getattr(mode, "fullgraph", False),
            dynamic=getattr(mode, "dynamic", None),
        )
        compiled(*inputs.args, **inputs.kwargs)
        torch._dynamo.reset()
        return [graph for graph in graphs if graph.args]

    # ---- one graph -----------------------------------------------------------

    def look_at(self, graph: _Recorded) -> Found:
        """Return the first op of a graph at fault."""
        expected = _Values(graph.gm).collect(graph.args)
        for node in _steps(graph.gm):
            text = meta_mismatch(node.meta.get("val"), expected.get(node.name))
            if text:
                return self.found("meta", node, text)
        steps = [node for node in _steps(graph.gm) if node.name in expected]
        if not steps:
            return Found(kind="nothing")
        try:
            got = self.through(graph, steps)
        except _ERRORS as error:
            return self.first_error(graph, steps, error)
        for node, value in zip(steps, got, strict=True):
            text = difference(expected[node.name], value)
            if text:
                return self.found("value", node, text, alone=self.alone(graph, node, expected))
        return self.first_wrong_beginning(graph, steps, expected)

    def first_error(self, graph: _Recorded, steps: list[Node], error: BaseException) -> Found:
        """Return the op with which the shortest beginning that fails ends."""
        message = [error]

        def fails(index: int) -> bool:
            try:
                self.through(graph, [steps[index]])
            except _ERRORS as raised:
                message[0] = raised
                return True
            return False

        index = _first(len(steps), fails)
        if index is None:
            return Found(kind="nothing")
        return self.found("error", steps[index], one_line(error_reason(message[0])[1]))

    def first_wrong_beginning(
        self, graph: _Recorded, steps: list[Node], expected: dict[str, torch.Tensor]
    ) -> Found:
        """Compile ever shorter beginnings of the graph, each with its last result alone."""

        def wrong(index: int) -> bool:
            (value,) = self.through(graph, [steps[index]])
            return bool(difference(expected[steps[index].name], value))

        index = _first(len(steps), wrong)
        if index is None:
            return Found(kind="nothing")
        return self.found("value", steps[index], "only where it is not an output", alone=False)

    def alone(self, graph: _Recorded, node: Node, expected: dict[str, torch.Tensor]) -> bool | None:
        """Say whether an op is wrong by itself, given eager's inputs."""
        inner = torch.fx.Graph()
        made: dict[Node, Node] = {}
        args: list[Any] = []
        given = dict(
            zip((n for n in graph.gm.graph.nodes if n.op == "placeholder"), graph.args, strict=True)
        )
        for source in node.all_input_nodes:
            value = given.get(source, expected.get(source.name))
            if value is None:
                return None
            made[source] = inner.placeholder(source.name)
            args.append(_copied(value))
        inner.output((inner.node_copy(node, lambda source: made[source]),))
        try:
            (value,) = self.compiled(GraphModule(graph.gm, inner))(*args)
        except _ERRORS:
            return None
        return bool(difference(expected[node.name], value))

    def through(self, graph: _Recorded, wanted: list[Node]) -> list[Any]:
        """Return the values of some nodes as the mode computes them."""
        gm = copy.deepcopy(graph.gm)
        nodes = {node.name: node for node in gm.graph.nodes}
        output = next(node for node in gm.graph.nodes if node.op == "output")
        output.args = (tuple(nodes[node.name] for node in wanted),)
        gm.graph.eliminate_dead_code()
        gm.recompile()
        return list(self.compiled(gm)(*(_copied(value) for value in graph.args)))

    def compiled(self, gm: GraphModule) -> Callable[..., Any]:
        """Return a graph as the mode compiles it."""
        self.compiles += 1
        torch._dynamo.reset()
        prepared = self.side.mode.prepare(gm, self.device, Watch())
        ready = getattr(self.device, "prepared", None)
        if ready is not None:
            ready(self.side.mode.backend(self.job.case.device))
        return prepared

    def found(self, kind: Any, node: Node, text: str, alone: bool | None = None) -> Found:
        """Return the finding with the op's name and the place that it comes from."""
        places = _PLACE.findall(node.meta.get("stack_trace") or "")
        where = f"{places[-1][0].rpartition('/')[2]}:{places[-1][1]}" if places else None
        return Found(
            kind=kind,
            op=str(node.target),
            node=node.name,
            where=where,
            text=text,
            alone=alone,
            compiles=self.compiles,
            nodes=len(_steps(node.graph.owning_module)) if node.graph.owning_module else 0,
        )


def _first(count: int, holds: Callable[[int], bool]) -> int | None:
    """Return the first index for which ``holds``, which stays so from there on; else ``None``."""
    if not holds(count - 1):
        return None
    low, high = 0, count - 1
    while low < high:
        middle = (low + high) // 2
        if holds(middle):
            high = middle
        else:
            low = middle + 1
    return low


class _Values(Interpreter):
    """Runs a graph op by op and keeps a copy of every tensor that an op returns."""

    def __init__(self, gm: GraphModule) -> None:
        super().__init__(copy.deepcopy(gm), garbage_collect_values=False)
        self.values: dict[str, torch.Tensor] = {}

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        if n.op == "call_function" and isinstance(result, torch.Tensor):
            # Strides are kept, for the comparison with the Meta function.
            self.values[n.name] = result.detach().clone(memory_format=torch.preserve_format)
        return result

    def collect(self, args: list[Any]) -> dict[str, torch.Tensor]:
        """Return node name -> value for these arguments."""
        self.run(*(_copied(value) for value in args))
        return self.values


def _steps(gm: Any) -> list[Node]:
    """Return the nodes whose values can be looked at."""
    return [
        node
        for node in gm.graph.nodes
        if node.op == "call_function" and isinstance(node.meta.get("val"), torch.Tensor)
    ]


def _copied(value: Any) -> Any:
    return value.detach().clone() if isinstance(value, torch.Tensor) else value


def meta_mismatch(promised: Any, value: torch.Tensor | None) -> str | None:
    """Return how an op's Meta function and its kernel disagree on dtype or shape, if they do."""
    if value is None or not isinstance(promised, torch.Tensor):
        return None
    if promised.dtype != value.dtype:
        return f"returns {_short(value.dtype)}, its Meta promises {_short(promised.dtype)}"
    sizes = [int(size) for size in promised.shape]
    if sizes != list(value.shape):
        return f"returns shape {list(value.shape)}, its Meta promises {sizes}"
    return None


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def difference(expected: torch.Tensor, got: Any) -> str | None:
    """Return how two values differ beyond rounding, else ``None``."""
    if not isinstance(got, torch.Tensor):
        return f"is no tensor but {type(got).__name__}"
    if got.shape != expected.shape or got.dtype != expected.dtype:
        return (
            f"is {_short(got.dtype)}{list(got.shape)}, eager has"
            f" {_short(expected.dtype)}{list(expected.shape)}"
        )
    tolerance = _TOLERANCE.get(expected.dtype)
    left, right = got.detach().cpu(), expected.detach().cpu()
    if tolerance is None or left.is_complex():
        return None if torch.equal(left, right) else "other values than eager's"
    left, right = left.double(), right.double()
    if not torch.equal(left.isnan(), right.isnan()):
        return "NaN in other places than in eager"
    left, right = left.nan_to_num(), right.nan_to_num()
    error = float((left - right).square().mean().sqrt()) if left.numel() else 0.0
    scale = float(right.square().mean().sqrt()) if right.numel() else 0.0
    if error <= tolerance * scale or error == 0.0:
        return None
    relative = error / scale if scale else float("inf")
    return f"differs by {relative:.2g} of its root mean square"
