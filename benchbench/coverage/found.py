"""What a coverage run found: plain data, JSON in and out. Imports nothing of torch."""

from __future__ import annotations

from typing import Literal, TypeAlias

import msgspec

LABEL = "converter coverage, not GE operator support"
NOT_NEEDED = "npugraph_ex needs none of this: it captures the eager kernels and uses no converters"

How: TypeAlias = Literal[
    "built-in", "partial", "auto", "ours", "decomposition", "callback", "none", "cpu only"
]
Route: TypeAlias = Literal["simulated", "device", "approximate"]

Cause: TypeAlias = Literal[
    "name",
    "no IR",
    "number",
    "order",
    "Scalar",
    "only raises",
    "partial",
    "no converter",
    "converter failed",
    "Meta",
    "packet",
    "substring",
]


class _Data(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Base: immutable, keyword-only, defaults are not written."""


class Reason(_Data, frozen=True):
    """One reason why an op has no way into the graph, and what to do about it."""

    cause: Cause
    text: str
    """In the words of the vendor's guide."""
    advice: str


class Form(_Data, frozen=True):
    """One combination of inputs that an op is called with."""

    inputs: list[str]
    """``float16[1, 64]`` per tensor, the value itself for everything else."""
    calls: int


class Op(_Data, frozen=True):
    """One op of the graph that torchair gets."""

    op: str
    calls: int
    how: How
    detail: str | None = None
    """``my_op -> MyOp``, the converter's file, what a callback needs, a condition."""
    forms: list[Form] = []
    ir: dict[str, int] = {}
    """IR type -> nodes that its conversion made, over all calls."""
    reasons: list[Reason] = []
    notes: list[str] = []

    @property
    def is_gap(self) -> bool:
        """Whether the model cannot run in ``max-autotune`` because of this op."""
        return bool(self.reasons)


class Lowered(_Data, frozen=True):
    """One graph that was lowered to Ascend IR."""

    name: str
    fx_nodes: int
    ir_nodes: int
    lowering_s: float
    """Seconds of lowering on this host; no figure of an NPU."""
    ir: dict[str, int] = {}
    """IR type -> nodes of the graph after torchair's own passes."""
    placeholders: int = 0
    """Nodes that stand for ops without a conversion, so that the lowering could go on."""


class Coverage(_Data, frozen=True):
    """One model, workload, shape and dtype."""

    key: str
    model: str
    route: Route
    soc: str | None = None
    cann: str | None = None
    versions: dict[str, str] = {}
    label: str = LABEL
    npugraph_ex: str = NOT_NEEDED
    ops: list[Op] = []
    graphs: list[Lowered] = []
    converters: dict[str, str] = {}
    """Op -> ``file (kind)`` of the converters that were registered for it."""
    breaks: list[str] = []
    """Places where Dynamo leaves the graph; ``max-autotune`` asks for one whole graph."""
    error: str | None = None
    """Why there is no more than this."""
    dump: list[str] = []
    """Files with the lowered graphs."""
    seconds: float | None = None
    peak_rss_bytes: int | None = None
    notes: list[str] = []

    @property
    def gaps(self) -> list[Op]:
        """Ops that keep the model out of ``max-autotune``, the most called first."""
        return sorted((op for op in self.ops if op.is_gap), key=lambda op: -op.calls)

    @property
    def status(self) -> Literal["complete", "gaps", "failed"]:
        """``failed`` when there is nothing to say because the model did not get that far."""
        if self.gaps or self.breaks:
            return "gaps"
        return "complete" if self.graphs and self.error is None else "failed"
