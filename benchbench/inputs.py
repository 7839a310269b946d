"""The inputs that a user's builder gives beside its module, made into one for every seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from benchbench.errors import LoadError
from benchbench.models import Inputs

if TYPE_CHECKING:
    import torch


def input_maker(
    inputs: object, first: int, device: torch.device, dtype: torch.dtype | None, path: str
) -> Callable[[int], Inputs]:
    """Return ``make_inputs`` for what a builder gave beside its module.

    Fixed inputs serve call 0 unchanged. For every other seed each tensor's values are rolled
    along one dimension: other values, of the same range and validity. Tensors whose order has a
    meaning stay as they are (:func:`_roll`). Tensors are copied for each call, so that a model
    that writes into its input spoils no other call; everything else is passed on as it is.
    """
    from benchbench.correctness.recorder import call_seed, seed_everything

    origin = call_seed(first, 0)
    fixed = None if callable(inputs) else as_inputs(inputs, path)

    def make_inputs(seed: int) -> Inputs:
        shift = 0
        made = fixed
        if made is None:
            assert callable(inputs)
            seed_everything(seed)
            made = as_inputs(inputs(seed), path)
        else:
            shift = seed - origin

        def place(tensor: torch.Tensor) -> torch.Tensor:
            target = dtype if dtype is not None and tensor.is_floating_point() else tensor.dtype
            fresh = tensor.detach().to(device=device, dtype=target, copy=True)
            _roll(fresh, shift)
            return fresh

        each = tensor_map(place)
        return Inputs(tuple(map(each, made.args)), {k: each(v) for k, v in made.kwargs.items()})

    return make_inputs


def as_inputs(inputs: object, path: str) -> Inputs:
    import torch

    if isinstance(inputs, Inputs):
        return inputs
    if isinstance(inputs, torch.Tensor):
        return Inputs((inputs,))
    if isinstance(inputs, tuple | list):
        return Inputs(tuple(inputs))
    if isinstance(inputs, Mapping):
        return Inputs(kwargs={str(name): value for name, value in inputs.items()})
    raise LoadError(
        f"'{path}' gave inputs of type {type(inputs).__name__}\n"
        "  accepted: a tensor, a tuple, list or dictionary of arguments, Inputs, "
        "or a function of a seed"
    )


def tensor_map(change: Callable[[torch.Tensor], torch.Tensor]) -> Callable[[Any], Any]:
    """Return a function that changes every tensor in nested tuples, lists and dictionaries."""
    import torch

    def walk(value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return change(value)
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            return type(value)(*map(walk, value))
        if type(value) in (tuple, list):
            return type(value)(map(walk, value))
        if type(value) is dict:
            return {key: walk(item) for key, item in value.items()}
        return value

    return walk


def _roll(tensor: torch.Tensor, shift: int) -> None:
    """Roll the values in place (strides stay) along the last dimension that is longer than 1.

    Unchanged stay: booleans, integers in rising or falling order (offsets, positions, padding
    masks) and values that are not finite (additive masks), where a roll could make no sense.
    """
    dim = _roll_dim(tensor)
    if dim is not None and shift:
        tensor.copy_(tensor.roll(shift, dims=dim))


def _roll_dim(tensor: torch.Tensor) -> int | None:
    import torch

    if tensor.layout is not torch.strided or tensor.is_nested or tensor.is_quantized:
        return None
    longer = [dim for dim in range(tensor.ndim) if tensor.shape[dim] > 1]
    return longer[-1] if longer and _is_free(tensor, longer[-1]) else None


def _is_free(tensor: torch.Tensor, dim: int) -> bool:
    import torch

    if tensor.dtype is torch.bool:
        return False
    if tensor.is_floating_point() or tensor.is_complex():
        return bool(torch.isfinite(tensor).all())
    steps = tensor.diff(dim=dim)
    return not bool((steps >= 0).all() or (steps <= 0).all())


def can_vary(inputs: Inputs) -> bool:
    """Say whether a roll changes any value of these inputs."""
    varied: list[bool] = []

    def look(tensor: torch.Tensor) -> torch.Tensor:
        dim = _roll_dim(tensor)
        varied.append(dim is not None and not tensor.equal(tensor.roll(1, dims=dim)))
        return tensor

    for value in [*inputs.args, *inputs.kwargs.values()]:
        tensor_map(look)(value)
    return any(varied)
