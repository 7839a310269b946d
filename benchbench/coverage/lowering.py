"""Watches torchair lower a graph and lets it go on where an op has no conversion.

torchair stops at the first op that it cannot convert. Here such an op becomes a placeholder node,
so that one lowering finds all of them. Worker only: imports torch and torchair.
"""

from __future__ import annotations

import ast
import copy
import functools
import inspect
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchbench.reasons import one_line

# Everything that a converter may raise about its arguments. What is not here (out of memory, an
# interrupt, sys.exit) ends the worker.
CONVERTER_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    ImportError,
    LookupError,
    NameError,
    OSError,
    RuntimeError,
    SyntaxError,
    TypeError,
    ValueError,
)
PLACEHOLDER = "benchbench::NoConversion"
_MOST_FORMS = 12


@dataclass
class Trouble:
    """An exception of a conversion: what was raised, where, and under which condition."""

    text: str
    kind: str
    only_raises: bool = False
    where: str | None = None
    condition: str | None = None


@dataclass
class Seen:
    """What was seen of one op."""

    calls: int = 0
    forms: Counter[tuple[str, ...]] = field(default_factory=Counter)
    ir: Counter[str] = field(default_factory=Counter)
    had_converter: bool = False
    generated: bool = False
    zero_elements: int = 0
    troubles: list[Trouble] = field(default_factory=list)


@dataclass
class Graph:
    """One graph that was lowered."""

    name: str
    fx_nodes: int = 0
    begun: float = 0.0
    lowering_s: float = 0.0
    ir: Counter[str] = field(default_factory=Counter)
    proto: bytes = b""
    text: str = ""
    complete: bool = False


class Lowering:
    """What torchair did in this process while :meth:`observed`."""

    def __init__(self, *, keep_graphs: bool = False) -> None:
        self.ops: dict[str, Seen] = {}
        self.targets: dict[str, Any] = {}
        self.graphs: list[Graph] = []
        self._keep = keep_graphs
        self._current: Graph | None = None
        self._generated: set[str] = set()

    @contextmanager
    def observed(self) -> Iterator[None]:
        """Watch and continue after failures; what is compiled here gives no numbers when called."""
        from torchair import npu_fx_compiler
        from torchair._ge_concrete_graph import fx2ge_converter as fx2ge

        graph_class = fx2ge.GeConcreteGraph
        entry = "_parse_node_internal"
        if not hasattr(graph_class, entry):  # torchair before 2.13
            entry = "parse_node"
        with (
            _patched(graph_class, entry, self._parse),
            _patched(graph_class, "optimize_graph_without_runtime", self._optimize),
            _patched(npu_fx_compiler._NpuFxCompiler, "_gen_compiled_gm", self._compile),
            _patched(fx2ge, "_generate_converter_code", self._generate),
        ):
            yield

    # ---- in torchair's place -----------------------------------------------------------

    def _compile(self, original: Callable[..., Any], compiler: Any, gm: Any, *args: Any) -> Any:
        self._current = Graph(name="", begun=time.perf_counter())
        original(compiler, gm, *args)
        return Nothing(gm)

    def _optimize(self, original: Callable[..., Any], graph: Any, *args: Any, **more: Any) -> Any:
        result = original(graph, *args, **more)
        current = self._current or Graph(name="", begun=time.perf_counter())
        current.name = str(graph.graph.name)
        current.lowering_s = time.perf_counter() - current.begun
        current.ir = Counter(node.type for node in graph.graph.op)
        current.complete = True
        if self._keep:
            current.proto = graph.graph.SerializeToString()
            current.text = str(graph.graph)
        self.graphs.append(current)
        return result

    def _generate(self, original: Callable[..., Any], target: Any) -> Any:
        code = original(target)
        self._generated.add(str(target))
        return code

    def _parse(
        self,
        original: Callable[..., Any],
        graph: Any,
        target: Any,
        args: Sequence[Any],
        kwargs: Mapping[str, Any],
        meta_outputs: Any,
    ) -> Any:
        from torchair.ge._ge_graph import get_default_ge_graph

        real = args[0] if str(target).startswith("auto_functionalized") else target
        name = op_name(real)
        seen = self.ops.setdefault(name, Seen())
        if not seen.calls:
            self.targets[name] = real
            seen.had_converter = _has_converter(real)
        seen.calls += 1
        node = getattr(graph._converter_ctx, "node", None)
        if len(seen.forms) < _MOST_FORMS or form_of(node) in seen.forms:
            seen.forms[form_of(node)] += 1
        if self._current is not None:
            self._current.fx_nodes += 1
        before = len(get_default_ge_graph().op)
        try:
            result = original(graph, target, args, dict(kwargs), meta_outputs)
        except CONVERTER_ERRORS as error:
            seen.troubles.append(trouble(error, real))
            result = _placeholder(name, args, kwargs, meta_outputs)
        made = [node.type for node in list(get_default_ge_graph().op)[before:]]
        seen.ir.update(made)
        seen.generated = name in self._generated
        if not made and not seen.had_converter:
            seen.zero_elements += 1
        return result


