"""Stand-ins for missing Meta functions, so that one run finds every op that lacks one.

A graph is traced with tensors that have a shape and no data. An op of the user's own needs a Meta
function for that; without one the trace ends at its first call, and nothing behind it is seen.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

_FOUND = "its CPU kernel was run once on zeros to find the shapes"
_GUESSED = "its outputs are taken to be like its first tensor"
_TRACEABLE = (
    "Meta",
    "CompositeImplicitAutograd",
    "CompositeExplicitAutograd",
    "CompositeExplicitAutogradNonFunctional",
)
# What a user's kernel may say to the zeros that it is given.
_KERNEL_ERRORS = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    RuntimeError,
    TypeError,
    ValueError,
)


def registered_ops() -> set[str]:
    """Return the ops that torch knows now, ``namespace::op`` with ``.overload`` if it has one."""
    return set(torch._C._dispatch_get_all_op_names())


class StandIns:
    """Meta functions for those ops, registered since ``before``, that have none."""

    def __init__(self, before: set[str]) -> None:
        self.used: dict[str, str] = {}
        """Op that was traced without a Meta of its own -> how its shapes were found."""
        self._library: list[Any] = []
        for name in sorted(registered_ops() - before):
            op = _overload(name)
            if op is not None and _lacks_meta(op):
                self._stand_in(op)

    def _stand_in(self, op: Any) -> None:
        from torch._library import custom_ops

        def fake(*args: Any, **kwargs: Any) -> Any:
            return self._outputs(op, args, kwargs)

        definition = custom_ops.OPDEFS.get(op._schema.name)
        if definition is not None:  # made by torch.library.custom_op
            definition._abstract_fn = fake
            return
        library = torch.library.Library(op.namespace, "FRAGMENT")  # type: ignore[no-untyped-call]
        self._library.append(library)
        torch.library.register_fake(op.name(), fake, lib=library)

    def _outputs(self, op: Any, args: Any, kwargs: Any) -> Any:
        tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        device = tensors[0].device if tensors else torch.device("cpu")
        try:
            result = _run_on_zeros(op, args, kwargs)
            self.used.setdefault(str(op), _FOUND)
        except _KERNEL_ERRORS:
            result = tuple(tensors[0] for _ in op._schema.returns) if tensors else None
            result = result[0] if result is not None and len(result) == 1 else result
            self.used[str(op)] = _GUESSED

        def empty(value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return value
            return torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=device
            )

        return tree_map(empty, result)


def _run_on_zeros(op: Any, args: Any, kwargs: Any) -> Any:
    from torch.utils._python_dispatch import _disable_current_modes

    with _disable_current_modes(), torch.no_grad():

        def zeros(value: Any) -> Any:
            if isinstance(value, torch.Tensor):
                sizes = [int(size) for size in value.shape]
                return torch.zeros(sizes, dtype=value.dtype, device="cpu")
            return torch.device("cpu") if isinstance(value, torch.device) else value

        return op(*tree_map(zeros, args), **tree_map(zeros, kwargs))


def _lacks_meta(op: Any) -> bool:
    from torch._library import custom_ops, simple_registry, utils

    if utils.can_generate_trivial_fake_impl(op):
        return False
    definition = custom_ops.OPDEFS.get(op._schema.name)
    if definition is not None:
        return definition._abstract_fn is None
    entry = simple_registry.singleton.find(op._schema.name)
    if entry.fake_impl.kernel is not None:
        return False
    # Not whether a call could be dispatched: torch_npu's fallback would take that for a kernel.
    has = torch._C._dispatch_has_kernel_for_dispatch_key
    return not any(has(op.name(), key) for key in _TRACEABLE)


def _overload(name: str) -> Any:
    namespace, _, rest = name.partition("::")
    packet, _, overload = rest.partition(".")
    found = getattr(getattr(torch.ops, namespace), packet, None)
    return None if found is None else getattr(found, overload or "default", None)
