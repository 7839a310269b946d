"""Meta functions put beside the kernels that they speak for, op by op, on a model's own inputs.

A graph is traced with tensors that have a shape and no data, so it believes what the Meta function
of an op promises. A wrong promise shows only later, as garbage or as an assertion in generated
code. This looks at every op of the user's own after such a failure and says which one it was.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

if TYPE_CHECKING:
    from benchbench.models import Inputs

NO_META = "has no Meta function"

_TORCHS_OWN = frozenset({"aten", "prims", "prim", "profiler", "inductor", "_c10d_functional"})
# What the user's own code may raise when it is called once more.
_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    NotImplementedError,
    RuntimeError,
    TypeError,
    ValueError,
)


@dataclass(slots=True)
class MetaFaults:
    """What is wrong with the Meta functions of a model's ops; empty when nothing is."""

    found: dict[str, str] = field(default_factory=dict)
    """Op, e.g. ``bb.gap.default`` -> what is wrong."""
    calls: dict[str, int] = field(default_factory=dict)
    """Op -> calls in one forward, of the ops in ``found``."""

    @property
    def missing(self) -> bool:
        """Say whether an op cannot be traced at all."""
        return NO_META in self.found.values()

    def sentence(self) -> str:
        """Return one line that names every op, its calls and what is wrong; or nothing."""
        by_fault: dict[str, list[str]] = {}
        for op, fault in self.found.items():
            n = self.calls[op]
            by_fault.setdefault(fault, []).append(f"{op} ({n} {'call' if n == 1 else 'calls'})")
        return "; ".join(f"{', '.join(ops)}: {fault}" for fault, ops in by_fault.items())


def meta_faults(module: Callable[..., Any], inputs: Inputs) -> MetaFaults:
    """Return what one eager call shows; nothing where the model does not run in eager either."""
    watch = _Beside()
    try:
        with torch.no_grad(), watch:
            module(*inputs.args, **inputs.kwargs)
    except _ERRORS:
        return MetaFaults()
    calls = {op: n for op, n in watch.calls.items() if op in watch.faults}
    return MetaFaults(found=watch.faults, calls=calls)


class _Beside(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Runs the Meta function of each op beside its kernel."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: Counter[str] = Counter()
        self.faults: dict[str, str] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        given = dict(kwargs or {})
        name = str(func)
        self.calls[name] += 1
        looked_at = func.namespace in _TORCHS_OWN or name in self.faults
        # Before the kernel runs, which may change its inputs.
        promised = None if looked_at else _promised(func, args, given)
        result = func(*args, **given)
        if not looked_at:
            fault = promised if isinstance(promised, str) else _difference(promised, result)
            if fault:
                self.faults[name] = fault
        return result


def _promised(func: Any, args: Any, kwargs: dict[str, Any]) -> list[Any] | str:
    """Return the tensors that the Meta function promises, or why there are none."""
    from torch._subclasses.fake_tensor import FakeTensorMode, UnsupportedOperatorException

    # Real shapes only: a symbolic size would be a question of its own.
    fakes = FakeTensorMode(allow_non_fake_inputs=True)
    try:
        faked = tree_map_only(torch.Tensor, fakes.from_tensor, (args, kwargs))
        with fakes:
            return _tensors(func(*faked[0], **faked[1]))
    except _ERRORS as error:
        text = str(error)
        absent = isinstance(error, (NotImplementedError, UnsupportedOperatorException))
        if absent or "no fake impl registered" in text:
            return NO_META
        first = (text.strip() or type(error).__name__).splitlines()[0]
        return f"its Meta function raises {type(error).__name__}: {first[:120]}"


def _difference(promised: list[Any] | None, result: Any) -> str | None:
    """Return how the kernel's outputs differ from the promise, worst fault first."""
    given = _tensors(result)
    if promised is None or not given:
        return None
    if len(promised) != len(given):
        return (
            f"its Meta function promises {len(promised)} tensors, its kernel returns {len(given)}"
        )
    for fake, real in zip(promised, given, strict=True):
        for what, read in _FACTS.items():
            if read(fake) != read(real):
                return (
                    f"its Meta function promises {what} {read(fake)}, "
                    f"its kernel returns {read(real)}"
                )
    return None


def _tensors(value: Any) -> list[Any]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the strides of the dimensions in which there is more than one step to take."""
    return tuple(step for step, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)


_FACTS: Mapping[str, Callable[[torch.Tensor], Any]] = {
    "dtype": lambda tensor: str(tensor.dtype).removeprefix("torch."),
    "shape": lambda tensor: tuple(int(size) for size in tensor.shape),
    "strides": _strides,
}
