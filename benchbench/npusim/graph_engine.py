"""The Graph Engine of the simulated NPU: runs what max-autotune compiled.

torchair lowers an FX graph to Ascend IR, hands the IR to GE, and gives GE's executor real input and
output buffers. Here GE runs that FX graph, on CPU tensors over those very buffers. So the real code
of torchair around it is exercised: which inputs it passes, which outputs it allocates, what it
updates in place. The IR itself is not interpreted: **a converter that builds the wrong IR is not
noticed here**, only one that fails to build any.

This module imports torch and torchair; it belongs into the worker.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import math
import os
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Interpreter

from benchbench.npusim.kernels import DONE, Telling, host_view, is_npu, memory_at
from benchbench.npusim.reference import REFERENCES

_MAX_RANK = 16
_RunHook = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.POINTER(ctypes.c_void_p)
)


class GraphEngine:
    """Answers GE's calls to run a graph."""

    def __init__(self, library: ctypes.CDLL, register_ir: Callable[[str], list[str]]) -> None:
        self.callbacks: list[str] = []
        """IR types of ops without a converter, which call back into torch on a device."""
        self._device = library
        self._register_ir = register_ir
        self._graphs: dict[str, Any] = {}
        library.npusim_output.restype = ctypes.c_void_p
        self._hook = _RunHook(self._run_guarded)
        library.npusim_set_run_hook(self._hook)
        atexit.register(self.close)  # the hook must live as long as GE may call it
        self._observe_lowering()
        if not os.environ.get("ASCEND_HOME_PATH"):
            self._replace_callback_compiler()

    def close(self) -> None:
        """Let no graph run reach Python any more."""
        self._device.npusim_set_run_hook(_RunHook())

    def _observe_lowering(self) -> None:
        """Keep each graph that torchair has lowered, by the name that GE will call it."""
        from torchair._ge_concrete_graph.fx2ge_converter import GeConcreteGraph

        lower = GeConcreteGraph.optimize_graph_without_runtime
        graphs = self._graphs

        @functools.wraps(lower)
        def observed(graph: Any, *args: Any, **kwargs: Any) -> Any:
            result = lower(graph, *args, **kwargs)
            graphs[graph.graph.name] = graph
            return result

        GeConcreteGraph.optimize_graph_without_runtime = observed

    def _replace_callback_compiler(self) -> None:
        """Register the IR of ops that call back, in place of compiling it against CANN's headers.

        For an op without a converter torchair writes C++ and compiles it in the first call. CANN's
        headers are not here, and its definition is all that the lowering needs.
        """
        try:
            from torchair._ge_concrete_graph import custom_op_compiler
        except ImportError:  # torch_npu before it had callbacks
            return

        def register(cpp_code: str, name: str, has_cpp_ops: bool = True) -> None:
            self.callbacks += self._register_ir(cpp_code)

        custom_op_compiler.compile_and_load = register

    # ---- one run -----------------------------------------------------------------------------

    def _run_guarded(self, name: bytes, count: int, addresses: Any) -> int:
        with Telling(self._device, f"graph {name.decode()} failed"), torch.no_grad():
            self._run(self._graphs[name.decode()], [addresses[i] for i in range(count)])
        return DONE

    def _run(self, graph: Any, addresses: Sequence[int | None]) -> None:
        from torchair.ge._ge_graph import torch_type_to_ge_type

        module: GraphModule = graph.fx_graph
        results = _OnHost(module).run(*self._arguments(graph, addresses))
        if not isinstance(results, (tuple, list)):
            results = (results,)
        for fx_index, ge_index in graph._fx_outputs_mapping.items():
            result: torch.Tensor = results[fx_index]
            dims = (ctypes.c_int64 * max(1, result.dim()))(*result.shape)
            dtype = int(torch_type_to_ge_type(result.dtype))
            address = self._device.npusim_output(ge_index, result.dim(), dims, dtype)
            _tensor_at(address, result.shape, result.dtype).copy_(result)

    def _arguments(self, graph: Any, addresses: Sequence[int | None]) -> list[Any]:
        """Return the FX graph's arguments, over the buffers that GE was given."""
        placeholders = [node for node in graph.fx_graph.graph.nodes if node.op == "placeholder"]
        arguments: list[Any] = [None] * len(placeholders)
        metas: dict[int, torch.Tensor] = graph._all_meta_tensor_input
        for ge_index, info in enumerate(graph._input_info_list):
            index = getattr(info.func, "fx_input_idx", None)
            packed = getattr(info.func, "fx_input_idx_list", None)
            if packed is not None:  # several symbolic sizes in one tensor
                sizes = _tensor_at(addresses[ge_index], [len(packed)], torch.int64).tolist()
                for position, size in zip(packed, sizes, strict=True):
                    arguments[position] = size
            elif index is not None and index in metas:
                dtype = metas[index].dtype
                arguments[index] = _tensor_at(addresses[ge_index], self._dims(ge_index), dtype)
            elif index is not None:  # one symbolic size
                arguments[index] = _tensor_at(addresses[ge_index], [], torch.int64).item()
        for index, address in _frozen_parameters(graph).items():
            arguments[index] = _tensor_at(address, metas[index].shape, metas[index].dtype)
        for index, meta in metas.items():
            if arguments[index] is None:  # torchair dropped an input that nothing reads
                arguments[index] = torch.zeros([_size(s) for s in meta.shape], dtype=meta.dtype)
        return arguments

    def _dims(self, ge_index: int) -> list[int]:
        dims = (ctypes.c_int64 * _MAX_RANK)()
        rank = self._device.npusim_input_dims(ge_index, dims, _MAX_RANK)
        return list(dims[:rank])


