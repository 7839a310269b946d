"""Kernels of the simulated NPU: each op runs its CPU kernel on tensors that alias device memory.

Device memory is host memory, so a CPU tensor over the same bytes is all an op needs; in-place and
``out=`` variants then update the device's tensor without a copy. Allocation, views, copies, fills
and casts stay torch_npu's own.

While a graph is being captured nothing is computed. Shapes come from the op's meta kernel, and the
call is recorded with its aliases, to run at each replay on whatever those addresses hold by then.

This module imports torch; it belongs into the worker.
"""

from __future__ import annotations

import atexit
import ctypes
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from benchbench.npusim.reference import REFERENCES

# Ops that keep torch_npu's kernels: allocation, views, metadata, and what the simulated CANN
# computes natively (copy, cast, fill). A name is the op's, without its overload.
_KEEP = re.compile(
    r"(new_)?empty.*|unsafe_empty.*|as_strided_?|view.*|unfold|resize_?|resize_as_|set_|is_set_to"
    r"|copy_|_to_copy|_copy_from.*|contiguous|clone|_lazy_clone|_reshape_alias|_local_scalar_dense"
    r"|is_pinned|_pin_memory|record_stream|.*format.*|.*storage.*|.*npu.*|copy_memory_|_foreach_copy_"
    r"|zero_|(new_)?(ones|zeros)(_like)?"
)
_KEEP_OVERLOADS = {"fill_.Scalar"}
# What a function that C calls returns when it is through. An exception ends in a traceback on
# stderr and 0, which C takes for a failure.
DONE = 1

_ReplayHook = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_long)
_ForgetHook = ctypes.CFUNCTYPE(None, ctypes.c_long)


class CaptureError(RuntimeError):
    """An op that cannot be captured into a device graph."""


def host_view(tensor: torch.Tensor) -> torch.Tensor:
    """Return a CPU tensor over the bytes of a tensor on the simulated device."""
    storage = tensor.untyped_storage()
    size = storage.nbytes()
    if size == 0:
        return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype)
    view = torch.empty(0, dtype=tensor.dtype)
    bytes_ = memory_at(storage.data_ptr(), size).untyped_storage()
    return view.set_(bytes_, tensor.storage_offset(), tensor.shape, tensor.stride())


def memory_at(address: int, size: int) -> torch.Tensor:
    """Return ``size`` bytes at an address as a CPU tensor that does not own them."""
    return torch.frombuffer((ctypes.c_char * size).from_address(address), dtype=torch.uint8)


def is_npu(value: object) -> bool:
    """Say whether a value is a tensor on the simulated device."""
    return isinstance(value, torch.Tensor) and value.device.type == "npu"


class Telling:
    """Hands the text of an exception over to the device, as its error message; lets it pass."""

    def __init__(self, device: ctypes.CDLL, what: str) -> None:
        self._device = device
        self._what = what

    def __enter__(self) -> None:
        """Begin."""

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Tell of an error, if there is one."""
        if error is not None:
            text = f"[npusim] {self._what}: {type(error).__name__}: {error}"
            self._device.npusim_set_error(text.encode("utf-8", "replace"))


class Kernels:
    """Routes every op that torch_npu has a kernel for to the CPU."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.routed: list[str] = []
        """Names of the routed ops."""
        self._device = library
        self._npu: Any = torch.get_device_module("npu")
        library.npusim_capturing.argtypes = [ctypes.c_void_p]
        library.npusim_launched.argtypes = [ctypes.c_void_p]
        library.npusim_record_kernel.argtypes = [ctypes.c_void_p, ctypes.c_long]
        self._recorded: dict[int, Callable[[], None]] = {}
        self._next_number = 1
        self._libraries: list[torch.library.Library] = []
        self._hooks = (_ReplayHook(self._replay), _ForgetHook(self._forget))
        library.npusim_set_hooks(*self._hooks)
        # Registrations and hooks must live as long as torch calls them.
        atexit.register(self.close)
        self._route_aten()
        self._route_npu()

    def close(self) -> None:
        """Let no replay reach Python any more."""
        self._device.npusim_set_hooks(_ReplayHook(), _ForgetHook())

    # ---- registration ----------------------------------------------------------------------

    def _route_aten(self) -> None:
        library: Any = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
        self._libraries.append(library)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one per op that is overridden
            for full_name in torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"):
                namespace, _, name = full_name.partition("::")
                op = _overload("aten", name) if namespace == "aten" and not _kept(name) else None
                if op is None:
                    continue
                try:
                    library.impl(name, _Kernel(self, op, op), "PrivateUse1", allow_override=True)
                except RuntimeError:
                    continue  # an op that only C++ may implement stays as it is
                self.routed.append(name)

    def _route_npu(self) -> None:
        library: Any = torch.library.Library("npu", "IMPL")  # type: ignore[no-untyped-call]
        self._libraries.append(library)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for name, reference in REFERENCES.items():
                op = _overload("npu", name)
                if op is not None:
                    kernel = _Kernel(self, op, reference)
                    library.impl(name, kernel, "PrivateUse1", allow_override=True)
                    self.routed.append(f"npu::{name}")

    # ---- capture and replay ------------------------------------------------------------------

    def capturing(self) -> bool:
        """Say whether the current stream is being captured."""
        return bool(self._device.npusim_capturing(self._stream()))

    def launched(self) -> None:
        """Account for a kernel that ran on the current stream."""
        code = self._device.npusim_launched(self._stream())
        if code:
            raise RuntimeError(f"[npusim] kernel failed, error code is {code}")

    def record(self, work: Callable[[], None]) -> None:
        """Put work into the capture of the current stream."""
        number = self._next_number
        self._next_number += 1
        self._recorded[number] = work
        self._device.npusim_record_kernel(self._stream(), number)

    def _stream(self) -> int:
        return int(self._npu.current_stream().npu_stream)

    def _replay(self, number: int) -> int:
        with Telling(self._device, "kernel failed in a replay"), torch.no_grad():
            self._recorded[number]()
        return DONE

    def _forget(self, number: int) -> None:
        self._recorded.pop(number, None)


