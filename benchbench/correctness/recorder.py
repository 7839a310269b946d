"""Runs beside the calls of one process: seeds, copies outputs, notes what else was changed."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from benchbench.correctness import leaves
from benchbench.correctness.leaves import Leaf
from benchbench.models import Inputs, Workload

# Elements of one tensor that enter the fingerprint of the weights. Another seed, another
# initialisation or another checkpoint changes nearly every element, so a sample is enough, and
# hashing 16 GB on every start is not.
SAMPLED_ELEMENTS = 1 << 16

SEED_STRIDE = 1000
"""Call ``i`` of a case is seeded with ``seed * SEED_STRIDE + i``."""


@dataclass(slots=True)
class Changes:
    """A set of leaves before and after: the inputs of one call, or the state of the module."""

    changed: set[str] = field(default_factory=set)
    """Paths that appeared, disappeared, or are not the same bit for bit as before."""
    before: dict[str, Leaf] = field(default_factory=dict)
    """Old leaves of the changed paths."""
    after: dict[str, Leaf] = field(default_factory=dict)
    """New leaves of all paths."""

    @classmethod
    def between(cls, before: dict[str, Leaf], after: dict[str, Leaf]) -> Changes:
        """Return the changes between two snapshots."""
        changed = before.keys() ^ after.keys()
        changed |= {
            path
            for path in before.keys() & after.keys()
            if not leaves.identical(before[path], after[path])
        }
        kept = {path: leaf for path, leaf in before.items() if path in changed}
        return cls(changed, kept, after)


@dataclass(slots=True)
class Call:
    """What one call left behind, on the CPU."""

    inputs_digest: str
    outputs: dict[str, Leaf]
    inputs: Changes
    random: bool
    """Whether random numbers were drawn from a generator that was seeded for the call."""


@dataclass(slots=True)
class Trace:
    """Everything that a sequence of calls left behind, without the module."""

    seed: int
    weights: str
    calls: dict[int, Call] = field(default_factory=dict)
    state: Changes = field(default_factory=Changes)


class Recorder:
    """Gives the inputs of each call and keeps what the call produced.

    Make it when the workload is fresh, before anything compiles or runs. For each call ``i``, in
    order: ``inputs(i)``, the call itself, ``record(i, inputs, output)``; after the last one
    ``finish()``. All copies live on the CPU; the module's parameters are not copied.
    """

    def __init__(self, workload: Workload, *, seed: int, synchronize: Callable[[], None]) -> None:
        self.trace = Trace(seed, weights_hash(workload.module))
        self.workload = workload
        self._synchronize = synchronize
        self._pending: dict[int, tuple[dict[str, Leaf], list[Any]]] = {}
        # Kept alive so that a model that recognises its input by id() never meets a reused id.
        self._alive: list[Inputs] = []
        self._since_reset = 0
        self._parameters = _parameter_marks(workload.module)
        self._fresh = _state(workload)

    def inputs(self, i: int) -> Inputs:
        """Return fresh inputs for call ``i``, with every random generator seeded for it.

        A workload that may only be called so many times between two resets is reset when due.
        """
        workload = self.workload
        if workload.max_calls is not None and self._since_reset >= workload.max_calls:
            if workload.reset is not None:
                workload.reset()
            self._since_reset = 0
        seed = call_seed(self.trace.seed, i)
        seed_everything(seed)
        made = workload.make_inputs(seed)
        self._alive.append(made)
        before = inputs_leaves(made)
        seed_everything(seed)
        self._pending[i] = (before, self._random_state())
        return made

    def record(self, i: int, inputs: Inputs, output: object) -> None:
        """Copy the output of call ``i``, and the inputs where the call changed them."""
        self._synchronize()
        before, random_state = self._pending.pop(i)
        drawn = self._random_state() != random_state
        self._since_reset += 1
        outputs = leaves.snapshot(output, "out")
        after = inputs_leaves(inputs)
        changes = Changes.between(before, after)
        self.trace.calls[i] = Call(leaves.digest(before.values()), outputs, changes, drawn)

    def finish(self) -> None:
        """Copy the state that the calls left behind: buffers, ``Workload.state``, parameters."""
        self._synchronize()
        self.trace.state = Changes.between(self._fresh, _state(self.workload))
        self._fresh = {}
        for name, parameter in self.workload.module.named_parameters():
            if self._parameters.get(name) != _mark(parameter):
                written = leaves.snapshot(parameter, f"parameter {name}")
                self.trace.state.changed |= written.keys()
                self.trace.state.after |= written
        self._alive.clear()

    def _random_state(self) -> list[Any]:
        return random_state(_device_types(self.workload.module))


def call_seed(seed: int, i: int) -> int:
    """Return the seed of call ``i`` of a case."""
    return seed * SEED_STRIDE + i


def seed_everything(seed: int) -> None:
    """Seed the generators of Python, numpy and torch (all its devices)."""
    random.seed(seed)
    np.random.seed(seed % 2**32)
    torch.manual_seed(seed)


def random_state(device_types: set[str]) -> list[Any]:
    """Return the state of the seeded generators in a form that ``==`` can compare."""
    _, words, position, *gauss = np.random.get_state(legacy=True)
    state: list[Any] = [random.getstate(), (np.asarray(words).tobytes(), position, *gauss)]
    state.append(torch.get_rng_state().numpy().tobytes())
    for kind in sorted(device_types - {"cpu", "meta"}):
        state.append(torch.get_device_module(kind).get_rng_state().cpu().numpy().tobytes())
    return state


def inputs_leaves(inputs: Inputs) -> dict[str, Leaf]:
    """Return the leaves of the arguments, copied, as ``input [0]`` and ``input mask``."""
    return leaves.by_path(leaves.copied(leaf) for leaf in walk_inputs(inputs))


def walk_inputs(inputs: Inputs) -> list[Leaf]:
    """Return the leaves of the arguments with their live tensors."""
    found: list[Leaf] = []
    for index, value in enumerate(inputs.args):
        found += leaves.walk(value, f"input [{index}]")
    for name, value in inputs.kwargs.items():
        found += leaves.walk(value, f"input {name}")
    return found


def walk_state(workload: Workload) -> list[Leaf]:
    """Return the buffers and the named state of a workload with their live tensors."""
    found: list[Leaf] = []
    for name, buffer in workload.module.named_buffers():
        found += leaves.walk(buffer, f"buffer {name}")
    if workload.state is not None:
        for name, tensor in workload.state().items():
            found += leaves.walk(tensor, f"state {name}")
    return found


def weights_hash(module: torch.nn.Module) -> str:
    """Return a fingerprint of parameters and buffers: names, types, shapes, sampled values.

    Equal on every device. It tells other weights from the same ones, not one edited element.
    """
    total = hashlib.blake2b(digest_size=16)
    for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
        for leaf in leaves.walk(tensor, name):
            value = leaf.tensor
            if value is None:
                total.update(f"{leaf.path}|{leaf.type}|{leaf.text}".encode())
                continue
            total.update(f"{leaf.path}|{value.dtype}|{tuple(value.shape)}".encode())
            total.update(_sample(value))
    return total.hexdigest()


def _sample(tensor: torch.Tensor) -> bytes:
    flat = tensor.detach().reshape(-1)
    step = max(1, flat.numel() // SAMPLED_ELEMENTS)
    taken = leaves.to_cpu(flat[::step])
    return bytes(leaves.bits(taken).numpy().tobytes())


def _state(workload: Workload) -> dict[str, Leaf]:
    return leaves.by_path(leaves.copied(leaf) for leaf in walk_state(workload))


def _parameter_marks(module: torch.nn.Module) -> dict[str, Any]:
    return {name: _mark(parameter) for name, parameter in module.named_parameters()}


def _mark(parameter: torch.Tensor) -> tuple[int, int]:
    """Return what changes when a parameter is written or replaced, without reading its values."""
    with torch._C.DisableTorchFunctionSubclass():
        return id(parameter), 0 if parameter.is_inference() else parameter._version


def _device_types(module: torch.nn.Module) -> set[str]:
    return {tensor.device.type for tensor in (*module.parameters(), *module.buffers())}
