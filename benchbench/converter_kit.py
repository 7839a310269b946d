"""What converter files share: registering by name, torchair's pieces on demand, small helpers.

Nothing here imports torch or torchair before a converter runs, so a file that uses it can be
imported and listed anywhere::

    from benchbench.converter_kit import Converters, ge

    OPS = ("aten.isnan.default",)
    KIND = "converter"
    converter = Converters()
    register = converter.register

    @converter("aten.isnan.default")
    def isnan(self, meta_outputs=None):
        return ge.IsNan(self)
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection
from typing import Any, TypeVar

F = TypeVar("F", bound=Callable[..., Any])


class _Late:
    """A module that is imported when the first of its names is asked for."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        return getattr(importlib.import_module(self._name), name)


ge: Any = _Late("torchair._ge_concrete_graph.ge_apis")
"""The wrappers of all IR operators that the wheel describes."""


class _DataTypes:
    def __getattr__(self, name: str) -> Any:
        module = importlib.import_module("torchair.ge._ge_graph")
        return getattr(module.DataType, name)


DT: Any = _DataTypes()
"""``DT.DT_FLOAT`` and so on."""


class Converters:
    """The converters of one file."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}

    def __call__(self, *ops: str) -> Callable[[F], F]:
        """Remember the decorated function as the converter of these ops."""

        def remember(function: F) -> F:
            for op in ops:
                self.functions[op] = function
            return function

        return remember

    def register(self, ops: Collection[str]) -> None:
        """Register those of ``ops`` that the file has. Needs torchair."""
        from torchair import register_fx_node_ge_converter

        from benchbench.converters import overload

        for op, function in self.functions.items():
            if op in ops:
                register_fx_node_ge_converter(overload(op))(function)


class Decompositions:
    """The decompositions of one file."""

    def __init__(self) -> None:
        self.functions: dict[str, Callable[..., Any]] = {}

    def __call__(self, *ops: str) -> Callable[[F], F]:
        """Remember the decorated function as the decomposition of these ops."""

        def remember(function: F) -> F:
            for op in ops:
                self.functions[op] = function
            return function

        return remember

    def table(self) -> dict[str, Callable[..., Any]]:
        """Return op name -> function."""
        return dict(self.functions)


def promote(*values: Any, to: Any) -> Any:
    """Return the values as GE tensors of one dtype: constants become so, tensors are cast."""
    from torchair._ge_concrete_graph.utils import dtype_promote

    return dtype_promote(*values, target_dtype=to)


def const(value: Any, dtype: Any = None) -> Any:
    """Return a GE constant."""
    return ge.Const(value, dtype=dtype)


def ints(values: Any) -> Any:
    """Return a GE constant of int64 from a number or a list of numbers."""
    return promote(values, to=DT.DT_INT64)


def sizes(tensor: Any) -> list[int]:
    """Return a tensor's sizes as numbers; raise where one of them is symbolic."""
    result = []
    for size in tensor.symsize:
        if not isinstance(size, int) and not str(size).isdigit():
            raise NotImplementedError("this converter needs fixed sizes (dynamic=false)")
        result.append(int(str(size)))
    return result


def positive(dim: int, rank: int) -> int:
    """Return a dimension counted from the front."""
    return dim + max(rank, 1) if dim < 0 else dim


def axes(dims: Any, rank: int) -> list[int]:
    """Return a list of dimensions counted from the front; none or an empty list means all."""
    if dims is None or (isinstance(dims, (list, tuple)) and not dims):
        return list(range(rank))
    if isinstance(dims, int):
        dims = [dims]
    return [positive(dim, rank) for dim in dims]
