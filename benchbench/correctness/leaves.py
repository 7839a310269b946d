"""Walks any value a model can return, or take, and names every leaf by a readable path.

A leaf is a tensor, a plain value, the type of a container, or something that cannot be compared.
``walk`` hands out live tensors; ``snapshot`` copies them to the CPU at once, because a replayed
graph overwrites its outputs with the next call.
"""

from __future__ import annotations

import dataclasses
import enum
import hashlib
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

Kind = Literal["tensor", "value", "container", "opaque"]

# Deeper nesting than this is a structure that contains itself through fresh objects, not an output.
MAX_DEPTH = 64

_PLAIN = (bool, int, str, bytes, type(None), range, slice, enum.Enum)
_TORCH_PLAIN = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
_COMPRESSED = {
    torch.sparse_csr: ("crow_indices", "col_indices"),
    torch.sparse_csc: ("ccol_indices", "row_indices"),
    torch.sparse_bsr: ("crow_indices", "col_indices"),
    torch.sparse_bsc: ("ccol_indices", "row_indices"),
}


@dataclass(frozen=True, slots=True)
class Leaf:
    """One named part of a value.

    ``type`` is the type that has to agree; ``tensor`` is set for kind ``tensor`` only (a Python
    float is a 0-dim float64 tensor of type ``float``); ``text`` is the plain value of a ``value``,
    the shape of a sparse container, or the reason why an ``opaque`` leaf cannot be compared.
    """

    path: str
    kind: Kind
    type: str
    tensor: torch.Tensor | None = None
    text: str = ""


def walk(value: object, root: str) -> Iterator[Leaf]:
    """Yield the leaves of ``value``, a container before its parts; tensors are not copied."""
    return _walk(value, root, ())


def snapshot(value: object, root: str) -> dict[str, Leaf]:
    """Return the leaves of ``value`` by path, with every tensor copied to the CPU."""
    return by_path(copied(leaf) for leaf in walk(value, root))


def by_path(leaves: Iterable[Leaf]) -> dict[str, Leaf]:
    """Return the leaves keyed by their paths, in order."""
    return {leaf.path: leaf for leaf in leaves}


def copied(leaf: Leaf) -> Leaf:
    """Return the leaf with its own dense, contiguous tensor on the CPU."""
    if leaf.tensor is None:
        return leaf
    return dataclasses.replace(leaf, tensor=to_cpu(leaf.tensor))


def to_cpu(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy on the CPU that shares no memory with ``tensor``."""
    plain = tensor.detach().resolve_conj().resolve_neg()
    return plain.to("cpu", copy=True, memory_format=torch.contiguous_format)


def bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the flat integer view of a contiguous tensor, one integer (or two) per element."""
    flat = tensor.reshape(-1)
    if flat.is_complex():
        flat = torch.view_as_real(flat).reshape(-1)
    return flat.view(_BITS[flat.element_size()])


def identical(left: Leaf, right: Leaf) -> bool:
    """Say whether two snapshot leaves are the same bit for bit (so NaN equals the same NaN)."""
    if left.tensor is None or right.tensor is None:
        return left == right
    return (
        left.type == right.type
        and left.tensor.dtype == right.tensor.dtype
        and left.tensor.shape == right.tensor.shape
        and torch.equal(bits(left.tensor), bits(right.tensor))
    )


def digest(leaves: Iterable[Leaf]) -> str:
    """Return a hash of the paths, types and every byte of snapshot leaves."""
    total = hashlib.blake2b(digest_size=16)
    for leaf in leaves:
        total.update(f"{leaf.path}|{leaf.kind}|{leaf.type}|{leaf.text}".encode())
        if leaf.tensor is not None:
            total.update(f"|{leaf.tensor.dtype}{tuple(leaf.tensor.shape)}".encode())
            total.update(bits(leaf.tensor).numpy().data)
    return total.hexdigest()


def is_none(leaf: Leaf) -> bool:
    """Say whether the leaf is ``None``, which agrees with ``None`` and proves nothing."""
    return leaf.type == "NoneType"


def _walk(value: object, path: str, above: tuple[int, ...]) -> Iterator[Leaf]:
    if isinstance(value, torch.Tensor):
        yield from _walk_tensor(value, path, above)
        return
    plain = _plain(value, path)
    if plain is not None:
        yield plain
        return
    if id(value) in above:
        yield Leaf(path, "opaque", _name(value), text="it contains itself")
        return
    if len(above) >= MAX_DEPTH:
        yield Leaf(path, "opaque", _name(value), text=f"nested deeper than {MAX_DEPTH} levels")
        return
    parts = _parts(value, path, above)
    if parts is None:
        yield Leaf(path, "opaque", _name(value), text=f"cannot compare type {_name(value)}")
        return
    yield Leaf(path, "container", _name(value))
    for child_path, child in parts:
        yield from _walk(child, child_path, (*above, id(value)))


def _plain(value: object, path: str) -> Leaf | None:
    """Return the leaf of a value that has no parts, or ``None`` for one that has."""
    value = _concrete(value)
    name = _name(value)
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (*_PLAIN, *_TORCH_PLAIN)):
        return Leaf(path, "value", name, text=repr(value))
    if isinstance(value, float):
        return Leaf(path, "tensor", name, torch.tensor(value, dtype=torch.float64))
    if isinstance(value, complex):
        return Leaf(path, "tensor", name, torch.tensor(value, dtype=torch.complex128))
    if isinstance(value, set | frozenset):
        return Leaf(path, "value", name, text=", ".join(sorted(map(repr, value))))
    if isinstance(value, np.ndarray) and value.dtype.kind in "biufc":
        array = np.array(value, dtype=value.dtype.newbyteorder("="))  # own, writable memory
        return Leaf(path, "tensor", name, torch.from_numpy(array))
    return None


