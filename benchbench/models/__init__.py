"""Models: one Python file per family, sizes in YAML.

A model is a function ``build`` named by ``_target_`` in its YAML. It is called with those of the
keyword arguments ``device``, ``dtype``, ``batch_size``, ``seq_len``, ``workload`` and the YAML's
own options that its signature accepts, and returns a :class:`Workload` (or the plain pair
``(module, inputs)``).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Inputs:
    """Arguments of one call, as they are passed: ``module(*args, **kwargs)``."""

    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """A module ready to be called, and how to feed it.

    ``make_inputs(seed)`` returns fresh inputs on the right device; equal seeds give equal values.
    ``items`` is what one call processes, in units of ``item`` (tokens, images, samples), with the
    true batch. A module with state of its own (a static KV cache) gives ``reset``, which rewinds
    it to the state right after ``build``, ``max_calls``, the calls it may take between two resets,
    and ``state``, which names the tensors that are compared beside the module's buffers.
    """

    module: torch.nn.Module
    make_inputs: Callable[[int], Inputs]
    items: float
    item: str = "samples"
    reset: Callable[[], None] | None = None
    max_calls: int | None = None
    state: Callable[[], dict[str, torch.Tensor]] | None = None
    golden: bool = True
    """Whether a float64 copy of the model is a valid higher-precision reference."""
    notes: tuple[str, ...] = ()
