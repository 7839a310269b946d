"""The ``reference`` job: eager twice from identical fresh state, then once in higher precision."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from pathlib import Path

import torch

from benchbench.correctness import leaves
from benchbench.correctness.judge import judge_trace
from benchbench.correctness.leaves import Leaf
from benchbench.correctness.recorder import (
    Changes,
    Recorder,
    Trace,
    walk_inputs,
    walk_state,
)
from benchbench.correctness.reference import Golden, Reference, save
from benchbench.correctness.rules import is_fraction, judge, tolerance
from benchbench.models import Inputs, Workload
from benchbench.records import AccuracyResult

# What somebody's model may raise when it is built or called in float64 (an op without a double
# kernel, a hard-coded dtype, out of memory). None of it is a fault of the case: the comparison
# goes on by the rule that needs no golden run.
_GOLDEN_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
    AssertionError,
    LookupError,
    AttributeError,
    ArithmeticError,
    ImportError,
    MemoryError,
    OSError,
)

_HALF = 2  # bytes per element; for these float32 is precise enough as a reference


def make_reference(
    build: Callable[[], Workload],
    build_golden: Callable[[], Workload | None],
    *,
    calls: int,
    seed: int,
    synchronize: Callable[[], None],
    path: str | Path,
) -> AccuracyResult:
    """Write the reference file for calls ``0 .. calls - 1`` and return eager's own result.

    ``build`` returns the workload in the same fresh state each time (it seeds what it needs).
    ``build_golden`` returns the same workload in float64, ``None`` when there is none, or raises;
    its weights, state and inputs are overwritten with eager's values. Forward runs under the
    caller's grad mode, which has to be the one of the measured calls. Besides the file's contents,
    memory holds two modules at a time: two of ``build``, or one of each.
    """
    first = Recorder(build(), seed=seed, synchronize=synchronize)
    module = first.workload.module
    for i in range(calls):
        inputs = first.inputs(i)
        first.record(i, inputs, module(*inputs.args, **inputs.kwargs))
    first.finish()
    trace = first.trace
    del first, module

    fresh = build()
    golden_workload, missing = _build_golden(trace, fresh, build_golden)
    differs = _repeat(trace, fresh, synchronize)
    make_inputs = fresh.make_inputs
    del fresh

    golden = Golden(missing=missing)
    if golden_workload is not None and differs is None:
        golden = _run_golden(trace, golden_workload, make_inputs, synchronize)
    reference = Reference(trace, golden, differs)
    result = judge_trace(reference, trace, None)
    if differs is not None:
        reference.trace = Trace(trace.seed, trace.weights)  # nothing to compare with
    save(reference, Path(path))
    return result


def _repeat(trace: Trace, workload: Workload, synchronize: Callable[[], None]) -> str | None:
    """Run the sequence again and return where it differs from the trace, bit for bit."""
    recorder = Recorder(workload, seed=trace.seed, synchronize=synchronize)
    if recorder.trace.weights != trace.weights:
        return "building the model again gives other weights"
    for i, expected in trace.calls.items():
        inputs = recorder.inputs(i)
        recorder.record(i, inputs, workload.module(*inputs.args, **inputs.kwargs))
        again = recorder.trace.calls.pop(i)
        if again.inputs_digest != expected.inputs_digest:
            return f"call {i}: make_inputs gives other values for the same seed"
        pairs = ((expected.outputs, again.outputs), (expected.inputs.after, again.inputs.after))
        for left, right in pairs:
            if (found := _first_difference(left, right)) is not None:
                return f"call {i}: {found}"
    recorder.finish()
    found = _first_difference(trace.state.after, recorder.trace.state.after)
    return None if found is None else f"after the calls: {found}"


def _first_difference(left: dict[str, Leaf], right: dict[str, Leaf]) -> str | None:
    """Return where two runs of eager differ in a single bit, and by how much."""
    for path in [*left, *(path for path in right if path not in left)]:
        one, two = left.get(path), right.get(path)
        if one is None or two is None or _shape(one) != _shape(two):
            return f"{path} differs from itself in structure"
        if leaves.identical(one, two):
            continue
        if one.tensor is None or two.tensor is None:
            return f"{path} differs from itself"
        judged = judge(one.tensor, two.tensor, None, tolerance(None, one.tensor.dtype))
        largest = "" if judged.max_abs is None else f" by up to {judged.max_abs:.2g}"
        return f"{path} differs from itself{largest}"
    return None


def _shape(leaf: Leaf) -> tuple[object, ...]:
    tensor = leaf.tensor
    return (leaf.type, leaf.kind, *((tensor.dtype, tensor.shape) if tensor is not None else ()))


def _build_golden(
    trace: Trace, fresh: Workload, build_golden: Callable[[], Workload | None]
) -> tuple[Workload | None, str | None]:
    """Return the float64 workload with eager's weights and state, or the reason why not."""
    if any(call.random for call in trace.calls.values()):
        return None, "the model draws random numbers"
    if not _needs_golden(trace):
        return None, "no output is rounded"
    if not fresh.golden:
        return None, "; ".join(("the model has no valid float64 copy", *fresh.notes))
    try:
        golden = build_golden()
        if golden is None:
            return None, "the model has no float64 copy"
        _transfer(_weights(fresh), _weights(golden))
        _transfer(walk_state(fresh), walk_state(golden))
    except _GOLDEN_ERRORS as error:
        return None, f"building the float64 copy failed: {_one_line(error)}"
    return golden, None