class Nothing:
    """Stands for a compiled graph: returns tensors of the right shapes and computes nothing."""

    def __init__(self, gm: torch.fx.GraphModule) -> None:
        self._gm = gm
        output = next(node for node in gm.graph.nodes if node.op == "output")
        self._outputs = output.args[0]
        self._inputs = [node for node in gm.graph.nodes if node.op == "placeholder"]

    def __call__(self, *args: Any) -> Any:
        """Return what the graph would, uninitialised; an output that is an input is that input."""
        given = {id(node): value for node, value in zip(self._inputs, args, strict=False)}

        def make(node: Any) -> Any:
            if not isinstance(node, torch.fx.Node):
                return node
            if id(node) in given:
                return given[id(node)]
            return _empty_like(node.meta.get("val"))

        outputs = self._outputs
        if isinstance(outputs, (tuple, list)):
            return tuple(make(node) for node in outputs)
        return make(outputs)


def _empty_like(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        sizes = [_number(size) for size in value.shape]
        strides = [_number(stride) for stride in value.stride()]
        return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return _number(value)
    return value


def _number(value: Any) -> Any:
    node = getattr(value, "node", None)
    return value if node is None else node.hint


@contextmanager
def collected(found: list[Any]) -> Iterator[None]:
    """Let torchair hand over the graphs that it would lower, after its own passes over them."""
    from torch.utils._mode_utils import no_dispatch
    from torchair import npu_fx_compiler

    def collect(
        original: Callable[..., Any], compiler: Any, gm: Any, inputs: Any, observer: Any
    ) -> Any:
        with no_dispatch():
            copied = copy.deepcopy(gm)
        found.append(npu_fx_compiler._optimize_fx(copied, compiler.config, observer))
        return Nothing(gm)

    with _patched(npu_fx_compiler._NpuFxCompiler, "_gen_compiled_gm", collect):
        yield


@contextmanager
def _patched(owner: Any, name: str, replacement: Callable[..., Any]) -> Iterator[None]:
    original = getattr(owner, name, None)
    if original is None:
        yield
        return

    @functools.wraps(original)
    def called(*args: Any, **kwargs: Any) -> Any:
        return replacement(original, *args, **kwargs)

    setattr(owner, name, called)
    try:
        yield
    finally:
        setattr(owner, name, original)


# ---- placeholders -----------------------------------------------------------


def _placeholder(name: str, args: Any, kwargs: Any, meta_outputs: Any) -> Any:
    """Add a node that takes the op's tensors and gives its outputs, and return these."""
    from torchair._ge_concrete_graph.fx2ge_converter import set_ge_outputs
    from torchair.ge._ge_graph import Tensor, get_default_ge_graph, next_unique_name

    node = get_default_ge_graph().op.add()
    node.type = PLACEHOLDER
    node.name = next_unique_name(None, f"NoConversion_{name.replace('.', '_')}")
    for index, tensor in enumerate(_ge_tensors([args, kwargs], Tensor)):
        node.input.append(tensor.tensor)
        node.input_desc.add().CopyFrom(tensor.desc)
        node.input_desc[-1].name = f"x{index}"
    made: list[Any] = []

    def output(meta: Any) -> Any:
        if meta is None:
            return None
        if isinstance(meta, (list, tuple)):
            return [output(item) for item in meta]
        node.output_desc.add().name = f"y{len(made)}"
        made.append(Tensor(node, len(made)))
        return made[-1]

    outputs = output(meta_outputs)
    if outputs is not None:
        set_ge_outputs(outputs, meta_outputs)
    return outputs


def _ge_tensors(value: Any, tensor_class: type) -> list[Any]:
    if isinstance(value, tensor_class):
        return [value]
    items = value.values() if isinstance(value, Mapping) else value
    if not isinstance(value, (list, tuple, Mapping)):
        return []
    return [tensor for item in items for tensor in _ge_tensors(item, tensor_class)]


# ---- what an op is called with -----------------------------------------------------------


def op_name(target: Any) -> str:
    """Return ``aten.add.Tensor`` for an op, the function's name for anything else."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    module = getattr(target, "__module__", "") or ""
    name = getattr(target, "__name__", str(target))
    return f"{module.removeprefix('_')}.{name}" if module else str(name)


def form_of(node: Any) -> tuple[str, ...]:
    """Return a text per argument of an FX node: dtype and shape of a tensor, else the value."""
    if node is None:
        return ()
    texts = [_text(value) for value in node.args]
    texts += [f"{name}={_text(value)}" for name, value in node.kwargs.items()]
    return tuple(texts)


def _text(value: Any) -> str:
    if isinstance(value, torch.fx.Node):
        return _text(value.meta.get("val", value.name))
    if isinstance(value, torch.Tensor):
        sizes = ", ".join(str(size) for size in value.shape)
        return f"{str(value.dtype).removeprefix('torch.')}[{sizes}]"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_text(item) for item in value)}]"
    return one_line(str(value).removeprefix("torch."), 40)


def _has_converter(target: Any) -> bool:
    from torchair._ge_concrete_graph import fx2ge_converter as fx2ge

    if str(target) in getattr(fx2ge, "_SPECIAL_TARGETS", ()):
        return True
    if getattr(target, "_ge_converter", None) is not None:
        return True
    return fx2ge._get_converter(target) is not None


# ---- why a conversion failed -----------------------------------------------------------


def trouble(error: BaseException, target: Any) -> Trouble:
    """Return what is known of a failed conversion: also the ``if`` that led to its ``raise``."""
    text = one_line(str(error).strip().split("\n", 1)[0] or type(error).__name__)
    found = Trouble(text=text, kind=type(error).__name__)
    converter = getattr(target, "_ge_converter", None)
    function = inspect.unwrap(converter) if converter is not None else None
    if function is None:
        return found
    try:
        file = inspect.getsourcefile(function)
        lines, start = inspect.getsourcelines(function)
    except (OSError, TypeError):  # a generated converter has no file
        return found
    if file is None:
        return found
    found.where = f"{Path(file).name}:{start}"
    tree = ast.parse(_dedented(lines))
    found.only_raises = _only_raises(tree)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.filename == file and frame.lineno and start <= frame.lineno < start + len(lines):
            found.where = f"{Path(file).name}:{frame.lineno}"
            found.condition = _condition(tree, frame.lineno - start + 1)
            break
    return found


def _dedented(lines: list[str]) -> str:
    import textwrap

    return textwrap.dedent("".join(lines))


def _only_raises(tree: ast.Module) -> bool:
    """Say whether a function's body does nothing but raise."""
    function = tree.body[0]
    body = [
        statement
        for statement in getattr(function, "body", [])
        if not (isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant))
    ]
    return bool(body) and isinstance(body[0], ast.Raise)


def _condition(tree: ast.Module, line: int) -> str | None:
    """Return the conditions under which this line is reached, outermost first."""
    found: list[str] = []

    def walk(statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if not statement.lineno <= line <= (statement.end_lineno or statement.lineno):
                continue
            if isinstance(statement, ast.If):
                inside = any(
                    part.lineno <= line <= (part.end_lineno or part.lineno)
                    for part in statement.body
                )
                test = ast.unparse(statement.test)
                found.append(test if inside else f"not ({test})")
                walk(statement.body if inside else statement.orelse)
            elif hasattr(statement, "body"):
                walk(statement.body)

    walk(tree.body)
    return " and ".join(found) or None
