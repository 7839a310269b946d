"""How a worker calls a model: the grad mode, lazy outputs, a collector that keeps out."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch

_PLAIN = (torch.Tensor, torch.nn.Parameter)
_MAX_DEPTH = 16


@contextlib.contextmanager
def grad_mode(name: str) -> Iterator[None]:
    """Enter the grad mode in which everything is called."""
    with torch.inference_mode() if name == "inference_mode" else torch.no_grad():
        yield


@contextlib.contextmanager
def quiet_collector() -> Iterator[None]:
    """Keep the collector out of the samples; what is alive now is not looked at again."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def materialise(output: object) -> bool:
    """Read from every lazy tensor of an output; say whether there was one.

    A tensor of a class of its own may be a promise whose work is done when it is read. Timing
    the promise would measure nothing, and the work would leak into the next span.
    """
    lazy = [tensor for tensor in _tensors(output) if type(tensor) not in _PLAIN]
    for tensor in lazy:
        tensor.detach().reshape(-1)[:1].clone()
    return bool(lazy)


def _tensors(output: object, depth: int = 0) -> Iterator[torch.Tensor]:
    """Yield the tensors of an output as they are, none of them used."""
    if isinstance(output, torch.Tensor):
        yield output
        return
    parts: Iterable[object] = ()
    if isinstance(output, Mapping):
        parts = output.values()
    elif isinstance(output, list | tuple | set):
        parts = output
    elif dataclasses.is_dataclass(output):
        parts = vars(output).values() if hasattr(output, "__dict__") else ()
    for part in parts if depth < _MAX_DEPTH else ():
        yield from _tensors(part, depth + 1)


def materialised(call: Callable[[], object]) -> Callable[[], object]:
    """Return the call with its lazy outputs read, so that their work is inside the span."""

    def run() -> None:
        materialise(call())

    return run


def weights_bytes(module: torch.nn.Module) -> int:
    """Return the bytes of parameters and buffers, tied ones once."""
    sizes: dict[tuple[str, int], int] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        try:
            storage = tensor.untyped_storage()
            sizes[str(tensor.device), storage.data_ptr()] = storage.nbytes()
        except (RuntimeError, NotImplementedError):  # sparse, or a subclass without storage
            sizes[str(tensor.device), id(tensor)] = tensor.numel() * tensor.element_size()
    return sum(sizes.values())