class _OnHost(Interpreter):
    """Runs an FX graph that was made for the device on CPU tensors."""

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        value = super().get_attr(target, args, kwargs)
        return host_view(value) if is_npu(value) else value

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if "device" in kwargs:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        if isinstance(target, torch._ops.OpOverload) and not _runs_on_host(target):
            if target.namespace == "npu":
                return _reference(target)(*args, **kwargs)
            return _on_device(target, args, kwargs)
        return super().call_function(target, args, kwargs)


def _runs_on_host(op: torch._ops.OpOverload) -> bool:
    if op.namespace in ("aten", "prims"):
        return True
    has_kernel = torch._C._dispatch_has_computed_kernel_for_dispatch_key
    return op.namespace != "npu" and has_kernel(f"{op.namespace}::{_name(op)}", "CPU")


def _name(op: torch._ops.OpOverload) -> str:
    return op._opname if op._overloadname == "default" else f"{op._opname}.{op._overloadname}"


def _reference(op: torch._ops.OpOverload) -> Callable[..., Any]:
    reference = REFERENCES.get(op._opname)
    if reference is None:
        raise NotImplementedError(f"the simulated NPU has no reference for {op}")
    return reference


def _on_device(op: torch._ops.OpOverload, args: Any, kwargs: Any) -> Any:
    """Run an op that has a kernel for the NPU only: there and back."""
    from torch.utils._pytree import tree_map

    def over(value: Any) -> Any:
        return value.to("npu") if isinstance(value, torch.Tensor) else value

    def back(value: Any) -> Any:
        return value.cpu() if isinstance(value, torch.Tensor) else value

    return tree_map(back, op(*tree_map(over, args), **tree_map(over, kwargs)))


def _frozen_parameters(graph: Any) -> dict[int, int]:
    """Return argument index -> address of the parameters that torchair made constants of."""
    return {
        int(op.attr["update_node_from_fx_input_idx"].i): int(op.attr["addr"].i)
        for op in graph.graph.op
        if op.type == "ConstPlaceHolder" and "update_node_from_fx_input_idx" in op.attr
    }


def _tensor_at(address: int | None, shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    count = math.prod(shape)
    if not count or not address:
        return torch.empty(tuple(shape), dtype=dtype)
    return memory_at(address, count * dtype.itemsize).view(dtype).view(tuple(shape))


def _size(size: Any) -> int:
    return size if isinstance(size, int) else 1