def _concrete(value: object) -> object:
    """Return the number behind a symbolic one, any other value as it is."""
    if isinstance(value, torch.SymInt):
        return int(value)
    if isinstance(value, torch.SymFloat):
        return float(value)
    return bool(value) if isinstance(value, torch.SymBool) else value


def _parts(value: object, path: str, above: tuple[int, ...]) -> list[tuple[str, Any]] | None:
    """Return the named parts of a container, or ``None`` for what cannot be taken apart."""
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f"{path}.{name}", getattr(value, name)) for name in value._fields]
    if isinstance(value, tuple | list | deque):
        return [(f"{path}[{index}]", part) for index, part in enumerate(value)]
    if isinstance(value, Mapping):
        attributes = dataclasses.is_dataclass(value)  # e.g. transformers' ModelOutput
        return [
            (f"{path}.{key}" if attributes else f"{path}[{_key(key, index)}]", part)
            for index, (key, part) in enumerate(value.items())
        ]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in dataclasses.fields(value)]
        return [(f"{path}.{name}", getattr(value, name)) for name in names if hasattr(value, name)]
    return _tensor_attributes(value, path, above)


def _tensor_attributes(
    value: object, path: str, above: tuple[int, ...]
) -> list[tuple[str, Any]] | None:
    """Return the attributes of an object of an unknown class that hold tensors (a KV cache)."""
    if isinstance(value, type | torch.nn.Module) or callable(value):
        return None
    attributes = getattr(value, "__dict__", None)
    if not isinstance(attributes, dict):
        return None
    inside = (*above, id(value))
    found = [
        (f"{path}.{name}", part)
        for name, part in attributes.items()
        if any(_is_true_tensor(leaf) for leaf in _walk(part, name, inside))
    ]
    return found or None


def _is_true_tensor(leaf: Leaf) -> bool:
    return leaf.tensor is not None and leaf.type not in ("float", "complex")


def _walk_tensor(value: torch.Tensor, path: str, above: tuple[int, ...]) -> Iterator[Leaf]:
    # A class of its own may compute its values when it is used. So it is used once, by the
    # handlers of its class, before these are left aside.
    used = value.detach()
    with torch._C.DisableTorchFunctionSubclass():
        name = "Tensor" if isinstance(value, torch.nn.Parameter) else _name(value)
        if value.is_nested:
            yield Leaf(path, "opaque", name, text="cannot compare a nested tensor")
        elif value.device.type == "meta":
            yield Leaf(path, "opaque", name, text="a tensor on the meta device has no values")
        elif len(above) >= MAX_DEPTH:
            yield Leaf(path, "opaque", name, text=f"nested deeper than {MAX_DEPTH} levels")
        elif (parts := _tensor_parts(value, path)) is not None:
            text = f"{value.layout}, shape {tuple(value.shape)}"
            yield Leaf(path, "container", name, text=text)
            for child_path, child in parts:
                yield from _walk(child, child_path, (*above, id(value)))
        else:
            plain = _plain_tensor(used)
            if plain is None:
                text = f"cannot compare type {name}: it has no memory of its own"
                yield Leaf(path, "opaque", name, text=text)
            else:
                yield Leaf(path, "tensor", name, plain)


def _plain_tensor(value: torch.Tensor) -> torch.Tensor | None:
    """Return the dense tensor behind a tensor of any class, ``None`` if there is none to read."""
    plain = value.as_subclass(torch.Tensor)
    if type(plain) is not torch.Tensor:
        return None
    return plain.to_dense() if plain.is_mkldnn else plain


def _tensor_parts(value: torch.Tensor, path: str) -> list[tuple[str, Any]] | None:
    """Return the dense tensors that a sparse, quantised or wrapping tensor consists of."""
    names: tuple[str, ...]
    if hasattr(value, "__tensor_flatten__"):
        return [(f"{path}.{name}", getattr(value, name)) for name in value.__tensor_flatten__()[0]]
    if value.layout == torch.sparse_coo:
        value, names = value.detach().coalesce(), ("indices", "values")
    elif value.layout in _COMPRESSED:
        names = (*_COMPRESSED[value.layout], "values")
    elif value.is_quantized and value.qscheme() in (
        torch.per_tensor_affine,
        torch.per_tensor_symmetric,
    ):
        names = ("int_repr", "q_scale", "q_zero_point")
    elif value.is_quantized:
        names = ("int_repr", "q_per_channel_scales", "q_per_channel_zero_points")
    else:
        return None
    return [(f"{path}.{name}()", getattr(value, name)()) for name in names]


def _key(key: object, index: int) -> str:
    """Return the text of a dict key; an object's own text may hold its address, so not that."""
    if isinstance(key, str | bytes | int | float | complex | tuple | enum.Enum | type(None)):
        return repr(key)
    return f"<{_name(key)} {index}>"


def _name(value: object) -> str:
    return type(value).__qualname__.replace("<locals>.", "")
