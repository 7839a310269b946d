"""Where and why a graph was left, and which ops that concerns."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from benchbench.reasons import break_reason
from benchbench.records import GraphBreak

if TYPE_CHECKING:
    import torch._dynamo

    from benchbench.models import Inputs


def graph_break(reason: Any) -> GraphBreak:
    stack = getattr(reason, "user_stack", None) or []
    location = f"{stack[-1].filename}:{stack[-1].lineno}" if stack else None
    return GraphBreak(reason=break_reason(str(reason.reason)), location=location)


def break_reasons() -> list[Any]:
    found: list[Any] = getattr(torch._dynamo.utils, "graph_break_reasons", [])
    return found


class _CountOps(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the calls of each op while it is active."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        self.calls[str(func)] += 1
        return func(*args, **(kwargs or {}))


def ops_called(module: Callable[..., Any], inputs: Inputs) -> dict[str, int]:
    """Return op name -> calls in one eager call, e.g. ``{"aten.add.Tensor": 2}``."""
    with torch.no_grad(), _CountOps() as counted:
        module(*inputs.args, **inputs.kwargs)
    return dict(counted.calls)


def explain_breaks(module: Callable[..., Any], inputs: Inputs) -> list[GraphBreak]:
    """Return every graph break of one call, with the ops that the reasons name and their calls.

    For after a failure: a full graph stops at the first break and names one gap, while a user
    needs all of them. Runs the module twice more, and forgets all compiled code.
    """
    calls = ops_called(module, inputs)
    torch._dynamo.reset()
    before = len(break_reasons())
    compiled = torch.compile(module, backend="eager", fullgraph=False, dynamic=False)
    with torch.no_grad():
        compiled(*inputs.args, **inputs.kwargs)
    found: dict[tuple[str, str | None], GraphBreak] = {}
    for reason in break_reasons()[before:]:
        one = graph_break(reason)
        named = {op: n for op, n in calls.items() if _names(reason.reason, op)}
        found[one.reason, one.location] = msgspec.structs.replace(one, ops=named)
    torch._dynamo.reset()
    return list(found.values())


def breaks_sentence(breaks: list[GraphBreak]) -> str:
    """Return one line that names every op outside the graph and its calls."""
    ops: dict[str, int] = {}
    for one in breaks:
        ops |= one.ops
    named = ", ".join(f"{op} ({n} {'call' if n == 1 else 'calls'})" for op, n in ops.items())
    rest = [one for one in breaks if not one.ops]
    others = "; ".join(
        f"{one.reason}{f' at {one.location}' if one.location else ''}" for one in rest[:3]
    )
    more = f" and {len(rest) - 3} more" if len(rest) > 3 else ""
    parts = [part for part in (named, others + more) if part]
    return "not in graph: " + "; ".join(parts) if parts else ""


def _names(reason: str, op: str) -> bool:
    """Say whether a break reason names an op (``ns.op.overload``) in one of torch's spellings."""
    packet = op.rpartition(".")[0]
    spellings = (op, packet, packet.replace(".", "::"))
    return any(re.search(rf"(?<![\w.]){re.escape(name)}(?!\w)", reason) for name in spellings)
