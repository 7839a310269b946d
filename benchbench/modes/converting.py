"""Finding out which converters a model needs, before it is compiled.

The model is traced as torchair will trace it, by torchair's own backend, up to where lowering would
begin. Nothing is executed: the trace is given up there. What the graph's ops lack is registered,
and because a decomposition brings other ops into the graph, it is traced again after one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from benchbench import converters
from benchbench.converters import ConverterFile, Registered

# A decomposition of ours may lead to ops that need another one; longer chains are mistakes.
_MAX_TRACES = 5
_HOOK = "post_grad_custom_post_pass"

Backend = Callable[..., Any]
MakeBackend = Callable[[dict[str, Any], dict[Any, Callable[..., Any]]], Backend]
"""Makes torchair's backend from options (see ``capture``) and decompositions."""


class _TracedError(RuntimeError):
    """Ends a trace once its graph is known."""


@dataclass
class Converted:
    """What a model needed."""

    registered: list[Registered] = field(default_factory=list)
    decompositions: dict[Any, Callable[..., Any]] = field(default_factory=dict)
    fx_ops: dict[str, int] = field(default_factory=dict)
    """Ops of the graph that torchair will lower -> calls."""
    note: str | None = None

    def how(self) -> dict[str, str]:
        """Return op -> ``file (kind)``."""
        return {item.op: item.how() for item in self.registered}


def convert(
    call: Callable[[Backend], object],
    make_backend: MakeBackend,
    selected: converters.Selection,
    decompositions: dict[Any, Callable[..., Any]],
) -> Converted:
    """Register what a model lacks.

    ``call`` compiles the model with a backend and calls it once. Where the trace fails, nothing is
    registered and the same error will come in the compile, where it belongs.
    """
    found = Converted(decompositions=dict(decompositions))
    if selected.use == "off":
        return found
    files = converters.available(selected.path)
    for _ in range(_MAX_TRACES):
        ops = capture(call, make_backend, found.decompositions)
        if ops is None:
            found.note = "converters: the model could not be traced"
            return found
        found.fx_ops = ops
        wanted = _new(converters.needed(ops, converters.status, files, selected.use), found)
        if not wanted:
            break
        done, tables = converters.register(wanted)
        found.registered += done
        found.decompositions |= tables
        if not tables:
            break
    return found


def _new(
    wanted: list[tuple[str, ConverterFile]], found: Converted
) -> list[tuple[str, ConverterFile]]:
    done = {item.op for item in found.registered}
    return [(op, file) for op, file in wanted if op not in done]


def capture(
    call: Callable[[Backend], object],
    make_backend: MakeBackend,
    decompositions: dict[Any, Callable[..., Any]],
) -> dict[str, int] | None:
    """Return the ops of the graph that torchair would lower, ``None`` if there is none."""
    import torch

    seen: list[dict[str, int]] = []

    def stop(module: Any, *rest: Any) -> None:
        seen.append(converters.ops_of(module.graph))
        raise _TracedError("traced")

    backend = make_backend({_HOOK: stop}, decompositions)
    with _without_callbacks():
        try:
            call(backend)
        except (RuntimeError, TypeError, ValueError, LookupError, AttributeError, AssertionError):
            # Ours, wrapped by Dynamo and torchair; or the model's own, which the compile shows.
            pass
        finally:
            torch._dynamo.reset()
    return seen[0] if seen else None


@contextmanager
def _without_callbacks() -> Iterator[None]:
    """Keep torchair from making callbacks (it would run g++) for ops that we may convert."""
    try:
        from torchair._ge_concrete_graph import custom_op_pre_scan
    except ImportError:  # before torch_npu 2.13
        yield
        return
    name = "prescan_and_compile_custom_ops"
    original = getattr(custom_op_pre_scan, name)
    setattr(custom_op_pre_scan, name, lambda *args: None)
    try:
        yield
    finally:
        setattr(custom_op_pre_scan, name, original)