def _needs_golden(trace: Trace) -> bool:
    sides = [trace.state.after, *(call.inputs.after for call in trace.calls.values())]
    sides += [call.outputs for call in trace.calls.values()]
    return any(_rounded(leaf) for side in sides for leaf in side.values())


def _rounded(leaf: Leaf) -> bool:
    """Say whether a leaf is kept in less than float64."""
    tensor = leaf.tensor
    if tensor is None or not is_fraction(tensor.dtype):
        return False
    return tensor.dtype not in (torch.float64, torch.complex128)


def _run_golden(
    trace: Trace,
    workload: Workload,
    make_inputs: Callable[[int], Inputs],
    synchronize: Callable[[], None],
) -> Golden:
    """Run the sequence in float64 on eager's inputs and keep the leaves that eager rounds."""

    def same_inputs(seed: int) -> Inputs:
        # A float64 generator draws other numbers than a float32 one, so values are copied.
        made = workload.make_inputs(seed)
        _transfer(walk_inputs(make_inputs(seed)), walk_inputs(made))
        return made

    golden = Golden()
    try:
        recorder = Recorder(
            dataclasses.replace(workload, make_inputs=same_inputs),
            seed=trace.seed,
            synchronize=synchronize,
        )
        for i, expected in trace.calls.items():
            inputs = recorder.inputs(i)
            recorder.record(i, inputs, workload.module(*inputs.args, **inputs.kwargs))
            done = recorder.trace.calls.pop(i)
            golden.calls[i] = _kept(expected.outputs, done.outputs)
            golden.calls[i] |= _kept_changes(expected.inputs, done.inputs)
        recorder.finish()
        golden.state = _kept_changes(trace.state, recorder.trace.state)
    except _GOLDEN_ERRORS as error:
        return Golden(missing=f"the float64 copy failed: {_one_line(error)}")
    return golden


def _kept_changes(eager: Changes, golden: Changes) -> dict[str, torch.Tensor]:
    changed = {path: leaf for path, leaf in eager.after.items() if path in eager.changed}
    return _kept(changed, golden.after)


def _kept(eager: dict[str, Leaf], golden: dict[str, Leaf]) -> dict[str, torch.Tensor]:
    kept: dict[str, torch.Tensor] = {}
    for path, leaf in eager.items():
        truth = golden[path].tensor if path in golden else None
        if truth is None or leaf.tensor is None or not _rounded(leaf):
            continue
        if not is_fraction(truth.dtype) or truth.shape != leaf.tensor.shape:
            continue
        narrow = not truth.is_complex() and leaf.tensor.element_size() <= _HALF
        kept[path] = truth.to(torch.float32) if narrow else truth
    return kept


def _weights(workload: Workload) -> list[Leaf]:
    named = workload.module.named_parameters()
    return [leaf for name, tensor in named for leaf in leaves.walk(tensor, f"parameter {name}")]


def _transfer(source: Iterable[Leaf], target: Iterable[Leaf]) -> None:
    """Copy the values of one set of live tensors into another of the same structure."""
    values, places = leaves.by_path(source), leaves.by_path(target)
    if values.keys() != places.keys():
        only = sorted(values.keys() ^ places.keys())[0]
        raise ValueError(f"the float64 copy has another structure: {only}")
    with torch.no_grad():
        for path, leaf in values.items():
            value, place = leaf.tensor, places[path].tensor
            if value is None or place is None:
                continue
            if value.shape != place.shape:
                raise ValueError(f"the float64 copy has another shape: {path}")
            if 0 in place.stride() and torch.equal(place.cpu(), value.to("cpu", place.dtype)):
                continue  # expanded memory cannot be written, and need not be
            place.copy_(value)


def _one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__