class _Kernel:
    """The kernel of one op: converts arguments, computes or records, converts results."""

    def __init__(
        self, kernels: Kernels, op: torch._ops.OpOverload, compute: Callable[..., Any]
    ) -> None:
        self._kernels = kernels
        self._op = op
        self._compute = compute
        arguments = op._schema.arguments
        self._out_names = [argument.name for argument in arguments if argument.is_out]
        self._takes_device = any(argument.name == "device" for argument in arguments)
        self._takes_generator = any(argument.name == "generator" for argument in arguments)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        outs = {name: kwargs.pop(name) for name in self._out_names if is_npu(kwargs.get(name))}
        call = _Arguments(args, self._host_keywords(kwargs))
        device = _device_of((args, kwargs, outs))
        if self._kernels.capturing():
            return self._capture(call, outs, device)
        fresh = _empty_like(outs, "cpu")
        result = self._compute(*call.args, **call.kwargs, **fresh)
        self._kernels.launched()
        if outs:
            return self._fill_outs(outs, fresh)
        return tree_map(lambda value: call.on_device(value, device), result)

    def _host_keywords(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        kwargs = dict(kwargs)
        kwargs.pop("pin_memory", None)
        if self._takes_device:
            kwargs["device"] = torch.device("cpu")
        if self._takes_generator and kwargs.get("generator") is not None:
            kwargs["generator"] = None  # the CPU's own; the numbers are not a device's anyway
        return kwargs

    def _fill_outs(self, outs: dict[str, torch.Tensor], fresh: dict[str, torch.Tensor]) -> Any:
        for name, out in outs.items():
            _resize(out, fresh[name].shape)
            host_view(out).copy_(fresh[name])
        return _one_or_tuple(outs.values())

    # ---- under capture ---------------------------------------------------------------------

    def _capture(
        self, call: _Arguments, outs: dict[str, torch.Tensor], device: torch.device
    ) -> Any:
        shapes, shape_args = self._infer(call, outs)
        if outs:
            for out, shape in zip(outs.values(), shapes, strict=True):
                _resize(out, shape.shape)
            names, targets = list(outs), [host_view(out) for out in outs.values()]
            self._kernels.record(lambda: self._replay_into_outs(call, names, targets))
            return _one_or_tuple(outs.values())
        made: list[torch.Tensor] = []
        result = tree_map(lambda value: shape_args.on_device(value, device, made), shapes)
        targets = [host_view(tensor) for tensor in made]
        self._kernels.record(lambda: self._replay_into(call, targets))
        return result

    def _infer(self, call: _Arguments, outs: dict[str, torch.Tensor]) -> tuple[Any, _Arguments]:
        """Return the op's results without values, and the stand-ins of its arguments."""
        meta = call.to_meta()
        try:
            result = self._compute(*meta.args, **meta.kwargs, **_empty_like(outs, "meta"))
        except NotImplementedError as error:
            if torch.Tag.dynamic_output_shape in self._op.tags:
                raise CaptureError(
                    f"[npusim] {self._op} cannot be captured: its result's shape depends on values"
                ) from error
            clones = call.to_clones()
            result = self._compute(*clones.args, **clones.kwargs, **_empty_like(outs, "cpu"))
            meta = clones
        return (list(_flat(result)) if outs else result), meta

    def _replay_into_outs(
        self, call: _Arguments, names: list[str], targets: list[torch.Tensor]
    ) -> None:
        fresh = _empty_like(dict(zip(names, targets, strict=True)), "cpu")
        self._compute(*call.args, **call.kwargs, **fresh)
        for target, value in zip(targets, fresh.values(), strict=True):
            target.copy_(value)

    def _replay_into(self, call: _Arguments, targets: list[torch.Tensor]) -> None:
        result = self._compute(*call.args, **call.kwargs)
        values = [value for value in _flat(result) if not call.owns(value)]
        for target, value in zip(targets, values, strict=True):
            # In eval mode the CPU's batch norm leaves its statistics empty, its meta kernel not.
            if value.numel() or not target.numel():
                target.copy_(value)


class _Arguments:
    """Arguments of one call with device tensors replaced, and the way back for results."""

    def __init__(self, args: Any, kwargs: Any) -> None:
        # No reference cycle may form here: it would keep device memory alive beyond its graph, and
        # torch_npu aborts the process for that.
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []
        pairs = self._pairs

        def replace(value: Any) -> Any:
            if isinstance(value, torch.device) and value.type == "npu":
                return torch.device("cpu")
            if not is_npu(value):
                return value
            view = host_view(value)
            pairs.append((view, value))
            return view

        self.args = tree_map(replace, args)
        self.kwargs = tree_map(replace, kwargs)

    def to_meta(self) -> _Arguments:
        """Return stand-ins without memory, of the same sizes and strides."""
        return self._again(_meta_like)

    def to_clones(self) -> _Arguments:
        """Return stand-ins with memory of their own."""
        return self._again(_clone_like)

    def _again(self, convert: Callable[[torch.Tensor], torch.Tensor]) -> _Arguments:
        originals = {id(stand_in): value for stand_in, value in self._pairs}
        copy = _Arguments((), {})
        pairs = copy._pairs

        def replace(value: Any) -> Any:
            if id(value) not in originals:
                return value
            stand_in = convert(value)
            pairs.append((stand_in, originals[id(value)]))
            return stand_in

        copy.args, copy.kwargs = tree_map(replace, self.args), tree_map(replace, self.kwargs)
        return copy

    def owns(self, value: torch.Tensor) -> bool:
        """Say whether a result is an argument, or a view of one."""
        return self._owner(value) is not None

    def _owner(self, value: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor] | None:
        for pair in self._pairs:
            if pair[0] is value:
                return pair
        key = _storage_key(value)
        for pair in self._pairs:
            if key is not None and _storage_key(pair[0]) == key:
                return pair
        return None

    def on_device(
        self, value: Any, device: torch.device, made: list[torch.Tensor] | None = None
    ) -> Any:
        """Return a result as a tensor on the device.

        A result that is an argument, or a view of one, becomes that. Otherwise it gets memory on
        the device; its values are copied there, or with ``made`` the tensor is only noted.
        """
        if not isinstance(value, torch.Tensor):
            return value
        owner = self._owner(value)
        if owner is not None:
            stand_in, original = owner
            if value is stand_in:
                return original
            offset = original.storage_offset() + value.storage_offset() - stand_in.storage_offset()
            return original.as_strided(value.shape, value.stride(), offset)
        if not _is_dense(value):
            value = value.contiguous()
        result = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=device)
        if made is not None:
            made.append(result)
        elif result.numel():
            host_view(result).copy_(value)
        return result


def _storage_key(value: torch.Tensor) -> int | None:
    storage = value.untyped_storage()
    if value.device.type == "meta":
        return int(storage._cdata)
    return storage.data_ptr() or None


def _span(tensor: torch.Tensor) -> int:
    """Return how many elements of its storage a tensor reaches over, from its offset on."""
    if tensor.numel() == 0:
        return 0
    return 1 + sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride(), strict=True))


def _is_dense(tensor: torch.Tensor) -> bool:
    """Say whether each element has memory of its own, without gaps between them."""
    expected = 1
    for step, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size == 1:
            continue
        if step != expected:
            return False
        expected *= size
    return True


def _meta_like(tensor: torch.Tensor) -> torch.Tensor:
    base = torch.empty(_span(tensor), dtype=tensor.dtype, device="meta")
    return base.as_strided(tensor.shape, tensor.stride())


def _clone_like(tensor: torch.Tensor) -> torch.Tensor:
    base = tensor.as_strided((_span(tensor),), (1,)).clone()
    return base.as_strided(tensor.shape, tensor.stride(), 0)


def _empty_like(outs: dict[str, torch.Tensor], device: str) -> dict[str, torch.Tensor]:
    return {name: torch.empty(0, dtype=out.dtype, device=device) for name, out in outs.items()}


def _resize(out: torch.Tensor, shape: torch.Size) -> None:
    if out.shape != shape:
        out.resize_(shape)


def _flat(result: Any) -> Iterable[torch.Tensor]:
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def _one_or_tuple(values: Iterable[torch.Tensor]) -> Any:
    values = tuple(values)
    return values[0] if len(values) == 1 else values


def _device_of(arguments: Any) -> torch.device:
    for leaf in tree_leaves(arguments):
        if is_npu(leaf):
            return torch.device(leaf.device)
        if isinstance(leaf, torch.device) and leaf.type == "npu" and leaf.index is not None:
            return leaf
    return torch.device("npu")


def _kept(name: str) -> bool:
    return name in _KEEP_OVERLOADS or _KEEP.fullmatch(name.partition(".")[0]) is not None


def _overload(namespace: str, name: str) -> torch._ops.OpOverload | None:
    packet_name, _, overload = name.partition(".")
    packet = getattr(getattr(torch.ops, namespace), packet_name, None)
    found = getattr(packet, overload or "default", None)
    return found if isinstance(found, torch._ops.OpOverload) else None
